"""Flatten device sources to one translation unit by replacing each ``#include "..."`` by the file.

The machine code then depends only on the text, the compiler and its target, so a hash of these is a
sound cache key. hiprtc and NVRTC, which read no files, need a flattened source too.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_INCLUDE = re.compile(r'^#include "(?P<path>[^"]+)"[ \t]*\n', re.MULTILINE)


def flatten(path: str, generated: dict[str, str]) -> str:
    """Return a device source with every ``#include "..."`` replaced by the file.

    A file that is included several times appears once.

    Parameters
    ----------
    path : str
        A path relative to ``kernels/``, as in the includes.
    generated : dict of str to str
        Generated files: their texts by path.
    """
    seen: set[str] = set()

    def expand(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        parts = _split(generated[name]) if name in generated else _parts(name)
        # Texts and included paths alternate.
        body = "".join(expand(part) if place % 2 else part for place, part in enumerate(parts))
        return f"// ---- {name} ----\n{body.rstrip()}\n\n"

    return expand(path)


@cache
def _parts(path: str) -> list[str]:
    """Return the parts of a file by `_split`; cached, as many kernels include the same files."""
    return _split(device_source(path))


def _split(text: str) -> list[str]:
    """Return the text before the first include, its path, the text up to the next, and so on."""
    return _INCLUDE.split(text.replace("#pragma once\n", ""))


@cache
def device_source(path: str) -> str:
    """Return the text of a file of ``kernels/``.

    Raises
    ------
    FileNotFoundError
        The installation lacks the file.
    """
    return (_kernels() / path).read_text(encoding="utf-8")


@cache
def _kernels() -> Path:
    """Return the folder of the device sources that belong to this package.

    In a checkout the folder is next to the package, otherwise inside it. Importing
    ``cupygemm.kernels`` would find the wrong folder in the environment of another checkout.
    """
    package = Path(__file__).resolve().parents[1]
    beside = package.parent / "kernels"
    return beside if (beside / "common" / "platform.hpp").is_file() else package / "kernels"
