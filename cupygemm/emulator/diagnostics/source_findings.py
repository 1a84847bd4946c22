"""Report the compiler's warnings about uninitialised variables and wave masks in HIP source.

At -O3, the compiler assumes any value for a variable that was never initialised, so the code may
show no trace of it. Therefore the compiler's warnings are stored in the code object, as comments,
and are reported when it is loaded. CuPy's own and generated programs are excluded. The compiler
checks numbers and vectors, but not elements of arrays.

If it says that a variable "may be" uninitialized, it has not compared conditions or counted loop
iterations, and is often wrong. Such a warning counts only if the variable is used to compute its
own next value, as an accumulator is, with no condition in the statement: in the first iteration,
nothing can excuse that. All of these variables are tracked while the kernel runs, too
(runtime/unwritten.py). Lanes may pass an unset variable to __shfl, which reads another lane, but
not to a group's shfl, whose argument the compiler assumes to be set.

A wave mask, such as __ballot's, has 64 bits. If code written for warps of 32 threads keeps only 32
of them, the compiler's warning is stored as well. Other warnings of lost bits are not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from cupygemm.emulator.diagnostics import checking
from cupygemm.emulator.diagnostics.findings import report_call
from cupygemm.emulator.errors import SourceFault

CHECK, MASKS = "uninitialised_source", "wave_masks"
OPTIONS = ("-Wuninitialized", "-Wsometimes-uninitialized", "-Wconditional-uninitialized")
_NAMES = "|".join(option.removeprefix("-W") for option in OPTIONS)
_WARNING = re.compile(rf"^(.+:\d+:\d+): warning: (.+) \[-W(?:{_NAMES})[^]]*\]$", re.MULTILINE)
_CONDITION = re.compile(r"\b(?:if|while)\s*\((?:[^()]|\([^()]*\))*(?:\([^()]*)?$")
_DOUBTFUL = re.compile(r"variable '(\w+)' may be uninitialized")
_USE = re.compile(r"^(.+:\d+:\d+): note: uninitialized use occurs here$", re.MULTILINE)
# The text before an argument that is replaced by another lane's value.
_SHUFFLED = re.compile(
    r"\b(?:__shfl(?:_up|_down|_xor)?|\w*readfirstlane)\s*\(\s*$"
    r"|\b__shfl\w*_sync\s*\((?:[^,()]|\(\))*,\s*$"
)
_SHORTEN = "shorten-64-to-32"
_MASK = r"\b__(?:ballot|activemask|match_any|match_all|lanemask_\w+)(?:_sync)?\s*\("
_SHORTENED = re.compile(
    rf"^(.+:\d+:\d+): warning: .+ \[-W{_SHORTEN}\]\n(?:^ +(?:\d+ )?\|.*\n)*", re.MULTILINE
)
_COUNT = re.compile(r"^\d+ warnings? generated.*\n", re.MULTILINE)
_HEADS = {
    CHECK: "HIP source uses variables that nothing has written",
    MASKS: "HIP source keeps 32 bits of a mask of 64 lanes",
}
_ADVICE = {
    CHECK: "the optimiser takes any value for them, so that the code may hide it: initialise them",
    MASKS: "lanes 32 to 63 are lost: keep it as unsigned long long, and use __popcll and __ffsll; "
    "where\n  a block has no more than 32 threads, write the conversion: (unsigned)__ballot(...)",
}
_MARKS = {
    CHECK: "cupygemm: used before it is written: ",
    MASKS: "cupygemm: a mask of a wave is cut off: ",
}
_GENERATED = "#include <cupy/"  # the start of CuPy's own programs
_INTEGER_PRODUCT = re.compile(
    r"(?:#define \w+ \d+\n)+\s*#define fetch\(.*\n\s*"
    r"template<typename T>\s+__device__ void _tensordot_core_int_kernel_impl\("
)
_BETWEEN = ("cupygemm", "cupy.cuda", "cupy._core", "cupy_backends", "ctypes")


def is_generated(source: str) -> bool:
    """Tell whether a program is CuPy's own: generated, or its kernel for integer products."""
    return source.startswith(_GENERATED) or _INTEGER_PRODUCT.match(source) is not None


def options(source: str) -> list[str]:
    """Return the compiler's options for the warnings about a program."""
    if re.search(_MASK, source) is None:
        return list(OPTIONS)
    return [*OPTIONS, f"-W{_SHORTEN}", f"-Wno-error={_SHORTEN}"]


