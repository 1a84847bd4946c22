"""The counts of a kernel and its instructions, and the figures derived from them.

A figure is *computed* (from the code object: registers, LDS, occupancy), *emulated* (counted while
the machine code was executed; cache hits come from a model of the caches) or, if its name says so,
*modelled* (times and cycles, from the timing model). No figure is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

from cupygemm.emulator.profiling.classify import CATEGORIES
from cupygemm.emulator.profiling.counts import GlobalCounts, LdsCounts, Wait, ratio
from cupygemm.emulator.profiling.occupancy import Occupancy
from cupygemm.emulator.profiling.timing.model import Timing


@dataclass
class InstructionProfile:
    """The counts of an instruction of a kernel.

    Attributes
    ----------
    offset : int
        Bytes from the kernel's entry; negative in a function that precedes it.
    text : str
    category : str
        One of `classify.CATEGORIES`.
    source : (str, int) or None
        File and line; known if CuPy compiled the code from a user's source, or it was compiled with
        ``-g``.
    executions : int
        Waves that executed it.
    lanes : int
        Active lanes, summed over waves; 0 for scalar instructions.
    flop : int
        Floating-point operations (or integer ones of an MFMA), summed over waves.
    flop_type : str
        Type of the operands, ``""`` if `flop` is 0.
    global_memory : GlobalCounts or None
    lds : LdsCounts or None
    waits : tuple of Wait
    call_sites : tuple of (str, int)
        Where the function of that line was inlined, the innermost call first.
    modelled_cycles : dict of str to int
        Cycles that the simulated waves spend at this instruction, by use: ``"issue"``, or the
        reason for waiting (`timing.model.REASONS`).
    is_poll : bool
        Whether it polls a flag in LDS, in a loop that does nothing else.
    quote : str
        The text of `source`, "" if it is not known.
    """

    offset: int
    text: str
    category: str
    source: tuple[str, int] | None = None
    executions: int = 0
    lanes: int = 0
    flop: int = 0
    flop_type: str = ""
    global_memory: GlobalCounts | None = None
    lds: LdsCounts | None = None
    waits: tuple[Wait, ...] = ()
    modelled_cycles: dict[str, int] = field(default_factory=dict)
    call_sites: tuple[tuple[str, int], ...] = ()
    is_poll: bool = False
    quote: str = ""

    @property
    def place(self) -> str:
        """Return the source line and the calls that inlined it, as text; empty if unknown."""
        places = [f"{file}:{line}" for file, line in ([self.source] if self.source else [])]
        return ", ".join([*places, *(f"inlined at {f}:{n}" for f, n in self.call_sites)])

    @property
    def is_flat_to_lds(self) -> bool:
        """Whether it is a FLAT instruction that reached no global memory.

        It reached LDS, or private memory if the kernel has any.
        """
        return self.text.startswith("flat_") and not (
            self.global_memory is not None and self.global_memory.lanes
        )

    def merged(self, other: InstructionProfile) -> InstructionProfile:
        """Return the sum of this and the same instruction of another launch.

        Parameters
        ----------
        other : InstructionProfile

        Returns
        -------
        InstructionProfile
        """
        return replace(
            self,
            executions=self.executions + other.executions,
            lanes=self.lanes + other.lanes,
            flop=self.flop + other.flop,
            global_memory=_sum(GlobalCounts(), (self.global_memory, other.global_memory)),
            lds=_sum(LdsCounts(), (self.lds, other.lds)),
            waits=sum_waits([*self.waits, *other.waits]),
            modelled_cycles=sum_cycles([self.modelled_cycles, other.modelled_cycles]),
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class KernelCounts:
    """The counts of one or several launches of a kernel, as described in `KernelProfile`."""

    kernel: str
    target: str
    launches: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    workgroups: int
    waves: int
    registers: dict[str, int]
    lds_bytes: int
    occupancy: Occupancy
    code: str
    instructions: tuple[InstructionProfile, ...] = field(repr=False)
    fabric_written: int
    hbm_read: int
    hbm_written: int
    timing: Timing | None = None
    sampled: int = 0
    max_threads: int = 1024

    def __repr__(self) -> str:
        grid, block = ("x".join(map(str, extent)) for extent in (self.grid, self.block))
        text = f"{type(self).__name__}({self.kernel} on {self.target}: grid {grid}, block {block}, "
        text += f"{self.launches} launches, " if self.launches > 1 else ""
        text += f"{self.executed:,} instructions"
        if self.timing is not None:
            microseconds = 1e6 * self.timing.seconds
            text += f", modelled {microseconds:,.4g} us, bound by {self.timing.bound}"
        return text + ")"

    # -- sums over instructions --------------------------------------------------------------------

    @property
    def mix(self) -> dict[str, int]:
        """Return the wave-instructions executed, by category; all categories."""
        return mix(self.instructions)

    @property
    def executed(self) -> int:
        """Return the wave-instructions executed."""
        return sum(inst.executions for inst in self.instructions)

    @property
    def matrix_flop(self) -> dict[str, int]:
        """Return the MFMA operations by type of the operands."""
        return self._flop("MFMA")

    @property
    def vector_flop(self) -> dict[str, int]:
        """Return the FLOP of the vector ALUs by type."""
        return self._flop("VALU")

    def _flop(self, category: str) -> dict[str, int]:
        result: dict[str, int] = {}
        for inst in self.instructions:
            if inst.flop and inst.category == category:
                result[inst.flop_type] = result.get(inst.flop_type, 0) + inst.flop
        return result

    @property
    def flop(self) -> int:
        """Return the FLOP of the matrix units and of the vector ALUs."""
        return sum(inst.flop for inst in self.instructions)

    @property
    def global_memory(self) -> GlobalCounts:
        """Return the counts of global memory of all instructions."""
        total = GlobalCounts()
        for inst in self.instructions:
            if inst.global_memory is not None:
                total.add(inst.global_memory)
        return total

    @property
    def lds(self) -> LdsCounts:
        """Return the counts of LDS of all instructions."""
        total = LdsCounts()
        for inst in self.instructions:
            if inst.lds is not None:
                total.add(inst.lds)
        return total

    @property
    def lds_conflicts(self) -> dict[int, float]:
        """Return the LDS cycles that conflicts add to a wave's instruction, by its offset."""
        return {
            inst.offset: inst.lds.conflict_cycles / inst.lds.instructions
            for inst in self.instructions
            if inst.lds is not None and inst.lds.conflict_cycles
        }

    @property
    def waits(self) -> tuple[Wait, ...]:
        """Return the waits of all instructions, by counter."""
        return sum_waits([wait for inst in self.instructions for wait in inst.waits])

    @property
    def hbm_bytes(self) -> int:
        """Return the bytes read from and written to HBM, by the cache model."""
        return self.hbm_read + self.hbm_written

    @property
    def flop_per_byte(self) -> float | None:
        """Return the FLOP per byte of HBM traffic, or None if there is no traffic."""
        return ratio(self.flop, self.hbm_bytes)

    def by_source(self) -> dict[tuple[str, int], list[InstructionProfile]]:
        """Return the executed instructions of each known source line, in order.

        Returns
        -------
        dict of (str, int) to list of InstructionProfile
            By file and line.
        """
        result: dict[tuple[str, int], list[InstructionProfile]] = {}
        for inst in self.instructions:
            if inst.source is not None and inst.executions:
                result.setdefault(inst.source, []).append(inst)
        return dict(sorted(result.items()))

    @property
    def _ran(self) -> int:
        """Return the workgroups that ran."""
        return self.sampled or self.workgroups

    # -- other launches ----------------------------------------------------------------------------

    def merged(self, other: KernelCounts) -> Self:
        """Return the sum of this and other launches of the same kernel.

        Parameters
        ----------
        other : KernelCounts

        Returns
        -------
        KernelProfile

        Raises
        ------
        ValueError
            The kernel, its code, the block or the LDS differ.
        """
        if merge_key(self) != merge_key(other):
            raise ValueError(f"{self!r} and {other!r} are not launches of one kernel")
        return replace(
            self,
            launches=self.launches + other.launches,
            workgroups=self.workgroups + other.workgroups,
            waves=self.waves + other.waves,
            sampled=self._ran + other._ran if self.sampled or other.sampled else 0,
            instructions=tuple(
                mine.merged(its)
                for mine, its in zip(self.instructions, other.instructions, strict=True)
            ),
            fabric_written=self.fabric_written + other.fabric_written,
            hbm_read=self.hbm_read + other.hbm_read,
            hbm_written=self.hbm_written + other.hbm_written,
            timing=self.timing and other.timing and self.timing.merged(other.timing),
        )

    def timed(self, timing: Timing, cycles: dict[int, dict[str, int]]) -> Self:
        """Return the profile with a modelled time; the arguments are `timing.model.model`'s.

        Parameters
        ----------
        timing : Timing
        cycles : dict of int to dict of str to int
            By byte offset of the instruction.

        Returns
        -------
        KernelProfile
        """
        instructions = tuple(
            _with_cycles(inst, cycles.get(inst.offset, {})) for inst in self.instructions
        )
        return replace(self, timing=timing, instructions=instructions)


