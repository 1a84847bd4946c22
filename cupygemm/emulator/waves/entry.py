"""One instruction of a program in the form that the run loop executes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.waves.state import Group

Counter = Literal["vm", "lds", "scalar", "flat"]
_UNCOUNTED = ("buffer_inv", "buffer_wbinvl1", "s_dcache", "ds_nop")
_COUNTERS: dict[str, Counter] = {  # by encoding
    "MUBUF": "vm",
    "MTBUF": "vm",
    "GLOBAL": "vm",
    "SCRATCH": "vm",
    "DS": "lds",
    "SMEM": "scalar",
    "FLAT": "flat",
}


def counter_of(inst: Instruction) -> Counter | None:
    """Return the wait counter that an instruction increments."""
    if inst.mnemonic.startswith(_UNCOUNTED):
        return None
    return _COUNTERS.get(inst.encoding)


def accesses_device(inst: Instruction) -> bool:
    """Return whether an instruction accesses device memory, as far as its encoding tells."""
    return counter_of(inst) not in (None, "lds")


@dataclass(slots=True, kw_only=True)
class Entry:
    """One instruction of a program, ready to execute."""

    pc: int
    inst: Instruction
    step: Callable[[Group], Any]
    next_pc: int
    control: str  # "", "wait", "barrier", "end", "branch" or "mode"
    counter: Counter | None
    vector_uses: int
    scalar_uses: int
    is_vector: bool  # an instruction that MODE.vskip skips
    is_relative: bool  # s_movrels or s_movreld
    scc_reads: int  # the bit of SCC where the instruction reads or writes it
    scc_writes: int
    ends_turn: bool = False  # other batches access device memory next, see native/turns.h
    looked_at: int = 0  # see definedness/lanes.py
    slot: int = -1  # of the scoreboard, for a load
    record: Any = None  # its native form
    native_action: int = 0  # what C does for it where it is not left to Python
    second_run: Any = None  # see definedness/native.py; not known as long as it is None

    @property
    def moves_registers(self) -> bool:
        """Whether M0 decides which registers this or later instructions access."""
        return self.inst.mnemonic.startswith(("s_set_gpr_idx_", "s_movrel", "s_setreg_"))
