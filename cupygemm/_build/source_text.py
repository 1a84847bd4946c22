"""Read and write sources of any encoding as UTF-8 text that preserves all other bytes.

Comments and strings of users' sources may be Latin-1, and so may the locale. The compiler must read
the original bytes.
"""

from __future__ import annotations

from pathlib import Path


def text_of(data: bytes) -> str:
    """Return bytes as text; a byte that is not UTF-8 becomes a lone surrogate."""
    return data.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """Return the bytes of a text that `text_of` returned."""
    return text.encode("utf-8", "surrogateescape")


def read_source(path: Path) -> str:
    """Return the text of a file."""
    return text_of(path.read_bytes())


def write_source(path: Path, text: str) -> None:
    """Write a file, whose text is from `text_of`, `read_source` or a program's string."""
    path.write_bytes(bytes_of(text))
