"""Manually inserted wait states: hazards that a program must avoid, with s_nop or otherwise.

Every instruction is one wait state; ``s_nop n`` is n + 1. A compiler inserts the s_nop instructions
that its code needs; in assembly and inline assembly they are the author's responsibility. While a
program is decoded, the checker searches along every branch from each instruction that may cause
such a hazard. A hazard is reported when the instruction that comes too early executes.

The matrix unit of a SIMD executes one MFMA at a time, so an MFMA between the two instructions
that waits for the unit delays all later instructions. Unlike LLVM, the search counts this delay.

`wait_rules` lists the rules with their sources, and `wait_pairs` has their numbers. LLVM 22 inserts
one more wait state on CDNA4 than on CDNA3 in some cases. It is not required here, because older
compilers do not insert it. Table 11 of the CDNA3 ISA guide has four rules that are not modelled:
VCCZ and EXECZ as data, VCC as an SGPR by its number, results that OPSEL or SDWA shift, and TRAPSTS.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cupygemm.emulator.hazards.wait_pairs import (
    Shadow,
    is_mfma,
    longest_wait,
    may_depend,
    mfma_passes,
    registers_that_matter,
    same_pipeline,
    waits_between,
)
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.targets import Target

_LEAVING = ("SOPP", "SOP1", "SOP2", "SOPK")  # the encodings of these:
_LEAVES = ("s_endpgm", "s_branch", "s_cbranch", "s_setpc", "s_swappc", "s_call")
_JUMPS = ("s_endpgm", "s_setpc_b64", "s_swappc_b64", "s_call_b64")


@dataclass(frozen=True)
class Hazard:
    """An instruction that executes too early after another.

    Attributes
    ----------
    producer, consumer : int
        Byte offsets into the code object.
    rule : str
        The broken rule, as in `wait_rules.RULES`.
    what : str
        The consumer's access, such as ``"reads v3"``.
    needed, found : int
        Wait states required between the two, and those found.
    """

    producer: int
    consumer: int
    rule: str
    what: str
    needed: int
    found: int

    @property
    def place(self) -> int:
        """Return the byte offset of the instruction whose execution is the error.

        For the rule on MODE.vskip this is the producer: the bit decides if the consumer executes.
        """
        return self.producer if self.rule == "vskip" else self.consumer


class _Producer(NamedTuple):
    """An instruction for which later ones may have to wait.

    Attributes
    ----------
    length : int
        The longest wait that it can cause, in wait states.
    shadow : Shadow
        Its effects.
    registers : tuple of int, or None
        See `registers_that_matter`.
    """

    length: int
    shadow: Shadow
    registers: tuple[int, int] | None


class _Path(NamedTuple):
    """A place that execution can reach from the producer.

    Attributes
    ----------
    place : int
        Byte offset of the next instruction.
    states : int
        Wait states since the producer.
    busy : int
        Wait states since the producer until the matrix unit can start its next instruction.
    shadow : Shadow
        What is left of the producer's effects.
    certain : bool
        Whether no branch leads elsewhere.
    """

    place: int
    states: int
    busy: int
    shadow: Shadow
    certain: bool = True


def hazards_after(
    pc: int, inst: Instruction, target: Target, at: Callable[[int], Instruction | None]
) -> Iterable[Hazard]:
    """Return the hazards between an instruction and those that follow it.

    Parameters
    ----------
    pc : int
        Byte offset of the instruction.
    inst : Instruction
    target : Target
    at : callable
        Returns the instruction at a byte offset, or None if there is none.
    """
    producer = _producer(inst)
    if producer is None or _is_harmless(pc + inst.size, producer, target, at):
        return ()
    return _search(pc, inst, producer, target, at)


def _search(
    pc: int,
    inst: Instruction,
    producer: _Producer,
    target: Target,
    at: Callable[[int], Instruction | None],
) -> Iterator[Hazard]:
    """Yield the hazards along all paths from an instruction."""
    length, shadow = producer.length, producer.shadow
    busy = mfma_passes(inst, target) - 1 if is_mfma(inst) else 0
    paths = [_Path(pc + inst.size, 0, busy, shadow)]
    seen: set[tuple[int, str]] = set()
    while paths:
        path = paths.pop()
        follower = at(path.place)
        if path.states >= length or follower is None:
            continue
        for wait in waits_between(path.shadow, follower, target):
            early = wait.states > path.states and (path.certain or wait.rule != "vskip")
            if early and (path.place, wait.rule) not in seen:
                seen.add((path.place, wait.rule))
                yield Hazard(
                    producer=pc,
                    consumer=path.place,
                    rule=wait.rule,
                    what=wait.what,
                    needed=wait.states,
                    found=path.states,
                )
        if follower.mnemonic not in _JUMPS:
            paths += _following(path, follower, target)


@functools.lru_cache(maxsize=1 << 16)
def _producer(inst: Instruction) -> _Producer | None:
    """Return what to search for after an instruction; None if it causes no wait."""
    length = longest_wait(inst)
    return _Producer(length, Shadow.of(inst), registers_that_matter(inst)) if length else None


def _is_harmless(
    place: int, producer: _Producer, target: Target, at: Callable[[int], Instruction | None]
) -> bool:
    """Tell whether a quick look at the code after an instruction shows that it breaks no rule.

    It does for nearly every instruction, in a tenth of the time of a search. Here every
    instruction counts as one wait state, and the shadow does not shrink, so no hazard is missed.
    Where the result is inconclusive, as at a branch, a search follows.
    """
    shadow, registers = producer.shadow, producer.registers
    inst = shadow.inst
    for states in range(producer.length):
        follower = at(place)
        if follower is None:
            return True
        if follower.encoding in _LEAVING and follower.mnemonic.startswith(_LEAVES):
            return False
        place += follower.size
        if registers is not None:
            vector, scalar = registers
            if not (vector & follower.vector_reads or scalar & follower.scalar_reads):
                continue
        if may_depend(inst, follower) and any(
            wait.states > states for wait in waits_between(shadow, follower, target)
        ):
            return False
    return True


def _following(path: _Path, follower: Instruction, target: Target) -> Iterator[_Path]:
    """Yield the paths along which execution can continue after an instruction."""
    nop = follower.mnemonic == "s_nop"
    states = path.states + ((follower.fields["simm16"] & 15) + 1 if nop else 1)
    busy = path.busy
    if is_mfma(follower) and same_pipeline(path.shadow.inst, follower, target):
        states = max(path.states, path.busy) + 1
        busy = states + mfma_passes(follower, target) - 1
    shadow = path.shadow.after(follower)
    following = path.place + follower.size
    if not follower.mnemonic.startswith(("s_branch", "s_cbranch")):
        yield _Path(following, states, busy, shadow, path.certain)
        return
    other = path.place + follower.jump
    if follower.mnemonic == "s_branch":
        yield _Path(other, states, busy, shadow, path.certain)
    else:
        yield _Path(other, states, busy, shadow, certain=False)
        yield _Path(following, states, busy, shadow, certain=False)
