"""What the compiler's warnings about HIP source say of variables and of masks of waves.

At -O3, the compiler assumes any value for a variable that was never initialised, so the code may
show no trace of it. Therefore the compiler's warnings are kept in the code object, as comments, and
are reported when it is loaded. CuPy's own and generated programs are left out. The compiler looks
at numbers and vectors, but not at elements of arrays.

Where it says that a variable "may be" uninitialized, it has not compared conditions or counted the
rounds of loops, and is often wrong. It is followed where the variable is used to compute its own
next value, as an accumulator is, which no condition can excuse in the first round. Lanes may pass a
variable that they have not set to __shfl, which reads another lane. They may not pass it to a
group's shfl, whose argument the compiler takes to be set.

A mask of a wave, such as that of __ballot, has 64 bits. Where code written for warps of 32 threads
keeps 32 of them, the compiler's warning is kept likewise. Its other warnings of this kind are not.
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
_USE = re.compile(r"^(.+:\d+:\d+): note: uninitialized use occurs here$", re.MULTILINE)
# In front of a value that another lane's takes the place of.
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
_GENERATED = "#include <cupy/"  # how programs of CuPy's own begin
_INTEGER_PRODUCT = re.compile(
    r"(?:#define \w+ \d+\n)+\s*#define fetch\(.*\n\s*"
    r"template<typename T>\s+__device__ void _tensordot_core_int_kernel_impl\("
)
_BETWEEN = ("cupygemm", "cupy.cuda", "cupy._core", "cupy_backends", "ctypes")


def is_generated(source: str) -> bool:
    """Tell whether a program is one of CuPy's own, generated or, for integer products, written."""
    return source.startswith(_GENERATED) or _INTEGER_PRODUCT.match(source) is not None


def options(source: str) -> list[str]:
    """Return the options of the compiler for the warnings about a program."""
    if re.search(_MASK, source) is None:
        return list(OPTIONS)
    return [*OPTIONS, f"-W{_SHORTEN}", f"-Wno-error={_SHORTEN}"]


def without_shortened(log: str) -> str:
    """Return the compiler's log without the warnings that only this module asked for."""
    left, count = _SHORTENED.subn("", log)
    return _COUNT.sub("", left) if count else log


def comments(source: str, log: str) -> list[str]:
    """Return assembly that keeps the warnings of the compiler's log of a program.

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


def _warnings(log: str) -> Iterator[tuple[str, str, str]]:
    """Yield the places and texts of warnings about variables, and the notes that follow them."""
    for found in _WARNING.finditer(log):
        yield found[1], found[2], log[found.end() :].partition(": warning: ")[0]


def _text_from(source: str, where: str) -> tuple[str, str]:
    """Return the text before and after a place that the compiler names; "" if not known."""
    file, line, column = where.rsplit(":", 2)
    try:
        text = Path(file).read_text(errors="replace") if Path(file).is_absolute() else source
    except OSError:
        return "", ""
    start = len("".join(text.splitlines(keepends=True)[: int(line) - 1])) + int(column) - 1
    return text[:start], text[start:]


def _is_certain(source: str, where: str, what: str) -> bool:
    """Tell whether a warning is certain, or about a statement that computes a variable anew."""
    doubtful = re.match(r"variable '(\w+)' may be uninitialized", what)
    if doubtful is None:
        return True
    before, after = _text_from(source, where)
    if not before + after:
        return True
    before, after = re.split(r"[;{}]", before)[-1], after.partition(";")[0]
    name = re.escape(doubtful[1])
    written = (
        rf"\b{name}\b(?:\[[^]]*\]|\.\w+)*\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|\b{name}\s*(?:\+\+|--)"
    )
    written += rf'|(?:\+\+|--)\s*{name}\b|"\+[^"]*"\s*\(\s*{name}\b'
    return re.search(written, before + after) is not None


def _is_shuffled(source: str, notes: str) -> bool:
    """Tell whether a warning's notes say that the variable is used as a shuffle's value."""
    use = _USE.search(notes)
    return use is not None and _SHUFFLED.search(_text_from(source, use[1])[0]) is not None


def report(elf: bytes) -> None:
    """Report the warnings that a loaded code object keeps.

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
    """Tell whether a function of CuPy's, and not a user of its kernel classes, loads the code."""
    frame = sys._getframe()  # noqa: SLF001  # inspect.currentframe returns the same
    while frame.f_back is not None:
        name = frame.f_globals.get("__name__", "")
        if not any(name == each or name.startswith(f"{each}.") for each in _BETWEEN):
            return name.partition(".")[0] in ("cupy", "cupyx")
        frame = frame.f_back
    return False
