"""A digest of source code that does not depend on comments, docstrings and layout.

Figures of a code object depend on its machine code and on the emulator. `figures_of` in `kernels`
computes them once for each pair, so a commit that changes neither needs no time.
"""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def digest(folder: Path) -> str:
    """Return the digest of the Python, C and text sources below a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            found.update(path.relative_to(folder).as_posix().encode())
            data = path.read_bytes()
            found.update(normalised(data) if path.suffix == ".py" else data)
    return found.hexdigest()


def normalised(source: bytes) -> bytes:
    """Return the syntax tree of Python source, without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return ast.dump(tree).encode()
