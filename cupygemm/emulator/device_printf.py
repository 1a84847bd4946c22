"""Print what the device's printf has written (format: hip_headers/device/printf.h).

    first launch  ─► `Buffer`: memory of the device, its address in the program's variable
    launch ended  ─► `flush`: records ─► text ─► sys.stdout

Code objects of other compilers print through the host instead, which is not emulated: their buffer
is a null pointer, which the fault names (`reports`).
"""

from __future__ import annotations

import re
import struct
import sys
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import CodeObject
    from cupygemm.emulator.memory.allocations import Memory

SYMBOL = "_ZN15cupygemm_printf6loadedIvE5placeE"
"""The variable with the buffer's address, in programs that call printf."""

BYTES = 1 << 20
"""The buffer's size, which is HIP's default (hipLimitPrintfFifoSize)."""

_HEAD = 16
_SIGNED, _UNSIGNED, _DOUBLE, _STRING = range(4)
_NULL = 2**64 - 1
_CONVERSION = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d*))?"
    r"(?P<length>hh|h|ll|l|j|z|t|L)?(?P<letter>[diouxXeEfFgGaAcsp%])"
)
_BITS = {"hh": 8, "h": 16, "": 32}  # all other lengths are 64

Value = int | float | str | None


class Buffer:
    """The buffer of a program's printf.

    Parameters
    ----------
    memory : Memory
    variable : int
        Address of the program's variable, which receives the buffer's address.
    """

    def __init__(self, memory: Memory, variable: int) -> None:
        self._memory = memory
        self._address = memory.malloc(_HEAD + BYTES, tag="printf")
        memory.write(self._address, struct.pack("<QQ", 0, BYTES // 8) + bytes(BYTES))
        memory.write(variable, struct.pack("<Q", self._address))

    def flush(self) -> None:
        """Print all records to ``sys.stdout``, in the order in which they were written."""
        used, _ = struct.unpack("<QQ", self._memory.read(self._address, _HEAD))
        if not used:
            return
        size = min(8 * used, BYTES)
        words = np.frombuffer(self._memory.read(self._address + _HEAD, size), np.uint64).tolist()
        self._memory.write(self._address, struct.pack("<Q", 0))
        self._memory.write(self._address + _HEAD, bytes(size))
        text = "".join(map(formatted, _records(words)))
        if 8 * used > BYTES:
            text += f"\n(printf: the buffer of {BYTES} bytes was full; what followed is lost)\n"
        sys.stdout.write(text)
        sys.stdout.flush()

    def free(self) -> None:
        """Free the buffer's memory."""
        self._memory.free(self._address)


def buffer_of(code: CodeObject, memory: Memory) -> Buffer | None:
    """Return the buffer of a loaded program; None if it does not print."""
    if code.printf is None and SYMBOL in code.symbols:
        code.printf = Buffer(memory, code.symbols[SYMBOL][0])
    found: Buffer | None = code.printf
    return found


def _records(words: list[int]) -> list[list[Value]]:
    """Return the format and the arguments of each record."""
    found, place = [], 0
    while place + 2 <= len(words) and words[place]:
        end, count = place + words[place], words[place + 1]
        if end > len(words):
            break
        place += 2
        values = []
        for _ in range(count + 1):
            value, place = _value(words, place)
            values.append(value)
        found.append(values)
        place = end
    return found


def _value(words: list[int], place: int) -> tuple[Value, int]:
    """Return the value at a position, and the position after it."""
    kind, bits = words[place : place + 2]
    place += 2
    if kind == _DOUBLE:
        return struct.unpack("<d", struct.pack("<Q", bits))[0], place
    if kind != _STRING:
        return bits, place
    if bits == _NULL:
        return None, place
    end = place + -(-bits // 8)
    data = struct.pack(f"<{end - place}Q", *words[place:end])[:bits]
    return data.decode(errors="replace"), end


def formatted(record: list[Value]) -> str:
    """Format arguments as C's printf does.

    A conversion without an argument stays as it is written.
    """
    template, *values = record
    left = iter(values)

    def convert(match: re.Match[str]) -> str:
        if match["letter"] == "%":
            return "%"
        try:
            width = _integer(next(left), 32) if match["width"] == "*" else match["width"]
            precision = match["precision"]
            if precision == "*":
                precision = _integer(next(left), 32)
            return _converted(match, width, precision, next(left))
        except StopIteration:
            return match[0]

    return _CONVERSION.sub(convert, str(template))


def _converted(
    match: re.Match[str], width: str | int | None, precision: str | int | None, value: Value
) -> str:
    """Format one value."""
    flags, letter = match["flags"], match["letter"]
    if isinstance(width, int) and width < 0:
        flags, width = flags + "-", -width
    if isinstance(precision, int) and precision < 0:
        precision = None
    dot = "" if precision is None else f".{precision or 0}"
    bits = _BITS.get(match["length"] or "", 64)
    if letter == "p":
        body, dot = f"{_integer(value, 64, signed=False):#x}", ""
    elif letter == "s":
        body = "(null)" if value is None else str(value)
    elif letter == "c":
        body, dot = chr(_integer(value, 8, signed=False)), ""
    elif letter in "aA":
        body, dot = _hexadecimal(_double(value), letter), ""
    elif letter in "di":
        return _padded(f"%{flags}", width, dot, "d", _integer(value, bits))
    elif letter in "ouxX":
        number = _integer(value, bits, signed=False)
        flags = re.sub("[+ ]" if number else "[+ #]", "", flags)
        text = _padded(f"%{flags}", width, dot, letter.replace("u", "d"), number)
        return text.replace("0o", "0", 1) if letter == "o" else text
    else:
        return _padded(f"%{flags}", width, dot, letter, _double(value))
    return _padded(f"%{flags.replace('0', '')}", width, dot, "s", body)


def _padded(start: str, width: str | int | None, dot: str, letter: str, value: float | str) -> str:
    return f"{start}{width or ''}{dot}{letter}" % value


def _integer(value: Value, bits: int, *, signed: bool = True) -> int:
    """Return the low bits of an argument as an integer; a double is converted by value."""
    number = int(value) if isinstance(value, int | float) else 0
    number &= (1 << bits) - 1
    return number - (1 << bits) if signed and number >> (bits - 1) else number


def _double(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _hexadecimal(value: float, letter: str) -> str:
    """Return a double as ``%a`` prints it."""
    text = re.sub(r"\.?0*p", "p", value.hex(), count=1)
    return text.upper() if letter == "A" else text
