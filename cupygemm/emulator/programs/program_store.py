"""Keep decoded programs between launches, shared by all code objects of the same image.

Decoding and binding a kernel's instructions takes longer than executing a small launch. The result
depends on the image and the target alone, so a kernel that this process loads again is not decoded
again. The most recently used programs are kept, up to a number of instructions.
"""

from __future__ import annotations

from typing import NamedTuple

from cupygemm.emulator.programs.program import Program

# An instruction takes 1 to 3 KB; a large kernel has 3,000 of them.
MAX_INSTRUCTIONS = 1 << 17


class Key(NamedTuple):
    """The key of a decoded program: equal keys decode alike."""

    image: bytes
    target: str
    profiled: bool


class ProgramStore:
    """Programs that no launch uses now, in the order of their last use.

    A launch takes a program out, so that no two threads decode into the same one. A program that an
    interrupted launch does not give back is decoded again.
    """

    def __init__(self, max_instructions: int) -> None:
        self._max_instructions = max_instructions
        self._idle: dict[Key, Program] = {}

    def take(self, key: Key) -> Program | None:
        """Take a program out, or return None if it is not here."""
        return self._idle.pop(key, None)

    def give_back(self, key: Key, program: Program, *, grown: bool) -> None:
        """Put a program back; if it has `grown`, drop the least recently used ones."""
        self._idle[key] = program
        if not grown:
            return
        held = [(other, len(kept.entries)) for other, kept in list(self._idle.items())]
        excess = sum(size for _, size in held) - self._max_instructions
        for other, size in held:
            if excess <= 0 or other == key:
                return
            self._idle.pop(other, None)
            excess -= size


store = ProgramStore(MAX_INSTRUCTIONS)
