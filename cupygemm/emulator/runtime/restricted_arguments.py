"""Find arguments that share memory although their kernel declares them ``__restrict__``.

    k(const float* __restrict__ x, float* __restrict__ y)     k(a, a)

``__restrict__`` promises that data written through one pointer is not read through another. The
compiler may move a read of ``x[i]`` before or after a store to ``y``, so the result is undefined if
the two are one array. A launch with such arguments is checked after it has ended: a finding is
bytes that it has both read and written, if

* the read is through a pointer that is only read (the code object says so, or it is ``const``): its
  place in the source begins with the pointer's name, or the other pointer is only written, and
* the order matters: the read came after the write, the arrays overlap but are not equal, or the
  source reads through the pointer after its first write through the other. A kernel that reads each
  element before it writes it, such as ``y[i] = 2 * x[i]``, is not reported.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cupygemm.emulator.code_object.kept_source import without_comments
from cupygemm.emulator.code_object.line_table import line_table
from cupygemm.emulator.native import library
from cupygemm.emulator.raw_kernels.parameter_types import parameters_of
from cupygemm.emulator.runtime.raw_arguments import reach
from cupygemm.emulator.waves.reports import instruction_of

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Kernel
    from cupygemm.emulator.memory.global_shadow import GlobalShadow
    from cupygemm.emulator.runtime.raw_arguments import RawLaunch

CHECK = "restricted_arguments"
_PAIRS = 16  # of instructions that are checked
_LARGEST = 1 << 26  # bytes that are searched


@dataclass(frozen=True)
class _Pointer:
    """A pointer to an array.

    Attributes
    ----------
    position : int
        The position of the argument.
    name : str
    start, end : int
        The address of the first element, and the end of the last.
    is_restricted : bool
    reads_only, writes_only : bool
        Whether the kernel is known to only read or only write through it.
    """

    position: int
    name: str
    start: int
    end: int
    is_restricted: bool
    reads_only: bool
    writes_only: bool


def pairs(launch: RawLaunch) -> list[tuple[_Pointer, _Pointer]]:
    """Return pairs of pointers to the same memory: one that is read, one that is written."""
    return list(_pairs(launch.kernel, launch.arguments, launch.array))


def findings(launch: RawLaunch, found: Sequence[tuple[_Pointer, _Pointer]]) -> Iterator[str]:
    """Yield what an ended launch did through the first pair that it misused."""
    texts = (_finding(launch, read, written) for read, written in found)
    yield from itertools.islice(filter(None, texts), 1)


def _pairs(
    kernel: Kernel, arguments: Sequence[Any], array: Any
) -> Iterator[tuple[_Pointer, _Pointer]]:
    """Yield a pointer that is only read, and another that may be written."""
    given = [
        (position, argument, value)
        for position, (argument, value) in enumerate(
            zip(kernel.explicit_arguments, arguments, strict=False)
        )
        if argument.value_kind == "global_buffer" and isinstance(value, array) and value.size
    ]
    if len({int(value.data.mem.ptr) for _, _, value in given}) == len(given):  # as is usual
        return
    declared = parameters_of(kernel)
    pointers = []
    for position, argument, value in given:
        text = declared[position].text if declared else ""
        pointers.append(
            _Pointer(
                position,
                argument.name.partition(".")[0],
                *reach(value),
                is_restricted=bool(argument.access) or "restrict" in text,
                reads_only=argument.access == "read_only" or "const" in text.partition("*")[0],
                writes_only=argument.access == "write_only",
            )
        )
    for read, written in itertools.permutations(pointers, 2):
        overlap = read.start < written.end and written.start < read.end
        restricted = read.is_restricted or written.is_restricted
        if overlap and restricted and read.reads_only and not written.reads_only:
            yield read, written


def _finding(launch: RawLaunch, read: _Pointer, written: _Pointer) -> str:
    """Describe a location read through one pointer and written through the other, or return ""."""
    kernel = launch.kernel
    start, end = max(read.start, written.start), min(read.end, written.end)
    found = _overwritten(launch.shadow, start, min(end, start + _LARGEST))
    shifted = (read.start, read.end) != (written.start, written.end)
    matters = shifted or _reads_after(kernel, read, written)
    for address, reader, writer, is_later in found:
        through = written.writes_only or _begins_with(kernel, reader, read.name)
        if through and (matters or is_later):
            return _text(launch, read, written, address, (reader, writer))
    return ""


def _overwritten(shadow: GlobalShadow, start: int, end: int) -> list[tuple[int, int, int, bool]]:
    """Return bytes that the last launch has read and written (C's find_overwritten)."""
    function = library().find_overwritten
    function.argtypes = [*[ctypes.c_void_p] * 2, *[ctypes.c_uint64] * 3, ctypes.c_uint32]
    function.argtypes += [ctypes.c_int64, ctypes.c_void_p]
    function.restype = ctypes.c_int64
    found = (ctypes.c_int64 * (4 * _PAIRS))()
    first = int(shadow.launch_start)
    low, high = max(start, shadow.base), min(end, shadow.end)
    if low >= high:
        return []
    count = function(shadow.address, shadow.lines, shadow.base, low, high, first, _PAIRS, found)
    rows = (found[4 * i : 4 * i + 4] for i in range(count))
    return [(address, reader, writer, bool(later)) for address, reader, writer, later in rows]


def _begins_with(kernel: Kernel, pc: int, name: str) -> bool:
    """Tell whether an instruction's place in the source begins with a pointer's name."""
    around = line_table(kernel.code_object).text_around(pc)
    return bool(around and name and re.match(rf"\*?\s*{re.escape(name)}\b", around[1]))


def _reads_after(kernel: Kernel, read: _Pointer, written: _Pointer) -> bool:
    """Tell whether the source reads through a pointer in a later statement than a write."""
    name, other = re.escape(read.name), re.escape(written.name)
    text = without_comments(kernel.code_object.program[1])
    if not name or not other or len(re.findall(r"\b__global__\b", text)) != 1:
        return False
    assigns = r"(?:\[[^;=]*\])?\s*(?:[-+*/%&|^]|<<|>>)?=[^=;][^;]*;"
    write = re.search(rf"\b{other}\s*{assigns}", text)
    return write is not None and re.search(rf"\b{name}\s*\[", text[write.end() :]) is not None


def _text(
    launch: RawLaunch, read: _Pointer, written: _Pointer, address: int, places: tuple[int, int]
) -> str:
    kernel = launch.kernel
    explicit = kernel.explicit_arguments
    reader, writer = (
        instruction_of(kernel, launch.target, pc).replace("\n", "\n    ") for pc in places
    )
    names = [explicit[each.position].label(each.position) for each in (read, written)]
    same = (read.start, read.end) == (written.start, written.end)
    offset = written.start - read.start
    how = "are one array" if same else f"overlap: the second begins {offset} bytes after the first"
    return (
        f"kernel {kernel.name} declares pointers __restrict__, and gets arrays that share memory\n"
        f"  {names[0]} and {names[1]} {how}\n"
        f"  0x{address:x} is read through {read.name or names[0]}, by\n    {reader}\n"
        f"  and written through {written.name or names[1]}, by\n    {writer}\n"
        "  the compiler takes the read to be independent of the write, and moves or keeps it as\n"
        "  it likes: pass a copy, x.copy(), or drop __restrict__\n"
        f"  check: {CHECK}"
    )