def _with_cycles(inst: InstructionProfile, cycles: dict[str, int]) -> InstructionProfile:
    """Return a copy with modelled cycles; faster than `replace`, since a kernel has thousands."""
    result = object.__new__(InstructionProfile)
    result.__dict__.update(inst.__dict__, modelled_cycles=cycles)
    return result


def merge_key(profile: KernelCounts) -> tuple[Any, ...]:
    """Return a key that is equal for launches whose profiles can be merged."""
    return profile.kernel, profile.target, profile.code, profile.block, profile.lds_bytes


def mix(instructions: Iterable[InstructionProfile]) -> dict[str, int]:
    """Return the wave-instructions executed, by category; all categories."""
    result = dict.fromkeys(CATEGORIES, 0)
    for inst in instructions:
        result[inst.category] += inst.executions
    return result


def _sum(total: Any, parts: Iterable[Any]) -> Any:
    """Add up counts into an empty `total`; return None if there are none."""
    known = [part for part in parts if part is not None]
    for part in known:
        total.add(part)
    return total if known else None


def sum_cycles(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Add up modelled cycles by reason."""
    result: dict[str, int] = {}
    for part in parts:
        for name, cycles in part.items():
            result[name] = result.get(name, 0) + cycles
    return result


def sum_waits(waits: Iterable[Wait]) -> tuple[Wait, ...]:
    """Add up waits by counter."""
    result: dict[str, Wait] = {}
    for wait in waits:
        result.setdefault(wait.counter, Wait(wait.counter)).add(wait)
    return tuple(result.values())


def iterate_lines(
    profile: KernelCounts,
) -> Iterator[tuple[str, InstructionProfile]]:
    """Yield each instruction with its source line and call sites if they are new, else with ""."""
    last = ""
    for inst in profile.instructions:
        yield inst.place if inst.place != last else "", inst
        last = inst.place
