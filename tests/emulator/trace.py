"""Record what each wave of a run did, and check a changed kernel against it, independently.

`record` runs a launch and notes, for every wave, the instructions it executed and the LDS bytes it
touched. `early_uses` and `conflicts` then replay that record against a program whose waits or
barriers differ: which registers would be used with their load in flight, and which LDS bytes two
waves would access without any order. Both are derived from the record alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from cupygemm.emulator.isa.instruction import APERTURE_SHARED, M0, Instruction
from cupygemm.emulator.programs.native_program import NativeProgram
from cupygemm.emulator.programs.program import Program
from cupygemm.emulator.waves.entry import Entry
from cupygemm.emulator.waves.state import Group
from tests.emulator.wait_analysis import Node, State, families, step, used_in_flight, waits_for


@dataclass(frozen=True)
class Access:
    """LDS dwords that one instruction of one wave accessed."""

    position: int
    words: frozenset[int]
    writes: bool
    atomic: bool
    by_load: bool


@dataclass
class Wave:
    """One wave's run."""

    workgroup: int
    steps: list[int] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)


def record(launch: Callable[[], Any]) -> list[Wave]:
    """Run `launch`, which must be one batch of workgroups, and return a record of each wave."""
    waves: dict[int, Wave] = {}
    decode = Program._decode

    def recording(program: Program, pc: int) -> Entry:
        entry = decode(program, pc)
        inner, inst = entry.step, entry.inst

        def step_and_note(group: Group) -> Any:
            touched = _lds_words(group, inst)
            for place, wave_id in enumerate(group.wave_ids.tolist()):
                wave = waves.setdefault(wave_id, Wave(int(group.workgroup[place])))
                if touched is not None and touched[place]:
                    wave.accesses.append(_access(len(wave.steps), touched[place], inst))
                wave.steps.append(pc)
            return inner(group)

        entry.step = step_and_note
        NativeProgram.leave_to_python(entry)
        entry.native_action = 0  # C does not get it back
        return entry

    with mock.patch.object(Program, "_decode", recording):
        launch()
    return [waves[wave_id] for wave_id in sorted(waves)]


def _access(position: int, words: frozenset[int], inst: Instruction) -> Access:
    name = inst.mnemonic
    by_load = bool(inst.fields.get("lds")) or "_load_lds_" in name
    atomic = inst.encoding in ("DS", "FLAT") and not re.search(
        r"read|write|load|store|append", name
    )
    return Access(
        position=position,
        words=words,
        writes=by_load or not re.search(r"read|load", name),
        atomic=atomic,
        by_load=by_load,
    )


def _lds_words(group: Group, inst: Instruction) -> list[frozenset[int]] | None:
    """Return the dwords of LDS that an instruction accesses, a set for each wave."""
    name = inst.mnemonic
    if inst.encoding == "DS":
        if re.search(r"permute|swizzle|nop|gws|append|consume|addtid", name):
            return None
        return [_words(starts, size) for starts, size in _ds_addresses(group, inst)]
    if inst.encoding == "FLAT":
        return _flat_words(group, inst)
    if inst.fields.get("lds") or "_load_lds_" in name:
        base = group.s(M0).astype(np.int64) + inst.fields["offset"]
        size = {"dwordx3": 12, "dwordx4": 16}.get(name.rpartition("_")[2], 4)
        starts = [base[i] + size * np.arange(int(group.mask[i].sum())) for i in range(group.count)]
        return [_words(start, size) for start in starts]
    return None


