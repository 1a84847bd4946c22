"""Flatten device sources: one translation unit, in which each ``#include "..."`` is the file itself.

The text then holds everything that decides the machine code except the compiler and its target, so
its hash is a sound cache key. Flattening also serves hiprtc and NVRTC, which see no files.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_INCLUDE = re.compile(r'^#include "(?P<path>[^"]+)"[ \t]*\n', re.MULTILINE)


def flatten(path: str, generated: dict[str, str]) -> str:
    """Return a device source with every ``#include "..."`` replaced by the file, each once.

    Parameters
    ----------
    path : str
        Relative to ``kernels/``, as in the includes.
    generated : dict of str to str
        Texts of files that are not on disk.
    """
    seen: set[str] = set()

    def expand(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = generated[name] if name in generated else device_source(name)
        text = text.replace("#pragma once\n", "")
        body = _INCLUDE.sub(lambda match: expand(match["path"]), text)
        return f"// ---- {name} ----\n{body.rstrip()}\n\n"

    return expand(path)


@cache
def device_source(path: str) -> str:
    """Return the text of a file of ``kernels/``.

    Raises
    ------
    FileNotFoundError
        The installation lacks it.
    """
    return (_kernels() / path).read_text(encoding="utf-8")


@cache
def _kernels() -> Path:
    """Return the folder of device sources that belongs to this very package.

    In a checkout it is beside the package, else inside it. Importing ``cupygemm.kernels`` would not
    do: in another checkout's environment that is the other checkout's folder.
    """
    package = Path(__file__).resolve().parents[1]
    beside = package.parent / "kernels"
    return beside if (beside / "common" / "platform.hpp").is_file() else package / "kernels"
