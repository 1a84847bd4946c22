"""Sources as text in any encoding: UTF-8, in which bytes of another encoding are kept as they are.

Comments and strings of people's sources may be Latin-1, and the locale may be, too; what a compiler
reads are the bytes that they wrote.
"""

from __future__ import annotations

from pathlib import Path


def text_of(data: bytes) -> str:
    """Return bytes as text; a byte that is not UTF-8 becomes a lone surrogate."""
    return data.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """Return the bytes that `text_of` was given."""
    return text.encode("utf-8", "surrogateescape")


def read_source(path: Path) -> str:
    """Return the text of a file."""
    return text_of(path.read_bytes())


def write_source(path: Path, text: str) -> None:
    """Write the text of a file, which `text_of` or `read_source` returned or a program holds."""
    path.write_bytes(bytes_of(text))
