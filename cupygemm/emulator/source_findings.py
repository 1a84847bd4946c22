"""Variables of HIP source that are used before they are written, as the compiler sees them.

At -O3, the compiler assumes any value for a variable that was never initialised, so the code may
show no trace of it. Therefore the compiler's warnings are kept in the code object, as comments, and
are reported when it is loaded. CuPy's own and generated programs are left out. The compiler looks
at numbers and vectors, but not at elements of arrays.

Where it says that a variable "may be" uninitialized, it has not compared conditions or counted the
rounds of loops, and is often wrong. It is followed where the variable is used to compute its own
next value, as an accumulator is, which no condition can excuse in the first round.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from cupygemm.emulator import checking
from cupygemm.emulator.errors import SourceFault
from cupygemm.emulator.findings import report_call

CHECK = "uninitialised_source"
OPTIONS = ("-Wuninitialized", "-Wsometimes-uninitialized", "-Wconditional-uninitialized")
_NAMES = "|".join(option.removeprefix("-W") for option in OPTIONS)
_WARNING = re.compile(rf"^(.+:\d+:\d+): warning: (.+) \[-W(?:{_NAMES})[^]]*\]$", re.MULTILINE)
_MARK = "cupygemm: used before it is written: "
_COMMENT = re.compile(re.escape(_MARK.encode()) + rb"([^\0]+)")
_GENERATED = "#include <cupy/"  # how programs of CuPy's own begin
_BETWEEN = ("cupygemm", "cupy.cuda", "cupy._core", "cupy_backends", "ctypes")


def is_generated(source: str) -> bool:
    """Tell whether a program is one that CuPy generates."""
    return source.startswith(_GENERATED)


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
    warnings = _WARNING.findall(log)
    told = ((where, what) for where, what in warnings if _is_certain(source, where, what))
    found = dict.fromkeys(f"{where}: {what}" for where, what in told)
    quoted = (re.sub(r'["\\]', r"\\\g<0>", text) for text in found)
    return [f'\t.ident "{_MARK}{text}"\n' for text in quoted]


def _is_certain(source: str, where: str, what: str) -> bool:
    """Tell whether a warning is certain, or about a statement that computes a variable anew."""
    doubtful = re.match(r"variable '(\w+)' may be uninitialized", what)
    if doubtful is None:
        return True
    file, line, column = where.rsplit(":", 2)
    try:
        text = Path(file).read_text(errors="replace") if Path(file).is_absolute() else source
    except OSError:
        return True
    start = len("".join(text.splitlines(keepends=True)[: int(line) - 1])) + int(column) - 1
    before, after = re.split(r"[;{}]", text[:start])[-1], text[start:].partition(";")[0]
    name = re.escape(doubtful[1])
    written = (
        rf"\b{name}\b(?:\[[^]]*\]|\.\w+)*\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|\b{name}\s*(?:\+\+|--)"
    )
    written += rf'|(?:\+\+|--)\s*{name}\b|"\+[^"]*"\s*\(\s*{name}\b'
    return re.search(written, before + after) is not None


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
    if _MARK.encode() not in elf or (severity := checking.policy()[CHECK]) == "off":
        return
    if not _called_by_cupy():
        report_call(SourceFault(_text(_COMMENT.findall(elf))), severity)


def _text(found: Iterable[bytes]) -> str:
    lines = [
        "HIP source uses variables that nothing has written",
        *(f"  {each.decode(errors='replace')}" for each in found),
        "  the optimiser takes any value for them, so that the code may hide it: initialise them",
        f"  check: {CHECK}",
    ]
    return "\n".join(lines)


def _called_by_cupy() -> bool:
    """Tell whether a function of CuPy's, and not a user of its kernel classes, loads the code."""
    frame = sys._getframe()  # noqa: SLF001  # inspect.currentframe returns the same
    while frame.f_back is not None:
        name = frame.f_globals.get("__name__", "")
        if not any(name == each or name.startswith(f"{each}.") for each in _BETWEEN):
            return name.partition(".")[0] in ("cupy", "cupyx")
        frame = frame.f_back
    return False
