"""Loads that may find an old line in the vector L1, because nothing has invalidated it.

    global_load_dword v1, v0, s[0:1]           the line comes into this compute unit's L1
    ...                                        another workgroup stores to it; atomics say so
    global_load_dword v1, v0, s[0:1]           may find the old line: no buffer_inv sc1 before

An L1 does not see stores by other compute units. ``buffer_inv sc1`` (CDNA2: ``buffer_wbinvl1``)
empties it; the compiler emits it for ``__threadfence()`` and for an acquire at device scope.
Loads with ``sc1``, such as atomic and volatile ones, do not look for a line there. (LLVM's
User Guide for AMDGPU, memory models of gfx90a and gfx942.)

A load is reported if atomics order another workgroup's plain store before it, and the same
workgroup has loaded from the same 16 bytes before that store and has not invalidated the L1 since
(native/global_order.h). Data that an atomic has written are exempt: a loop around atomicCAS may
begin with an old value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupygemm.emulator.isa.instruction import Instruction

if TYPE_CHECKING:
    from cupygemm.emulator.waves.state import Group

CHECK = "invalidations"


def invalidates(inst: Instruction) -> bool:
    """Tell whether an instruction empties the vector L1 of its compute unit."""
    return inst.mnemonic == "buffer_inv" or inst.mnemonic.startswith("buffer_wbinvl1")


def invalidate(group: Group) -> None:
    """Note when waves empty their workgroups' L1."""
    state = group.state
    arrays = state.units["machine"].arrays if "machine" in state.units else {}
    times = arrays.get("invalidated")
    if times is not None:
        times[state.workgroup[group.wave_ids]] = arrays["clock"][0]
