"""Build a `KernelProfile` from the counts of a launch's recorder."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cupygemm.emulator.code_object.inlining import Line
from cupygemm.emulator.code_object.line_table import line_table
from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.profiling.classify import category, matrix_flop, vector_flop
from cupygemm.emulator.profiling.counts import GlobalCounts, LdsCounts
from cupygemm.emulator.profiling.kernel_profile import InstructionProfile, KernelProfile
from cupygemm.emulator.profiling.timing.model import model
from cupygemm.emulator.profiling.timing.workload import build_workload
from cupygemm.emulator.units.lds.polling import polls_of
from cupygemm.emulator.weak_cache import weak_cache

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import CodeObject, Kernel
    from cupygemm.emulator.profiling.caches import MemoryTraffic, Traffic
    from cupygemm.emulator.profiling.counts import Wait
    from cupygemm.emulator.profiling.occupancy import Occupancy
    from cupygemm.emulator.profiling.timing.trace import Trace
    from cupygemm.emulator.targets import Target
    from cupygemm.emulator.waves.dispatch import Dispatch


@dataclass(frozen=True)
class _StaticInstruction:
    """The properties of an instruction that do not depend on its execution."""

    inst: Instruction
    text: str
    category: str
    source: Line | None
    call_sites: tuple[Line, ...]
    quote: str
    flop: int  # of a wave for an MFMA, else of a lane
    flop_type: str


@dataclass(frozen=True, kw_only=True)
class LaunchCounts:
    """The counts of a recorder during one launch.

    Attributes
    ----------
    dispatch : Dispatch
    target : Target
    executions, lanes : dict of int to int
        Waves that executed each instruction, and its active lanes, by program counter.
    lane_bytes : dict of int to int
        Bytes of LDS that a lane of each DS instruction accesses, by program counter.
    conflicts, lines : dict
        The fields of `LaunchStats`, by byte offset from the kernel's entry.
    traffic : dict of int to Traffic
        By program counter.
    memory : MemoryTraffic
    waits : dict of (int, str) to Wait
        By program counter and counter.
    occupancy : Occupancy
    trace : Trace
    """

    dispatch: Dispatch
    target: Target
    executions: dict[int, int]
    lanes: dict[int, int]
    lane_bytes: dict[int, int]
    conflicts: dict[int, Any]
    lines: dict[int, Any]
    traffic: dict[int, Traffic]
    memory: MemoryTraffic
    waits: dict[tuple[int, str], Wait]
    occupancy: Occupancy
    trace: Trace


def build_profile(found: LaunchCounts) -> KernelProfile:
    """Return the profile of a launch."""
    dispatch, target, kernel = found.dispatch, found.target, found.dispatch.kernel
    described, decoded = _known(kernel.code_object)
    instructions, code, polls = [], [], polls_of(kernel)
    for pc in sorted(_places(kernel) | found.executions.keys()):
        static = described.get(pc)
        if static is None:
            static = described[pc] = _describe(kernel.code_object, pc, target.name)
            decoded[pc] = static.inst
        code.append(f"{pc - kernel.entry} {static.inst.raw:x} ")
        instructions.append(_instruction(found, static, pc, is_poll=pc in polls))
    memory = found.memory
    profile = KernelProfile(
        kernel=kernel.name,
        target=target.name,
        launches=1,
        grid=dispatch.grid,
        block=dispatch.block,
        workgroups=dispatch.num_workgroups,
        sampled=0 if dispatch.sample is None else len(dispatch.sample),
        waves=dispatch.num_workgroups * dispatch.waves_per_workgroup,
        registers={
            "vgpr": kernel.num_vgpr,
            "agpr": kernel.num_agpr,
            "sgpr": kernel.num_sgpr,
            "allocated": kernel.descriptor.num_registers,
            "scratch": dispatch.scratch_bytes,
        },
        lds_bytes=dispatch.lds_bytes,
        occupancy=found.occupancy,
        code=hashlib.sha256("".join(code).encode()).hexdigest()[:16],
        max_threads=kernel.max_threads,
        instructions=tuple(instructions),
        fabric_written=memory.fabric_written,
        hbm_read=memory.hbm_read,
        hbm_written=memory.hbm_written,
    )
    workload = build_workload(
        found.trace,
        target.name,
        instructions=decoded,
        entry=kernel.entry,
        lane_bytes=found.lane_bytes,
        workgroups=dispatch.num_workgroups,
        traffic=profile.global_memory.traffic,
        memory=memory,
        resident=found.trace.workgroups,
    )
    return profile if workload is None else profile.timed(*model(workload))


def _instruction(
    found: LaunchCounts, static: _StaticInstruction, pc: int, *, is_poll: bool
) -> InstructionProfile:
    """Return the counts of one instruction."""
    offset = pc - found.dispatch.kernel.entry
    executions, lanes = found.executions.get(pc, 0), found.lanes.get(pc, 0)
    return InstructionProfile(
        offset=offset,
        text=static.text,
        category=static.category,
        source=static.source,
        call_sites=static.call_sites,
        quote=static.quote,
        executions=executions,
        lanes=lanes,
        flop=static.flop * (executions if static.category == "MFMA" else lanes),
        flop_type=static.flop_type,
        global_memory=_global(static.inst, found.lines.get(offset), found.traffic.get(pc)),
        lds=_lds(
            _lanes_in_lds(static.inst, lanes, found.lines.get(offset))
            * found.lane_bytes.get(pc, 0),
            found.conflicts.get(offset),
            found.target.lds_banks,
        ),
        is_poll=is_poll,
        waits=tuple(
            found.waits[key] for key in ((pc, "vmcnt"), (pc, "lgkmcnt")) if key in found.waits
        ),
    )


@weak_cache
def _known(
    _code_object: CodeObject,
) -> tuple[dict[int, _StaticInstruction], dict[int, Instruction]]:
    """Return tables for the instructions of a code object, by program counter."""
    return {}, {}


@weak_cache
def _places(kernel: Kernel) -> set[int]:
    """Return the program counters of the instructions of a kernel's function."""
    code_object, places = kernel.code_object, set[int]()
    pc, end = kernel.entry, kernel.entry + kernel.code_bytes
    while pc < end:
        try:
            size = decode(code_object.image, pc, code_object.target_name).size
        except UnsupportedInstruction:
            break  # data after the code
        places.add(pc)
        pc += size
    return places


