"""Plain stores that no write-back of the L2 follows: workgroups on other XCDs may not see them.

    global_store_dword v[0:1], v2, off         the flag, without sc1
    ...                                        no buffer_wbl2 sc1 from here to the end

Each XCD of CDNA3 and CDNA4 has its own L2. A plain store may stay there until the launch
ends, and a workgroup on another XCD that waits for it may wait for ever. ``buffer_wbl2 sc1`` writes
the L2 back; the compiler emits it for ``__threadfence()`` and for a release at device scope.
A store with ``sc1``, such as an atomic or volatile one, leaves the L2 immediately. (LLVM's User
Guide for AMDGPU, memory model of gfx942.)

A store is reported if no wave of its workgroup has written back since, and either atomics order the
store before the load, or the code shows that no wave of the workgroup can write back from its
current instruction on. A function that is called might write back. On CDNA2, all workgroups share
one L2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.code_object.control_flow import Node, graph, predecessors
from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.targets import Target
from cupygemm.emulator.weak_cache import weak_cache

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Kernel
    from cupygemm.emulator.waves.state import Group

CHECK = "write_backs"
_FLAT, _MUBUF = 0b110111, 0b111000  # the highest 6 bits of an instruction, FLAT with GLOBAL
_SWAPPC, _SWAPPC_BITS = 0xBE80_1E00, 0xFF80_FF00  # s_swappc_b64, whatever its registers are
_CALLS = ("s_swappc", "s_call", "s_setpc")


def without_write_back(kernel: Kernel, target: Target) -> NDArray[np.uint8] | None:
    """Return a flag for each dword of the code: whether no write-back can follow it.

    None if stores need no write-back: the kernel has nothing by which workgroups communicate, or
    the target has one L2.
    """
    if target.num_xcds == 1 or not hasattr(kernel, "code_object"):  # or a single instruction
        return None
    return _without(kernel) if may_communicate(kernel) else None


def writes_back(inst: Instruction) -> bool:
    """Tell whether an instruction writes the L2 back, for the other XCDs of its device."""
    return inst.mnemonic == "buffer_wbl2" and bool(inst.fields["sc1"])


def write_back(group: Group) -> None:
    """Record that waves write the L2 back, with the stores of their workgroup so far.

    Only stores that were waited for, or that a barrier follows, are included.
    """
    state = group.state
    written = (
        state.units["machine"].arrays.get("written_back") if "machine" in state.units else None
    )
    if written is None:
        return
    ids = group.wave_ids
    mates = np.isin(state.workgroup, state.workgroup[ids])
    done = np.maximum(state.vm_waited, state.vm_passed)
    written[mates] = np.maximum(written, done)[mates]
    written[ids] = state.vm_issued[ids]


@weak_cache
def may_communicate(kernel: Kernel) -> bool:
    """Tell whether workgroups of a kernel may wait for each other.

    They cannot without an atomic, a load past the caches, or a call that may contain one.
    """
    if not hasattr(kernel, "code_object"):  # a single instruction, outside a kernel
        return True
    image = kernel.code_object.image
    size = kernel.code_bytes & ~3
    words = np.frombuffer(bytes(image[kernel.entry : kernel.entry + size]), "<u4")
    flat = (words >> 26 == _FLAT) & ((words >> 18 & 0x7F >= 0x40) | (words & 0x0201_0000 != 0))
    buffer = (words >> 26 == _MUBUF) & ((words >> 18 & 0x7F >= 0x40) | (words & 0x0000_C000 != 0))
    calls = words & _SWAPPC_BITS == _SWAPPC
    return bool((flat | buffer | calls).any())


@weak_cache
def _without(kernel: Kernel) -> NDArray[np.uint8]:
    flags = np.zeros(len(kernel.code_object.image) // 4 + 1, np.uint8)
    try:
        nodes = graph(kernel)
    except UnsupportedInstruction:
        return flags
    ends = [
        pc
        for pc, node in nodes.items()
        if writes_back(node.inst) or node.inst.mnemonic.startswith(_CALLS)
    ]
    places = np.fromiter(nodes.keys() - _before(nodes, ends), np.int64)
    flags[places // 4] = 1
    return flags


def _before(nodes: dict[int, Node], ends: list[int]) -> set[int]:
    """Return the instructions from which any of `ends` can be reached."""
    before, found = predecessors(nodes), set(ends)
    while ends:
        new = set(before[ends.pop()]) - found
        found |= new
        ends += new
    return found
