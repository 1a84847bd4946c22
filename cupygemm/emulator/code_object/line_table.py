"""Source lines of instructions, and call sites of inlined ones, from DWARF (``-g``)."""

from __future__ import annotations

import bisect
import io
from itertools import dropwhile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from elftools.elf.elffile import ELFFile

from cupygemm.emulator.code_object.inlining import InlinedCode, Line, call_sites, inlined_code
from cupygemm.emulator.code_object.kept_source import Sources
from cupygemm.emulator.weak_cache import weak_cache

if TYPE_CHECKING:
    from cupygemm.emulator.code_object.loading import CodeObject

EMULATOR = Path(__file__).resolve().parents[1]
_OWN_HEADERS = tuple(
    f"{EMULATOR / name}/" for name in ("hip_headers", "small_library", "full_library")
)
OWN_FOLDER = "/cupygemm/emulator/"
"""The path of `EMULATOR` in debug information: a cached program may be of another installation."""


class LineTable:
    """The source line of each address, and the call sites of inlined code."""

    def __init__(self, elf: bytes) -> None:
        self._addresses: list[int] = []
        self._lines: list[Line | None] = []
        self._inlined: list[InlinedCode] = []
        self._columns: dict[int, tuple[Line, int] | None] = {}
        rows: dict[int, Line | None] = {}
        file = ELFFile(io.BytesIO(elf)) if elf else None
        if file is not None and file.has_dwarf_info():
            dwarf = file.get_dwarf_info()
            for unit in dwarf.iter_CUs():
                program = dwarf.line_program_for_CU(unit)
                if program is not None:
                    names = _collect(program, rows, self._columns)
                    self._inlined += inlined_code(dwarf, unit, names)
        self._sources = Sources(elf)
        for address in sorted(rows):
            self._addresses.append(address)
            self._lines.append(rows[address])
        self._places_of_columns = sorted(self._columns)

    def __bool__(self) -> bool:
        return bool(self._addresses)

    def find(self, pc: int) -> Line | None:
        """Return the file and line of the instruction at a virtual address, or None.

        If a function of the emulator's HIP headers was inlined there, such as ``atomicAdd``, it is
        the line of the call.
        """
        return next(iter(self._places(pc)), None)

    def text_around(self, pc: int) -> tuple[str, str] | None:
        """Return the text before and after an instruction's place in its line; None if not known.

        If the code belongs to several columns of a line, the text after is the whole line. Code
        that was inlined, or that belongs to several lines, has no column.
        """
        place = bisect.bisect_right(self._places_of_columns, pc) - 1
        found = self._columns[self._places_of_columns[place]] if place >= 0 else None
        if found is None or call_sites(self._inlined, pc):
            return None
        (file, line), column = found
        lines = self._sources.lines(file)
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        place = max(column - 1, 0)
        return text[:place], text[place:]

    def kernel_line(self, pc: int) -> str:
        """Return the text of the kernel's line to which an instruction belongs.

        It is "" if it is not known, or if a function of the same file was inlined there.
        """
        *inner, (file, line) = self._places(pc) or (("", 0),)
        if any(each == file for each, _ in inner):
            return ""
        lines = self._sources.lines(file)
        return lines[line - 1] if 0 < line <= len(lines) else ""

    def call_sites(self, pc: int) -> tuple[Line, ...]:
        """Return the call sites of that line's inlined code, the innermost first."""
        return self._places(pc)[1:]

    def quote(self, line: Line) -> str:
        """Return the text of a line; "" if it is not known."""
        return self._sources.quote(*line)

    def source_of(self, pc: int) -> str:
        """Return the text of the file with an instruction's line; "" if it is not known."""
        line = self.find(pc)
        return "\n".join(self._sources.lines(line[0])) if line else ""

    def _places(self, pc: int) -> tuple[Line, ...]:
        """Return the line of an instruction and its call sites.

        A macro that generates a function calls it on the function's own line, which is listed once.
        """
        place = bisect.bisect_right(self._addresses, pc) - 1
        line = self._lines[place] if place >= 0 else None
        if line is None:
            return ()
        found = tuple(dict.fromkeys((line, *call_sites(self._inlined, pc))))
        users = tuple(dropwhile(lambda place: place[0].startswith(_OWN_HEADERS), found))
        return users or found


@weak_cache
def line_table(code_object: CodeObject) -> LineTable:
    """Return the line table of a code object; it is read once."""
    return LineTable(code_object.elf)


def _collect(
    program: Any, rows: dict[int, Line | None], columns: dict[int, tuple[Line, int] | None]
) -> dict[int, str]:
    """Add the rows of a line program, and return the names of its files.

    A row applies up to the next one's address. `columns` gets None where the compiler
    states line 0, for several lines; column 0 means several columns of a line.
    """
    names = _file_names(program)
    for entry in program.get_entries():
        state = entry.state
        if state is None:
            continue
        if state.end_sequence:
            rows.setdefault(state.address, None)
            columns.setdefault(state.address, None)
            continue
        line = names.get(state.file, "?"), state.line
        columns[state.address] = (line, state.column) if state.line else None
        if state.line:  # line 0 is code without a line; the lines around it apply
            rows[state.address] = line
    return names


def _file_names(program: Any) -> dict[int, str]:
    """Return the path of each file number of a line program."""
    header = program.header
    directories = [_text(directory) for directory in header["include_directory"]]
    first, names = (0, {}) if header["version"] >= 5 else (1, {})
    if first:
        directories.insert(0, "")
    for number, entry in enumerate(header["file_entry"], first):
        folder = directories[entry.dir_index] if entry.dir_index < len(directories) else ""
        name = str(PurePosixPath(folder) / _text(entry.name))
        if name.startswith(OWN_FOLDER):
            name = str(EMULATOR / name.removeprefix(OWN_FOLDER))
        names[number] = name
    return names


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
