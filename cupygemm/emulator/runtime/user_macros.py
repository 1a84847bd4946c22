"""Keep macros that a program's options define out of the implicit header.

``-DN=64`` is meant for the program, and a header that names a template's parameter ``N`` would not
compile with it. The program's macros are in a file that the compiler reads after the header.

The file also renames 64-bit integer types that a program defines as ``long long``. The implicit
header has those of <stdint.h>, which are ``long``; hiprtc of ROCm 7 predefines none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from cupygemm._build.source_text import write_source

_NAME = "cupygemm_macros.h"
# Headers test NDEBUG and the implementation's names, which begin with an underscore.
_OF_THE_PROGRAM = re.compile(r"-([DU])(?!_|NDEBUG\b)(\w+(?:\(.*?\))?)(?:=(.*))?", re.DOTALL)

_LONG_LONG = r"(?:(?:un)?signed\s+)?long\s+long(?:\s+int)?"
_OWN_INTEGER = re.compile(
    rf"\btypedef\s+{_LONG_LONG}\s+(u?int64_t)\s*;|\busing\s+(u?int64_t)\s*=\s*{_LONG_LONG}\s*;"
)
_STDINT = re.compile(r"^\s*#\s*include\s*<c?stdint(?:\.h)?>", re.MULTILINE)


def own_integers(source: str) -> list[str]:
    """Return lines that rename 64-bit integer types that a source defines as ``long long``."""
    if _STDINT.search(source):
        return []  # the two definitions conflict on a GPU, too
    names = sorted({typedef or alias for typedef, alias in _OWN_INTEGER.findall(source)})
    return [f"#define {name} __programs_{name}\n" for name in names]


def split(options: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split off the options that define the program's macros, and return these as lines of C.

    Parameters
    ----------
    options : sequence of str
        clang's options. A macro's name may be a separate option, after ``-D`` or ``-U``.

    Returns
    -------
    options : list of str
    lines : list of str
        ``#define`` and ``#undef``, in the order of the options.
    """
    others: list[str] = []
    lines: list[str] = []
    words = iter(options)
    for word in words:
        joined = word + next(words, "") if word in ("-D", "-U") else word
        found = _OF_THE_PROGRAM.fullmatch(joined)
        if found is None:
            others.append(joined)
        elif found[1] == "U":
            lines.append(f"#undef {found[2]}\n")
        else:
            lines.append(f"#define {found[2]} {'1' if found[3] is None else found[3]}\n")
    return others, lines


def write(lines: Sequence[str], folder: Path) -> list[str]:
    """Write the macros' lines to a file in a folder, and return the option that includes it."""
    if not lines:
        return []
    path = folder / _NAME
    write_source(path, "".join(['#line 1 "<command line>"\n', *lines]))
    return [f"-include{path}"]
