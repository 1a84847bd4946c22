"""The text of a program in its code object, so that reports quote the line that is at fault.

CuPy gives hiprtc a program as text, under the name of a temporary file. A section of the code
object, ``.cupygemm.source``, keeps the name and the text.
"""

from __future__ import annotations

import io
from pathlib import Path

from elftools.elf.elffile import ELFFile

SECTION = ".cupygemm.source"
_LONGEST = 100  # characters of a line that are quoted
_LARGEST = 1 << 22  # bytes of a file that is read for its lines


def assembly(name: str, source: str) -> str:
    """Return assembly that keeps a program.

    Parameters
    ----------
    name : str
        What the compiler calls it.
    source : str
    """
    text = f"{name}\0{source}".encode()
    pieces = (text[start : start + 64] for start in range(0, len(text), 64))
    lines = "".join(f"\t.byte {','.join(map(str, piece))}\n" for piece in pieces)
    return f'\t.section {SECTION},"",@progbits\n{lines}\t.text\n'


class Sources:
    """The lines of the files that a code object was compiled from.

    Parameters
    ----------
    elf : bytes
        The code object.
    """

    def __init__(self, elf: bytes) -> None:
        self._files: dict[str, list[str]] = {}
        section = ELFFile(io.BytesIO(elf)).get_section_by_name(SECTION) if elf else None
        if section is not None:
            name, _, text = section.data().decode(errors="replace").partition("\0")
            self._files[name] = text.splitlines()

    def lines(self, file: str) -> list[str]:
        """Return the lines of a file; none if they are not known."""
        kept = self._files.get(file)
        if kept is None:
            kept = self._files[file] = _lines(Path(file))
        return kept

    def quote(self, file: str, line: int) -> str:
        """Return a line without its margins; "" if it is not known.

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
            return path.read_text(errors="replace").splitlines()
    except OSError:
        pass
    return []
