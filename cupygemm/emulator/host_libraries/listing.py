"""Parse the functions of a stand-in library from its file in ``listings/``.

A line is a function, or a family of functions that differ in one part of the name::

    hipblas{S,D,C,Z}scal(handle, int n, alpha, x, int incx)

A parameter without a type is a pointer. ``value`` is a number of the type that the family member's
letter names: S and s are float, D and d are double, C and c are a complex of floats, Z and z are a
complex of doubles. Empty lines and lines that start with ``#`` are ignored.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

LISTINGS = Path(__file__).parent / "listings"

_LINE = re.compile(r"(?P<head>\w*?)(?:\{(?P<letters>[\w,]+)\}(?P<tail>\w*))?\((?P<list>.*)\)")
_VALUES = {"S": "float", "D": "double", "C": "complex_float", "Z": "complex_double"}
TYPES = {
    "": ("void *", "K"),
    "int": ("int", "i"),
    "int64": ("long long", "L"),
    "size": ("size_t", "K"),
    "float": ("float", "d"),
    "double": ("double", "d"),
    "complex_float": ("struct complex_float", "K"),
    "complex_double": ("struct complex_double", "K"),
    "unique_id": ("struct unique_id", "K"),
}
"""C types, and what they are to Py_BuildValue: a struct is passed on by its address."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a C function.

    Attributes
    ----------
    name : str
    kind : str
        A key of `TYPES`.
    """

    name: str
    kind: str


@dataclass(frozen=True)
class Entry:
    """A function of a library.

    Attributes
    ----------
    name : str
        For example ``"hipblasSscal"``.
    family : str
        The name in the listing, ``"hipblas{S,D,C,Z}scal"``.
    letters : str
        This name's variant of the part in braces, ``"S"``; empty outside of families.
    listed : str
        The parameters in the listing, ``"handle, int n, value alpha"``.
    """

    name: str
    family: str
    letters: str
    listed: str

    @functools.cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, parsed only to compile the library."""
        return tuple(_parameters(self.listed, self.letters))


def listing_of(stem: str) -> Path:
    """Return the file that lists the functions of a library, for example ``"hipblas"``."""
    return LISTINGS / f"{stem}.txt"


def read_listing(stem: str) -> list[Entry]:
    """Return the functions of a library in the order of its listing.

    Parameters
    ----------
    stem : str
        For example ``"hipblas"``.

    Returns
    -------
    list of Entry

    Raises
    ------
    ValueError
        A line cannot be parsed.
    """
    entries = []
    for line in listing_of(stem).read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"{stem}.txt: {line!r} is not a function")
        entries += [
            Entry(
                name=f"{match['head']}{letters}{match['tail'] or ''}",
                family=line[: line.index("(")],
                letters=letters,
                listed=match["list"],
            )
            for letters in (match["letters"] or "").split(",")
        ]
    return entries


def _parameters(listed: str, letters: str) -> list[Parameter]:
    found = []
    for text in filter(None, listed.split(", ")):
        kind, _, name = text.rpartition(" ")
        found.append(Parameter(name, _VALUES[letters.upper()] if kind == "value" else kind))
    return found


def c_source(entries: list[Entry], failed: int) -> str:
    """Return the C source of a library's entry points, which call Python (see entry.h).

    Parameters
    ----------
    entries : list of Entry
    failed : int
        The status of a call if Python could not be called.

    Returns
    -------
    str
    """
    lines = [
        f"enum {{ python_failed = {failed}, number_of_functions = {len(entries)} }};",
        '#include "entry.h"',
    ]
    for position, entry in enumerate(entries):
        declared = ", ".join(f"{TYPES[p.kind][0]} {p.name}" for p in entry.parameters)
        passed = "".join(
            f", &{p.name}" if TYPES[p.kind][0].startswith("struct") else f", {p.name}"
            for p in entry.parameters
        )
        letters = "".join(TYPES[p.kind][1] for p in entry.parameters)
        lines.append(
            f"int {entry.name}({declared or 'void'}) "
            f'{{ ENTRY("{entry.name}", {position}, "({letters})"{passed}); }}'
        )
    return "\n".join([*lines, ""])