def _flat_words(group: Group, inst: Instruction) -> list[frozenset[int]]:
    """Return the dwords of the lanes whose flat address is in the LDS aperture."""
    address = inst.operand("addr")
    assert address is not None
    data = inst.operand("data") or inst.operand("vdst")
    narrow = re.search(r"byte|short", inst.mnemonic)
    size = (1 if narrow[0] == "byte" else 2) if narrow else 4 * data.count if data else 4
    if "cmpswap" in inst.mnemonic:  # two values for one place
        size //= 2
    place = group.v64(address.index) + np.uint64(inst.fields["offset"])
    shared = group.mask & (place >> np.uint64(32) == np.uint64(APERTURE_SHARED >> 32))
    low = (place & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return [_words(low[i, shared[i]], size) for i in range(group.count)]


def _ds_addresses(group: Group, inst: Instruction) -> Iterator[tuple[np.ndarray, int]]:
    name, fields = inst.mnemonic, inst.fields
    address = inst.operand("addr")
    assert address is not None
    width = re.search(r"(?:_[biuf]|b)(8|16|32|64|96|128)(?:_|$)", name)
    size = int(width[1]) // 8 if width else 4
    base = group.v(address.index).astype(np.int64)
    if re.search(r"read2|write2|wrxchg2", name):
        scale = size * (64 if "st64" in name else 1)
        offsets = [fields["offset0"] * scale, fields["offset1"] * scale]
    else:
        offsets = [fields["offset0"] | fields["offset1"] << 8]
    for i in range(group.count):
        lanes = base[i, group.mask[i]]
        yield np.concatenate([lanes + offset for offset in offsets]), size


def _words(starts: np.ndarray, size: int) -> frozenset[int]:
    first, last = starts // 4, (starts + size - 1) // 4
    return frozenset(
        int(w) for shift in range(-(-size // 4) + 1) for w in (first + shift)[first + shift <= last]
    )


# -- replays ---------------------------------------------------------------------------------------


def early_uses(waves: list[Wave], nodes: dict[int, Node]) -> set[tuple[int, str]]:
    """Return the places and the registers that a wave on the recorded path uses too early."""
    found: set[tuple[int, str]] = set()
    for steps in {tuple(wave.steps) for wave in waves}:
        state: State = {}
        for pc in steps:
            inst = nodes[pc].inst
            found |= {(pc, name) for name in used_in_flight(inst, state)}
            state = step(inst, state)
    return found


@dataclass(frozen=True)
class Ordered:
    """An access, and the barriers that its wave had passed at its start and at its completion."""

    wave: int
    access: Access
    started: int
    finished: int


def conflicts(waves: list[Wave], nodes: dict[int, Node]) -> set[tuple[int, int]]:
    """Return pairs of program counters whose LDS accesses no wait and barrier would order.

    Two accesses of different waves are ordered if one was waited for before a barrier and the other
    came after that barrier.
    """
    found: set[tuple[int, int]] = set()
    for workgroup in {wave.workgroup for wave in waves}:
        members = [wave for wave in waves if wave.workgroup == workgroup]
        by_word: dict[int, set[Ordered]] = {}
        for number, wave in enumerate(members):
            for ordered in _order(number, wave, nodes):
                for word in ordered.access.words:
                    by_word.setdefault(word, set()).add(ordered)
        for accesses in set(map(frozenset, by_word.values())):
            found |= {
                (
                    members[one.wave].steps[one.access.position],
                    members[other.wave].steps[other.access.position],
                )
                for one in accesses
                if one.access.writes
                for other in accesses
                if _unordered(one, other)
            }
    return found


def _unordered(one: Ordered, other: Ordered) -> bool:
    if one.wave == other.wave or (one.access.atomic and other.access.atomic):
        return False
    return not (one.finished < other.started or other.finished < one.started)


def _order(number: int, wave: Wave, nodes: dict[int, Node]) -> Iterator[Ordered]:
    """Yield the accesses of a wave with the barriers around them."""
    accesses = {access.position: access for access in wave.accesses}
    passed = 0
    in_flight: list[Flight] = []
    state: State = {}
    for position, pc in enumerate(wave.steps):
        inst = nodes[pc].inst
        if inst.mnemonic == "s_waitcnt":
            done = [flight for flight in in_flight if flight.is_over(inst, state)]
            yield from (Ordered(number, f.access, f.started, passed) for f in done)
            in_flight = [flight for flight in in_flight if flight not in done]
        elif inst.mnemonic == "s_barrier":
            passed += 1
        for flight in in_flight:
            flight.younger += flight.counter in families(inst)
        if position in accesses:
            access = accesses[position]
            in_flight.append(Flight(access, passed, "vm" if access.by_load else "lgkm"))
        state = step(inst, state)
    yield from (Ordered(number, f.access, f.started, 1 << 30) for f in in_flight)


@dataclass
class Flight:
    """An access in flight and the number of younger operations of its counter."""

    access: Access
    started: int
    counter: str
    younger: int = 0

    def is_over(self, wait: Instruction, state: State) -> bool:
        """Whether an s_waitcnt waits for it, with `state` also in flight."""
        return waits_for(wait.fields["simm16"], self.counter, self.younger, state)
