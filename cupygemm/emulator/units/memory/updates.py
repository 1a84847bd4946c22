"""Stores of a value loaded from the same address plus something: ``h[i] += 1`` without an atomic.

    ds_read_b32 v6, v1
    v_add_u32   v3, 1, v6
    ds_write_b32 v1, v3

Lanes with the same address load it together, and all but one of the additions are lost
(native/lane_races.h). Only straight-line code is checked, and only additions: lowering a value or
setting a bit twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from cupygemm.emulator.isa.instruction import Instruction

FAR = 24  # instructions from the read to the store
_ADDS = ("v_add", "v_sub", "v_fma", "v_mac", "v_pk_add", "v_pk_fma")
_STORES = ("ds_write_b", "global_store_", "flat_store_", "buffer_store_")
_SINGLE = ("b32", "b16", "b8", "dword", "short", "byte")
_PLACE = ("offset", "offset0", "offset1", "seg", "offen", "idxen")
_ADDRESSES = ("addr", "vaddr", "saddr", "srsrc", "soffset")


def is_store(inst: Instruction) -> bool:
    """Tell whether an instruction stores a register of each lane."""
    name = inst.mnemonic
    return name.startswith(_STORES) and name.rpartition("_")[2] in _SINGLE


def updates(before: Sequence[Instruction], store: Instruction) -> bool:
    """Tell whether a store adds to the value that was loaded from its address.

    Parameters
    ----------
    before : sequence of Instruction
        The instructions before the store, in order.
    store : Instruction
    """
    data = next((store.operand(n) for n in ("data0", "vdata", "data") if store.operand(n)), None)
    if data is None:
        return False
    at = _writer(before, len(before), 1 << data.index)
    if at < 0 or not before[at].mnemonic.startswith(_ADDS):
        return False
    for op in before[at].src:
        if op.kind != "v":
            continue
        read = _writer(before, at, 1 << op.index)
        if read >= 0 and _same_place(before[read], store) and _stays(before[read:], store):
            return True
    return False


def _writer(before: Sequence[Instruction], end: int, bits: int) -> int:
    """Return the index of the last instruction that writes a vector register; -1 for none."""
    return next((i for i in reversed(range(end)) if before[i].vector_writes & bits), -1)


def _same_place(read: Instruction, store: Instruction) -> bool:
    loads = ("ds_read_", "global_load_", "flat_load_", "buffer_load_")
    if read.encoding != store.encoding or not read.mnemonic.startswith(loads):
        return False
    if any(read.fields.get(name) != store.fields.get(name) for name in _PLACE):
        return False
    pairs = [(read.operand(name), store.operand(name)) for name in _ADDRESSES]
    return all(
        (a is None) == (b is None)
        and (a is None or b is None or (a.kind, a.index) == (b.kind, b.index))
        for a, b in pairs
    )


def _stays(between: Sequence[Instruction], store: Instruction) -> bool:
    """Tell whether nothing writes the registers of the store's address."""
    vector = scalar = 0
    for name in _ADDRESSES:
        op = store.operand(name)
        if op is not None:
            bits = (1 << op.count) - 1 << op.index
            vector |= bits if op.kind == "v" else 0
            scalar |= bits if op.kind == "s" else 0
    written = ((inst.vector_writes & vector, inst.scalar_writes & scalar) for inst in between)
    return not any(any(each) for each in written)