def _describe(code_object: CodeObject, pc: int, target: str) -> _StaticInstruction:
    inst = decode(code_object.image, pc, target)
    kind = category(inst)
    source = line_table(code_object).find(pc)
    flop, flop_type = matrix_flop(inst) if kind == "MFMA" else vector_flop(inst)
    return _StaticInstruction(
        inst=inst,
        text=inst.text,
        category=kind,
        source=source,
        call_sites=line_table(code_object).call_sites(pc),
        quote="" if source is None else line_table(code_object).quote(source),
        flop=flop,
        flop_type=flop_type,
    )


def _lanes_in_lds(inst: Instruction, lanes: int, lines: tuple[int, ...] | None) -> int:
    """Return the lanes that accessed LDS; for FLAT, those that did not reach global memory."""
    return lanes - lines[1] if inst.encoding == "FLAT" and lines else lanes


def _lds(size: int, conflicts: tuple[int, int, int] | None, banks: int) -> LdsCounts | None:
    if conflicts is None:
        return None
    instructions, cycles, lost = conflicts
    return LdsCounts(
        instructions=instructions,
        bytes=size,
        cycles=cycles,
        conflict_cycles=lost,
        capacity=4 * banks * cycles,
    )


def _global(
    inst: Instruction, lines: tuple[int, ...] | None, traffic: Traffic | None
) -> GlobalCounts | None:
    """Return the counts of a vector memory instruction; None if it accessed no global memory."""
    if lines is None or traffic is None or not lines[1]:
        return None
    instructions, lanes, size, lines_64, lines_128 = lines
    atomic, store = "_atomic_" in inst.mnemonic, "_store_" in inst.mnemonic
    return GlobalCounts(
        instructions=instructions,
        lanes=lanes,
        bytes_read=0 if atomic or store else size,
        bytes_written=size if store and not atomic else 0,
        bytes_atomic=size if atomic else 0,
        lines_64=lines_64,
        lines_128=lines_128,
        traffic=traffic,
    )
