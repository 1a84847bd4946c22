"""Make a `KernelProfile` of what a launch's recorder counted."""

from __future__ import annotations

import hashlib
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa import Instruction, decode
from cupygemm.emulator.profiling.classify import category, matrix_flop, vector_flop
from cupygemm.emulator.profiling.counts import GlobalCounts, LdsCounts
from cupygemm.emulator.profiling.record import InstructionProfile, KernelProfile
from cupygemm.emulator.profiling.source import Line, line_table
from cupygemm.emulator.profiling.timing.model import model
from cupygemm.emulator.profiling.timing.workload import build_workload

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import CodeObject, Kernel
    from cupygemm.emulator.profiling.caches import Traffic
    from cupygemm.emulator.profiling.recorder import Recorder


@dataclass(frozen=True)
class _Fixed:
    """What is known of an instruction without running it."""

    inst: Instruction
    text: str
    category: str
    source: Line | None
    flop: int  # of a wave (MFMA) or of a lane
    flop_type: str


_fixed: weakref.WeakKeyDictionary[CodeObject, dict[int, _Fixed]] = weakref.WeakKeyDictionary()


def build(
    recorder: Recorder,
    counts: dict[int, int],
    conflicts: dict[int, Any],
    lines: dict[int, Any],
    traffic: dict[int, Traffic],
) -> KernelProfile:
    """Return the profile of a launch; see `Recorder.finish`."""
    kernel, target, dispatch = recorder.kernel, recorder.target, recorder.dispatch
    known = _fixed.setdefault(kernel.code_object, {})
    lane_bytes = recorder.program.lane_bytes
    instructions, code = [], hashlib.sha256()
    for pc in _places(kernel, counts):
        fixed = known.get(pc)
        if fixed is None:
            fixed = known[pc] = _describe(kernel.code_object, pc, target.name)
        offset = pc - kernel.entry
        code.update(f"{offset} {fixed.inst.raw:x} ".encode())
        executions, lanes = counts.get(pc, 0), recorder.lanes.get(pc, 0)
        instructions.append(
            InstructionProfile(
                offset=offset,
                text=fixed.text,
                category=fixed.category,
                source=fixed.source,
                executions=executions,
                lanes=lanes,
                flop=fixed.flop * (executions if fixed.category == "MFMA" else lanes),
                flop_type=fixed.flop_type,
                global_memory=_global(fixed.inst, lines.get(offset), traffic.get(pc)),
                lds=_lds(lanes * lane_bytes.get(pc, 0), conflicts.get(offset), target.lds_banks),
                waits=tuple(wait for (at, _), wait in recorder.waits.items() if at == pc),
            )
        )
    fabric_written, hbm_read, hbm_written = recorder.caches.finish()
    workgroups = dispatch.num_workgroups
    profile = KernelProfile(
        kernel=kernel.name,
        target=target.name,
        launches=1,
        grid=dispatch.grid,
        block=dispatch.block,
        workgroups=workgroups,
        waves=workgroups * dispatch.waves_per_workgroup,
        registers={
            "vgpr": kernel.num_vgpr,
            "agpr": kernel.num_agpr,
            "sgpr": kernel.num_sgpr,
            "allocated": kernel.descriptor.num_registers,
            "scratch": dispatch.scratch_bytes,
        },
        lds_bytes=dispatch.lds_bytes,
        occupancy=recorder.occupancy,
        code=code.hexdigest()[:16],
        instructions=tuple(instructions),
        fabric_written=fabric_written,
        hbm_read=hbm_read,
        hbm_written=hbm_written,
    )
    workload = build_workload(
        recorder.trace, target.name, kernel.entry, {pc: fixed.inst for pc, fixed in known.items()},
        lane_bytes, workgroups, profile.global_memory, fabric_written, (hbm_read, hbm_written),
    )  # fmt: skip
    return profile if workload is None else profile.timed(*model(workload))


def _places(kernel: Kernel, counts: dict[int, int]) -> list[int]:
    """Return where the instructions are: those executed, and the rest of the kernel's function."""
    code_object, places = kernel.code_object, set(counts)
    pc, end = kernel.entry, kernel.entry + kernel.code_bytes
    while pc < end:
        try:
            size = decode(code_object.image, pc, code_object.target_name).size
        except UnsupportedInstruction:
            break  # data after the code
        places.add(pc)
        pc += size
    return sorted(places)


def _describe(code_object: CodeObject, pc: int, target: str) -> _Fixed:
    inst = decode(code_object.image, pc, target)
    kind = category(inst)
    flop, flop_type = matrix_flop(inst) if kind == "MFMA" else vector_flop(inst)
    return _Fixed(inst, inst.text, kind, line_table(code_object).find(pc), flop, flop_type)


def _lds(size: int, conflicts: tuple[int, int, int] | None, banks: int) -> LdsCounts | None:
    if conflicts is None:
        return None
    instructions, cycles, lost = conflicts
    return LdsCounts(instructions, size, cycles, lost, 4 * banks * cycles)


def _global(
    inst: Instruction, lines: tuple[int, ...] | None, traffic: Traffic | None
) -> GlobalCounts | None:
    """Return the counts of a vector memory instruction; None if it reached no global memory."""
    if lines is None or traffic is None or not lines[1]:
        return None
    instructions, lanes, size, lines_64, lines_128 = lines
    kind = "atomic" if "_atomic_" in inst.mnemonic else (
        "written" if "_store_" in inst.mnemonic else "read"
    )  # fmt: skip
    counts = GlobalCounts(
        instructions, lanes, lines_64=lines_64, lines_128=lines_128, traffic=traffic
    )
    setattr(counts, f"bytes_{kind}", size)
    return counts
