"""What the run loop needs to know about an instruction, independent of its place in a program.

Kernels share many instructions, so these facts are computed once for each.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from cupygemm.emulator.definedness.lanes import looked_at
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.targets import TARGETS
from cupygemm.emulator.units.native import alu
from cupygemm.emulator.units.native.form import NativeAlu
from cupygemm.emulator.units.scalar.scc import reads_scc, writes_scc
from cupygemm.emulator.waves.entry import Counter, counter_of
from cupygemm.emulator.waves.marks import SCC

VECTOR_WORDS, SCALAR_WORDS = 8, 3
_ALU = ("SOP", "VOP")  # encodings
_CONTROLS = {"s_waitcnt": "wait", "s_barrier": "barrier", "s_endpgm": "end"}
_WITHOUT_STEP = tuple(_CONTROLS.values())


class Facts(NamedTuple):
    """Facts about an instruction; fields not described here are as in `Entry`.

    Attributes
    ----------
    form : NativeAlu or None
        The native form of an ALU instruction.
    binds : {"now", "later", "never"}
        When its step is resolved: later if C executes it and resolving it cannot fail.
    masks : bytes
        The registers that it reads and writes, as in ``struct instruction``.
    """

    control: str
    form: NativeAlu | None
    binds: str
    counter: Counter | None
    vector_uses: int
    scalar_uses: int
    is_vector: bool
    is_relative: bool
    scc_reads: int
    scc_writes: int
    looked_at: int
    masks: bytes


@functools.lru_cache(maxsize=1 << 16)
def facts_of(inst: Instruction, target: str) -> Facts:
    """Return the facts of an instruction on a target."""
    control, form, binds = control_of(inst.mnemonic), None, "now"
    if not control and inst.encoding.startswith(_ALU):
        form = alu.bind(inst, TARGETS[target])
    if form is not None and not any(op.kind == "special" for op in inst.src):
        binds = "later"
    elif control in _WITHOUT_STEP:
        binds = "never"
    scc_reads, scc_writes = reads_scc(inst) << SCC, writes_scc(inst) << SCC
    scalar_reads = inst.scalar_reads | scc_reads
    scalar_writes = inst.scalar_writes | scc_writes
    masks = (
        inst.vector_reads.to_bytes(8 * VECTOR_WORDS, "little"),
        inst.vector_writes.to_bytes(8 * VECTOR_WORDS, "little"),
        scalar_reads.to_bytes(8 * SCALAR_WORDS, "little"),
        scalar_writes.to_bytes(8 * SCALAR_WORDS, "little"),
    )
    return Facts(
        control=control,
        form=form,
        binds=binds,
        counter=counter_of(inst),
        vector_uses=inst.vector_reads | inst.vector_writes,
        scalar_uses=scalar_reads | scalar_writes,
        is_vector=not inst.encoding.startswith("S") or inst.encoding == "SCRATCH",
        is_relative=inst.mnemonic.startswith("s_movrel"),
        scc_reads=scc_reads,
        scc_writes=scc_writes,
        looked_at=looked_at(inst),
        masks=b"".join(masks),
    )


@functools.cache
def control_of(name: str) -> str:
    """Return the role of an instruction in the run loop, see `Entry.control`."""
    if name in _CONTROLS:
        return _CONTROLS[name]
    if name.startswith(("s_branch", "s_cbranch", "s_setpc", "s_swappc", "s_call")):
        return "branch"
    return "mode" if name.startswith(("s_setvskip", "s_setreg")) else ""
