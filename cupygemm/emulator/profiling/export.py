"""Convert a profile to numbers, strings, lists and dictionaries, for ``--json``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cupygemm.emulator.profiling.counts import GlobalCounts, LdsCounts, Wait
from cupygemm.emulator.profiling.kernel_counts import (
    InstructionProfile,
    KernelCounts,
    mix,
    sum_cycles,
    sum_waits,
)
from cupygemm.emulator.profiling.modelled import timing_to_dict
from cupygemm.emulator.profiling.verdict import Verdict, verdict


def kernel_to_dict(profile: KernelCounts) -> dict[str, Any]:
    """Return a kernel's profile; rates are fractions of 1, or None if undefined."""
    return {
        "kernel": profile.kernel,
        "target": profile.target,
        "kinds": {
            "computed": ["registers", "lds_bytes", "occupancy"],
            "modelled": ["modelled", "modelled_cycles"],
            "emulated": ["the rest"],
        },
        "verdict": verdict_to_dict(verdict(profile)),
        "launches": profile.launches,
        "grid": list(profile.grid),
        "block": list(profile.block),
        "workgroups": profile.workgroups,
        "sampled_workgroups": profile.sampled or None,
        "waves": profile.waves,
        "registers": dict(profile.registers),
        "lds_bytes": profile.lds_bytes,
        "occupancy": asdict(profile.occupancy),
        "mix": profile.mix,
        "matrix_flop": profile.matrix_flop,
        "vector_flop": profile.vector_flop,
        "flop_per_byte": profile.flop_per_byte,
        "global_memory": _global(profile.global_memory),
        "fabric_written": profile.fabric_written,
        "hbm_read": profile.hbm_read,
        "hbm_written": profile.hbm_written,
        "lds": _lds(profile.lds),
        "waits": [_wait(wait) for wait in profile.waits],
        "modelled": timing_to_dict(profile.timing),
        "instructions": [_instruction(inst) for inst in profile.instructions],
        "source_lines": [
            {"file": file, "line": line, **_line(instructions)}
            for (file, line), instructions in profile.by_source().items()
        ],
    }


def verdict_to_dict(found: Verdict) -> dict[str, Any]:
    """Return a verdict for JSON."""
    return asdict(found) | {"causes": [asdict(cause) for cause in found.causes]}


def _global(counts: GlobalCounts) -> dict[str, Any]:
    return asdict(counts) | {
        "coalescing": counts.coalescing,
        "l1_hit_rate": counts.l1_hit_rate,
        "l2_hit_rate": counts.l2_hit_rate,
    }


def _lds(counts: LdsCounts) -> dict[str, Any]:
    return asdict(counts) | {
        "conflict_rate": counts.conflict_rate,
        "utilisation": counts.utilisation,
    }


def _wait(wait: Wait) -> dict[str, Any]:
    return asdict(wait) | {"operations": {str(at): n for at, n in wait.operations.items()}}


def _instruction(inst: InstructionProfile) -> dict[str, Any]:
    result: dict[str, Any] = {
        "offset": inst.offset,
        "text": inst.text,
        "category": inst.category,
        "executions": inst.executions,
    }
    if inst.source is not None:
        result["source"] = list(inst.source)
    if inst.call_sites:
        result["call_sites"] = [list(site) for site in inst.call_sites]
    if inst.lanes:
        result["lanes"] = inst.lanes
    if inst.flop:
        result |= {"flop": inst.flop, "flop_type": inst.flop_type}
    if inst.global_memory is not None:
        result["global_memory"] = _global(inst.global_memory)
    if inst.lds is not None:
        result["lds"] = _lds(inst.lds)
    if inst.waits:
        result["waits"] = [_wait(wait) for wait in inst.waits]
    if inst.modelled_cycles:
        result["modelled_cycles"] = dict(inst.modelled_cycles)
    return result


def _line(instructions: list[InstructionProfile]) -> dict[str, Any]:
    """Return the sums over the instructions of a source line."""
    memory, lds = GlobalCounts(), LdsCounts()
    for inst in instructions:
        if inst.global_memory is not None:
            memory.add(inst.global_memory)
        if inst.lds is not None:
            lds.add(inst.lds)
    return {
        "executions": sum(inst.executions for inst in instructions),
        "mix": {name: count for name, count in mix(instructions).items() if count},
        "flop": sum(inst.flop for inst in instructions),
        "global_memory": _global(memory) if memory.instructions else None,
        "lds": _lds(lds) if lds.instructions else None,
        "waits": [
            _wait(wait) for wait in sum_waits(w for inst in instructions for w in inst.waits)
        ],
        "modelled_cycles": sum_cycles(inst.modelled_cycles for inst in instructions),
    }
