"""Instructions with other operands and modifiers than the listing has, drawn at random."""

from __future__ import annotations

import random
from collections.abc import Iterator

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.isa.instruction import Instruction


def decoded(data: bytes, target: str) -> Instruction | None:
    try:
        return decode(data + bytes(8), target=target)
    except UnsupportedInstruction:
        return None


def same_form(inst: Instruction, raw: int) -> Instruction | None:
    """Return the instruction with these bits if it has the same mnemonic and encoding."""
    other = decoded(raw.to_bytes(inst.size, "little"), inst.target)
    if other is None or other.size != inst.size:
        return None
    same = (other.mnemonic, other.encoding, other.variant) == (
        inst.mnemonic,
        inst.encoding,
        inst.variant,
    )
    return other if same else None


_FREE: dict[tuple[str, str, str, str], int] = {}


def free_bits(inst: Instruction) -> int:
    """Return the bits of an encoding that do not determine the instruction."""
    key = (inst.mnemonic, inst.encoding, inst.variant, inst.target)
    if key not in _FREE:
        bits = range(8 * inst.size)
        _FREE[key] = sum(1 << bit for bit in bits if same_form(inst, inst.raw ^ 1 << bit))
    return _FREE[key]


def variations(inst: Instruction, seed: str, count: int) -> Iterator[Instruction]:
    """Yield the instruction, and others of its mnemonic and encoding with random fields."""
    yield inst
    rng, free = random.Random(seed), free_bits(inst)
    for _ in range(count):
        noise = rng.getrandbits(64) & free
        noise &= rng.choice((-1, rng.getrandbits(64), rng.getrandbits(64) & rng.getrandbits(64)))
        other = same_form(inst, (inst.raw & ~free if rng.random() < 0.5 else inst.raw) ^ noise)
        if other is not None:
            yield other