def without_shortened(log: str) -> str:
    """Return the compiler's log without the warnings that only this module enabled."""
    left, count = _SHORTENED.subn("", log)
    return _COUNT.sub("", left) if count else log


def comments(source: str, log: str) -> list[str]:
    """Return assembly that stores the warnings of a program's compiler log.

    Parameters
    ----------
    source : str
        The program.
    log : str
        The compiler's warnings.
    """
    if is_generated(source):
        return []
    told = (
        (where, what)
        for where, what, notes in _warnings(log)
        if _is_certain(source, where, what) and not _is_shuffled(source, notes)
    )
    found = dict.fromkeys(f"{_MARKS[CHECK]}{where}: {what}" for where, what in told)
    for where in _SHORTENED.findall(log):
        if mask := re.match(_MASK, _text_from(source, where)[1]):
            found[f"{_MARKS[MASKS]}{where}: {mask[0].rstrip('( ')}"] = None
    quoted = (re.sub(r'["\\]', r"\\\g<0>", text) for text in found)
    return [f'\t.ident "{text}"\n' for text in quoted]


def doubtful(log: str) -> set[str]:
    """Return the names of the variables that may be uninitialised, by the compiler's log."""
    found = (_DOUBTFUL.match(what) for _, what, _ in _warnings(log))
    return {each[1] for each in found if each}


def _warnings(log: str) -> Iterator[tuple[str, str, str]]:
    """Yield the places and texts of warnings about variables, and their notes."""
    for found in _WARNING.finditer(log):
        yield found[1], found[2], log[found.end() :].partition(": warning: ")[0]


def _text_from(source: str, where: str) -> tuple[str, str]:
    """Return the text before and after a place that the compiler names; "" if unknown."""
    file, line, column = where.rsplit(":", 2)
    try:
        text = (
            Path(file).read_text(encoding="utf-8", errors="replace")
            if Path(file).is_absolute()
            else source
        )
    except OSError:
        return "", ""
    start = len("".join(text.splitlines(keepends=True)[: int(line) - 1])) + int(column) - 1
    return text[:start], text[start:]


def _is_certain(source: str, where: str, what: str) -> bool:
    """Tell whether a warning is certain, or its statement computes the variable from itself."""
    may_be = _DOUBTFUL.match(what)
    if may_be is None:
        return True
    before, after = _text_from(source, where)
    if not before + after:
        return True
    before, after = re.split(r"[;{}]", before)[-1], after.partition(";")[0]
    if _CONDITION.search(before) or "?" in before + after:
        return False
    name = re.escape(may_be[1])
    written = (
        rf"\b{name}\b(?:\[[^]]*\]|\.\w+)*\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|\b{name}\s*(?:\+\+|--)"
    )
    written += rf'|(?:\+\+|--)\s*{name}\b|"\+[^"]*"\s*\(\s*{name}\b'
    return re.search(written, before + after) is not None


def _is_shuffled(source: str, notes: str) -> bool:
    """Tell whether a warning's notes show the variable as a shuffle's argument."""
    use = _USE.search(notes)
    return use is not None and _SHUFFLED.search(_text_from(source, use[1])[0]) is not None


def report(elf: bytes) -> None:
    """Report the warnings stored in a loaded code object.

    Parameters
    ----------
    elf : bytes

    Raises
    ------
    SourceFault
        The check is an error.
    """
    for check, mark in _MARKS.items():
        if mark.encode() not in elf or (severity := checking.policy()[check]) == "off":
            continue
        if not called_by_cupy():
            found = re.findall(re.escape(mark.encode()) + rb"([^\0]+)", elf)
            report_call(SourceFault(_text(check, found), check), severity)


def _text(check: str, found: Iterable[bytes]) -> str:
    lines = [
        _HEADS[check],
        *(f"  {each.decode(errors='replace')}" for each in found),
        f"  {_ADVICE[check]}",
        f"  check: {check}",
    ]
    return "\n".join(lines)


def called_by_cupy() -> bool:
    """Tell whether a CuPy function, rather than a user of its kernel classes, loads the code."""
    frame = sys._getframe()  # noqa: SLF001  # inspect.currentframe returns the same
    while frame.f_back is not None:
        name = frame.f_globals.get("__name__", "")
        if not any(name == each or name.startswith(f"{each}.") for each in _BETWEEN):
            return name.partition(".")[0] in ("cupy", "cupyx")
        frame = frame.f_back
    return False
