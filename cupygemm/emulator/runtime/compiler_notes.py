"""Explain compiler errors that name neither the line nor a remedy.

float* stage[2] = {tile, tile + 256};      error: unsupported expression in static initializer
"""

from __future__ import annotations

import re

from cupygemm.emulator.code_object.kept_source import without_comments

_POINTERS_TO_LDS = "unsupported expression in static initializer: addrspacecast (ptr addrspace(3)"
_ARRAY_OF_POINTERS = re.compile(r"\*\s*(?:const\s+)?(\w+)\s*\[[^\]]*\]\s*=?\s*\{")
_COMPUTE = """\
note: the compiler makes a constant table of an array of pointers that is initialised at once, and
none can hold addresses of __shared__ memory (so it is with hipcc). Compute the pointer where it is
used, base + stage * size, or let a function choose it"""


def with_notes(log: str, source: str, title: str) -> str:
    """Return a compiler's log with explanations added.

    Parameters
    ----------
    log : str
    source : str
        The program that failed to compile.
    title : str
        Its name in diagnostics.
    """
    if _POINTERS_TO_LDS not in log:
        return log
    plain = without_comments(source)
    found = [
        f"\n  {title}:{plain.count(chr(10), 0, array.start()) + 1}: {array[1]}"
        for array in _ARRAY_OF_POINTERS.finditer(plain)
    ]
    return f"{_COMPUTE}{''.join(found)}\n{log}"
