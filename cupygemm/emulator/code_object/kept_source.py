"""The text of a program in its code object, so that reports can quote a line.

CuPy gives hiprtc a program as text, under the name of a temporary file. A section of the code
object, ``.cupygemm.source``, keeps the name and the text.
"""

from __future__ import annotations

import io
import re
import struct
from pathlib import Path

from elftools.elf.elffile import ELFFile

from cupygemm._build.source_text import bytes_of

SECTION = ".cupygemm.source"
# ELF: the file's header, from the offset of the section headers on; and a section's header.
_TABLES, _TABLES_AT = struct.Struct("<QIHHHHHH"), 0x28
_SECTION, _OFFSET, _SIZE, _PROGBITS = struct.Struct("<IIQQQQIIQQ"), 4, 5, 1
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LONGEST = 100  # characters of a line that are quoted
_LARGEST = 1 << 22  # bytes of a file that is read for its lines


def with_source(code: bytes, name: str, source: str) -> bytes:
    """Return a code object that also holds a program's text, unless the text is very long.

    Parameters
    ----------
    code : bytes
        An ELF file of 64 bits.
    name : str
        The compiler's name for the program.
    source : str
    """
    text = bytes_of(f"{name}\0{source}")
    if len(text) > _LARGEST:
        return code
    start, *others, size, count, names_at = _TABLES.unpack_from(code, _TABLES_AT)
    headers = [list(_SECTION.unpack_from(code, start + size * i)) for i in range(count)]
    names = headers[names_at]
    old = code[names[_OFFSET] : names[_OFFSET] + names[_SIZE]]
    end = len(code) + len(text)
    headers.append([len(old), _PROGBITS, 0, 0, len(code), len(text), 0, 0, 1, 0])
    strings = old + SECTION.encode() + b"\0"
    names[_OFFSET], names[_SIZE] = end, len(strings)
    padding = bytes(-(end + len(strings)) % 8)
    place = end + len(strings) + len(padding)
    made = bytearray(code + text + strings + padding)
    made += b"".join(_SECTION.pack(*each) for each in headers)
    _TABLES.pack_into(made, _TABLES_AT, place, *others, size, count + 1, names_at)
    return bytes(made)


def program_of(elf: bytes) -> tuple[str, str]:
    """Return the name and the text of the program in a code object; "" if it has none."""
    section = ELFFile(io.BytesIO(elf)).get_section_by_name(SECTION) if elf else None
    if section is None:
        return "", ""
    name, _, text = section.data().decode(errors="replace").partition("\0")
    return name, text


def without_comments(source: str) -> str:
    """Return a program with blanks in place of comments, so that positions do not change."""
    return _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)


class Sources:
    """The lines of the files that a code object was compiled from.

    Parameters
    ----------
    elf : bytes
        The code object.
    """

    def __init__(self, elf: bytes) -> None:
        self._files: dict[str, list[str]] = {}
        name, text = program_of(elf)
        if name:
            self._files[name] = text.splitlines()

    def lines(self, file: str) -> list[str]:
        """Return the lines of a file; none if they are not known."""
        kept = self._files.get(file)
        if kept is None:
            kept = self._files[file] = _lines(Path(file))
        return kept

    def quote(self, file: str, line: int) -> str:
        """Return a line without surrounding blanks; "" if it is not known.

        Parameters
        ----------
        file : str
        line : int
            From 1.
        """
        kept = self.lines(file)
        text = kept[line - 1].strip() if 0 < line <= len(kept) else ""
        return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _lines(path: Path) -> list[str]:
    try:
        if path.is_absolute() and path.stat().st_size <= _LARGEST:
            return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        pass
    return []
