"""A digest of source code that comments, docstrings and layout do not change.

Figures of a code object depend on its machine code and on the emulator. `figures_of` in `kernels`
computes them once for each pair, so that a commit which changes neither costs nothing.
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
    """Return Python's source as its syntax tree, without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return ast.dump(tree).encode()
