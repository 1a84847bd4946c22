"""Instructions that wait for a flag in LDS: the reads and atomics of loops that do nothing else.

    loop:  ds_read_b32 v1, v2     the address stays
           s_waitcnt lgkmcnt(0)
           v_cmp_gt_i32 vcc, s6, v1
           s_cbranch_vccnz loop   the value decides

The read may be a FLAT one whose address is in LDS: compilers emit it for generic pointers. Such a
loop ends only when another wave has written to LDS, so all that the writing wave did before is
ordered before what follows (native/lds_flags.h). A loop that stores, waits at a barrier or advances
through LDS does other work, and a value on which no branch depends is data. Compilers test the flag
once before the loop: that read waits for it, too. Loops of functions that the kernel may call are
included. wait_conditions.py finds the values for which the loops wait, and atomic_loads.py the
reads outside such loops that are atomic in the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cupygemm.emulator.code_object.control_flow import Node, graph, predecessors
from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.units.lds.atomic_loads import atomic_loads
from cupygemm.emulator.units.lds.wait_conditions import UNKNOWN, condition
from cupygemm.emulator.units.scalar.scc import reads_scc, writes_scc
from cupygemm.emulator.waves.reports import call_sites, source_line
from cupygemm.emulator.weak_cache import weak_cache

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Kernel

_LONGEST = 64  # dwords of a loop that does nothing but wait
_AROUND = 24  # instructions between the first test of a flag and the loop, or its branch
_SOPP, _BRANCHES = 0x17F, (2, 4, 5, 6, 7, 8, 9)  # s_branch, and s_cbranch by scc, vcc and exec
_OTHER_WORK = (
    "ds_",
    "s_barrier",
    "s_endpgm",
    "s_setpc",
    "s_swappc",
    "s_call",
    "v_mfma",
    "v_smfmac",
)
_READS = (
    *("ds_read_b32", "ds_read_b64", "ds_read_u", "ds_read_i"),
    *("flat_load_dword", "flat_load_u", "flat_load_s"),
)
_OFFSETS = ("offset0", "offset1", "offset")
_DS, _FLAT = 0b110110, 0b110111  # the highest 6 bits of an instruction
# DS atomics that return: of 32 and 64 bits, of float64, of packed halves, ds_consume, ds_append.
_RETURN = (*range(0x20, 0x36), *range(0x60, 0x75), 0x7C, 0x7E, 0xB7, 0xB8, 0xBD, 0xBE)
_SWAPPC, _SWAPPC_BITS = 0xBE80_1E00, 0xFF80_FF00  # s_swappc_b64, whatever its registers are
_EXEC, _VCC, _SCC = 3 << 126, 3 << 106, 1 << 128


@weak_cache
def polls_of(kernel: Kernel) -> Mapping[int, int]:
    """Return the program counters of the instructions that wait for flags in LDS, in order.

    Each has the condition under which it goes on waiting, `UNKNOWN` if that is not known.
    """
    if not hasattr(kernel, "code_object"):  # a single instruction, outside a kernel
        return {}
    code_object = kernel.code_object
    entries = {each.entry for each in code_object.kernels.values()}
    polls = _polls_of_function(kernel, kernel.entry, kernel.code_bytes & ~3)
    for start, size, _ in code_object.functions:
        if start not in entries:
            polls |= _polls_of_function(kernel, start, size & ~3)
    if counts_in_lds(kernel):  # what an atomic returns may tell a wave more than its waits
        polls = dict.fromkeys(polls, UNKNOWN)
    polls |= dict.fromkeys(atomic_loads(kernel) - polls.keys(), UNKNOWN)
    return dict(sorted(polls.items()))


@weak_cache
def counts_in_lds(kernel: Kernel) -> bool:
    """Tell whether waves may learn from an atomic in LDS which others have come before.

    Only an atomic that returns the old value tells a wave, as with ``atomicAdd(&count, 1) == 3``.
    A FLAT atomic may be one, and so may one in a function that is called.
    """
    if not hasattr(kernel, "code_object"):  # a single instruction, outside a kernel
        return True
    image, size = kernel.code_object.image, kernel.code_bytes & ~3
    words = np.frombuffer(bytes(image[kernel.entry : kernel.entry + size]), "<u4")
    kind, code = words >> 26, words >> 17 & 0xFF
    lds = (kind == _DS) & np.isin(code, _RETURN)
    flat = (kind == _FLAT) & (words >> 14 & 3 == 0) & (words >> 18 & 0x7F >= 0x40)
    calls = words & _SWAPPC_BITS == _SWAPPC
    return bool((lds | flat | calls).any())


def _polls_of_function(kernel: Kernel, start: int, size: int) -> dict[int, int]:
    loops: dict[int, tuple[dict[int, Instruction], list[int]]] = {}
    for head, code in _short_loops(kernel, start, size):
        waiting = _waiting_in(code)
        if waiting:
            loops[head] = code, waiting
    polls = {pc: UNKNOWN for _, waiting in loops.values() for pc in waiting}
    if not polls:
        return polls
    try:
        nodes = graph(kernel, start)
    except UnsupportedInstruction:
        return polls
    before = predecessors(nodes)
    loops = {head: found for head, found in loops.items() if _is_loop(nodes, head, found[0])}
    polls = {pc: UNKNOWN for _, waiting in loops.values() for pc in waiting}
    for head, (code, waiting) in loops.items():
        if len(waiting) == 1:
            polls[waiting[0]] = condition(nodes, list(code), waiting[0], frozenset(code))
        for pc in _first_tests(kernel, nodes, before, head, waiting):
            order = _straight(nodes, pc)
            goes_on = {goal for goal in nodes[order[-1]].successors if _leads_to(nodes, goal, head)}
            polls[pc] = polls.get(pc) or condition(nodes, order, pc, frozenset(goes_on))
    return polls


def _is_loop(nodes: Mapping[int, Node], head: int, code: Mapping[int, Instruction]) -> bool:
    """Return whether the code after a branch's goal leads back to the branch.

    Compilers also move blocks, so that a branch back may leave a loop or begin another path.
    """
    seen: set[int] = set()
    edge = [head]
    while edge:
        pc = edge.pop()
        if pc in code and pc in nodes and pc not in seen:
            seen.add(pc)
            edge += nodes[pc].successors
    return max(code) in seen


def _leads_to(nodes: Mapping[int, Node], pc: int, goal: int) -> bool:
    """Return whether a few instructions without a branch lead from one place to another."""
    for _ in range(_AROUND):
        if pc == goal:
            return True
        if len(nodes[pc].successors) != 1:
            return False
        (pc,) = nodes[pc].successors
    return False


def _short_loops(
    kernel: Kernel, start: int, size: int
) -> Iterator[tuple[int, dict[int, Instruction]]]:
    """Yield the heads of the loops that may do nothing but wait, and their code."""
    image, target = kernel.code_object.image, kernel.code_object.target_name
    words = np.frombuffer(bytes(image[start : start + size]), "<u4")
    distance = (words & 0xFFFF).astype(np.int16)
    branches = (words >> 23 == _SOPP) & np.isin(words >> 16 & 0x7F, _BRANCHES)
    for place in np.flatnonzero(branches & (distance < 0) & (distance >= -_LONGEST)):
        latch = start + 4 * int(place)
        head = pc = latch + 4 + 4 * int(distance[place])
        code: dict[int, Instruction] = {}
        try:
            while start <= pc <= latch:
                code[pc] = decode(image, pc, target)
                pc += code[pc].size
        except UnsupportedInstruction:
            continue
        if latch in code:
            yield head, code


def _waiting_in(code: dict[int, Instruction]) -> list[int]:
    """Return the places in a loop that read a flag in LDS; none if it does anything else."""
    waiting = [pc for pc, inst in code.items() if _may_wait(inst)]
    others = (inst for pc, inst in code.items() if pc not in waiting)
    if not waiting or any(_works(inst) for inst in others):
        return []
    order = list(code.values())
    places = {pc: place for place, pc in enumerate(code)}
    waiting = [pc for pc in waiting if _address_stays(order, places[pc])]
    return [pc for pc in waiting if _decides(order * 2, code[pc])]


def _may_wait(inst: Instruction) -> bool:
    if inst.mnemonic.startswith("flat_atomic_"):
        return inst.vector_writes != 0
    if inst.encoding == "DS" and "_rtn_" in inst.mnemonic:
        return True
    return inst.mnemonic.startswith(_READS) and "_tr_" not in inst.mnemonic


def _works(inst: Instruction) -> bool:
    """Return whether an instruction changes memory, or waits for something else."""
    return (
        inst.mnemonic.startswith(_OTHER_WORK)
        or "store" in inst.mnemonic
        or ("atomic" in inst.mnemonic)
    )


def _address_stays(order: Sequence[Instruction], place: int) -> bool:
    """Return whether the address of an LDS access is the same in each iteration."""
    address = order[place].operand("addr")
    return address is not None and all(
        _stays(order, place, 1 << address.index + i, 0) for i in range(address.count)
    )


def _stays(order: Sequence[Instruction], place: int, vector: int, scalar: int) -> bool:
    """Return whether a register has the same value before an instruction in each iteration."""
    writers = [
        i
        for i, inst in enumerate(order)
        if inst.vector_writes & vector or inst.scalar_writes & scalar
    ]
    if not writers:
        return True
    earlier = [i for i in writers if i < place]
    if not earlier:
        return False
    inst = order[earlier[-1]]
    if inst.encoding in ("DS", "SMEM", "FLAT", "GLOBAL", "SCRATCH", "MUBUF") or reads_scc(inst):
        return False
    vector, scalar = inst.vector_reads, inst.scalar_reads & ~_EXEC
    each = [(1 << i, 0) for i in range(vector.bit_length()) if vector >> i & 1]
    each += [(0, 1 << i) for i in range(scalar.bit_length()) if scalar >> i & 1]
    return all(_stays(order, earlier[-1], *bits) for bits in each)


def _decides(order: Sequence[Instruction], read: Instruction) -> bool:
    """Return whether a branch after a read depends on the value read."""
    vector, scalar = read.vector_writes, 0
    for inst in order:
        name = inst.mnemonic
        if name.startswith("s_cbranch"):
            tested = {"scc": _SCC, "vcc": _VCC, "exe": _EXEC}.get(name[10:13], 0)
            if scalar & tested:
                return True
        reads = inst.scalar_reads | (_SCC if reads_scc(inst) else 0)
        if inst.vector_reads & vector or reads & scalar:
            vector |= inst.vector_writes
            scalar |= inst.scalar_writes | (_SCC if writes_scc(inst) else 0)
    return False


def _first_tests(
    kernel: Kernel,
    nodes: dict[int, Node],
    before: dict[int, list[int]],
    head: int,
    reads: list[int],
) -> set[int]:
    """Return the reads before a loop that test what it waits for.

    They have the offset of a read of the loop, or its place in the source: the compiler may compute
    the address of one from that of the other.
    """
    lines = {_place(kernel, pc) for pc in reads} - {()}
    found: set[int] = set()
    seen, edge = {head}, [head]
    for _ in range(_AROUND):
        edge = [pc for goal in edge for pc in before.get(goal, ()) if pc not in seen]
        edge = [pc for pc in edge if not _works(nodes[pc].inst) or _may_wait(nodes[pc].inst)]
        seen.update(edge)
        for pc in edge:
            inst = nodes[pc].inst
            alike = any(
                inst.mnemonic == read.mnemonic
                and (
                    _place(kernel, pc) in lines
                    or all(inst.fields.get(name) == read.fields.get(name) for name in _OFFSETS)
                )
                for read in (nodes[place].inst for place in reads if place in nodes)
            )
            if alike and _decides([nodes[at].inst for at in _straight(nodes, pc)], inst):
                found.add(pc)
    return found


def _place(kernel: Kernel, pc: int) -> tuple[tuple[str, int], ...]:
    """Return the source line of an instruction and its call sites; none if it is not known."""
    line = source_line(kernel, pc)
    return (line, *call_sites(kernel, pc)) if line else ()


def _straight(nodes: Mapping[int, Node], pc: int) -> list[int]:
    """Return the instructions from one on, up to the next branch."""
    order: list[int] = []
    while len(order) < _AROUND:
        order.append(pc)
        if len(nodes[pc].successors) != 1:
            break
        (pc,) = nodes[pc].successors
    return order
