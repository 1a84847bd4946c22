"""Typed buffer elements in NumPy, written from the guides and without the emulator's code.

An element is an integer of up to 128 bits. Formats are their names in LLVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

COMPONENTS = {  # bits, the lowest first: the names begin with the highest
    "8": (8,),
    "16": (16,),
    "8_8": (8, 8),
    "32": (32,),
    "16_16": (16, 16),
    "10_11_11": (11, 11, 10),
    "11_11_10": (10, 11, 11),
    "10_10_10_2": (2, 10, 10, 10),
    "2_10_10_10": (10, 10, 10, 2),
    "8_8_8_8": (8, 8, 8, 8),
    "32_32": (32, 32),
    "16_16_16_16": (16, 16, 16, 16),
    "32_32_32": (32, 32, 32),
    "32_32_32_32": (32, 32, 32, 32),
}
DATA_FORMATS = {name: number for number, name in enumerate(COMPONENTS, 1)}
NUMBERS = {"UNORM": 0, "SNORM": 1, "USCALED": 2, "SSCALED": 3, "UINT": 4, "SINT": 5, "FLOAT": 7}
_FLOATS = ("16", "16_16", "16_16_16_16", "10_11_11", "11_11_10")


def exists(data: str, number: str) -> bool:
    """Whether the emulated device has a format."""
    if data.startswith("32"):
        return number in ("UINT", "SINT", "FLOAT")
    return number != "FLOAT" or data in _FLOATS


def split(element: int, data: str) -> list[int]:
    """Return the raw components of an element."""
    raw = []
    for bits in COMPONENTS[data]:
        raw.append(element % 2**bits)
        element >>= bits
    return raw


def joined(raw: Sequence[int], data: str) -> int:
    """Return the element with these raw components."""
    element, place = 0, 0
    for value, bits in zip(raw, COMPONENTS[data], strict=True):
        element += value << place
        place += bits
    return element


def float_bits(value: float, half: bool) -> int:
    """Return the bits of a number in float32, or in float16."""
    with np.errstate(over="ignore"):
        if half:
            return int(np.float16(value).view(np.uint16))
        return int(np.float32(value).view(np.uint32))


def small_float(raw: int, bits: int) -> float:
    """Return the value of a float of 10 or 11 bits: 5 of exponent, no sign."""
    exponent, fraction = divmod(raw, 2 ** (bits - 5))
    if exponent == 31:
        return float("nan") if fraction else float("inf")
    if exponent == 0:
        return fraction * 2.0 ** (-14 - (bits - 5))
    return (1 + fraction / 2 ** (bits - 5)) * 2.0 ** (exponent - 15)


def loaded(raw: int, bits: int, number: str, half: bool) -> int:
    """Return the value of a register, or a half of one, loaded from a component."""
    signed = raw - 2**bits if raw >= 2 ** (bits - 1) else raw
    if number in ("UINT", "SINT"):
        return (raw if number == "UINT" else signed) % (2**16 if half else 2**32)
    if number == "FLOAT":
        if bits == 32:
            value = float(np.uint32(raw).view(np.float32))
            return float_bits(value, half) if half else raw
        if bits == 16:
            return raw if half else float_bits(float(np.uint16(raw).view(np.float16)), half)
        return float_bits(small_float(raw, bits), half)
    value = {
        "UNORM": Fraction(raw, 2**bits - 1),
        "SNORM": max(Fraction(signed, 2 ** (bits - 1) - 1), Fraction(-1)),
        "USCALED": Fraction(raw),
        "SSCALED": Fraction(signed),
    }[number]
    return float_bits(float(value), half)


def stored(register: int, bits: int, number: str, half: bool) -> int:
    """Return the raw component stored from a register, or a half of one."""
    if number in ("UINT", "SINT"):
        if half and number == "SINT" and register >= 2**15:
            register -= 2**16
        return register % 2**bits
    value = float(
        np.uint16(register).view(np.float16) if half else np.uint32(register).view(np.float32)
    )
    if number == "FLOAT":
        if bits == 32:
            return float_bits(value, half=False) if half else register
        if bits == 16:
            return register if half else float_bits(value, half=True)
        return _small_bits(value, bits)
    if np.isnan(value):
        return 0
    top = 2 ** (bits - 1) - 1 if number[0] == "S" else 2**bits - 1
    low = {"UNORM": 0, "USCALED": 0, "SNORM": -top, "SSCALED": -top - 1}[number]
    if np.isinf(value):
        return (top if value > 0 else low) % 2**bits
    exact = Fraction(value) * (top if number.endswith("NORM") else 1)
    return min(max(round(exact), low), top) % 2**bits


def _small_bits(value: float, bits: int) -> int:
    """Return the greatest float of 10 or 11 bits that is not greater than a number."""
    most = 31 << (bits - 5)
    if np.isnan(value):
        return most + 2 ** (bits - 6)
    if value == float("inf"):
        return most
    held = [raw for raw in range(most) if small_float(raw, bits) <= value]
    return held[-1] if held else 0
