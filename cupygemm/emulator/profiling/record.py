"""What a profile holds: the counts of each instruction, of a kernel, and what follows from them.

Everything is *computed* (read off the code object: registers, LDS, occupancy), *emulated* (counted
while the machine code was executed; cache hits come from a model of the caches) or, where it is
named so, *modelled* (times and cycles, from the timing model). Nothing is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from cupygemm.emulator.profiling.counts import GlobalCounts, LdsCounts, Wait, ratio
from cupygemm.emulator.profiling.occupancy import Occupancy
from cupygemm.emulator.profiling.timing.model import Timing


@dataclass
class InstructionProfile:
    """The counts of one instruction of a kernel.

    Attributes
    ----------
    offset : int
        Bytes from the kernel's entry; negative in a function that lies before it.
    text : str
    category : str
        One of `classify.CATEGORIES`.
    source : (str, int) or None
        File and line, of code objects compiled with ``-g``.
    executions : int
        Waves that executed it.
    lanes : int
        Lanes that were on, summed over waves; 0 for scalar instructions.
    flop : int
        Floating-point operations (or integer ones of an MFMA), summed over waves.
    flop_type : str
        Type of their operands, ``""`` without any.
    global_memory : GlobalCounts or None
    lds : LdsCounts or None
    waits : tuple of Wait
    modelled_cycles : dict of str to int
        What the cycles of the waves that the timing model simulates go to here: ``"issue"``, or
        what held the instruction (`timing.model.REASONS`).
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


@dataclass(frozen=True)
class KernelProfile:
    """Everything that was counted of a launch of a kernel, or of several.

    Attributes
    ----------
    kernel : str
    target : str
    launches : int
    grid, block : tuple of int
        Workgroups and work-items; `grid` is that of the first launch.
    workgroups, waves : int
        Of all launches.
    registers : dict of str to int
        ``vgpr``, ``agpr``, ``sgpr`` that the kernel uses, ``allocated`` of a lane together, and
        ``scratch`` bytes of a lane. Computed.
    lds_bytes : int
        LDS of a workgroup. Computed.
    occupancy : Occupancy
        Computed.
    code : str
        Digest of the kernel's code: kernels of one name may differ.
    instructions : tuple of InstructionProfile
        In the order of the code, those that were not executed included.
    fabric_written : int
        Bytes that the L2s wrote back.
    hbm_read, hbm_written : int
        Bytes.
    timing : Timing or None
        Modelled. None if there is no trace of whole workgroups: the launch was too long to keep.
    """

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
        """Return the LDS cycles that conflicts add to an instruction of a wave, by its offset."""
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
        """Return the bytes read from and written to HBM, according to the cache model."""
        return self.hbm_read + self.hbm_written

    @property
    def flop_per_byte(self) -> float | None:
        """Return FLOP over bytes of HBM, or None if there are no bytes."""
        return ratio(self.flop, self.hbm_bytes)

    def by_source(self) -> dict[tuple[str, int], list[InstructionProfile]]:
        """Return the executed instructions of each source line that is known, in order.

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

    # -- other forms -------------------------------------------------------------------------------

    def merged(self, other: KernelProfile) -> KernelProfile:
        """Return the sum of this and other launches of the same kernel.

        Parameters
        ----------
        other : KernelProfile

        Returns
        -------
        KernelProfile

        Raises
        ------
        ValueError
            The code or the workgroup differs.
        """
        if merge_key(self) != merge_key(other):
            raise ValueError(f"{self!r} and {other!r} are not launches of one kernel")
        return replace(
            self,
            launches=self.launches + other.launches,
            workgroups=self.workgroups + other.workgroups,
            waves=self.waves + other.waves,
            instructions=tuple(
                mine.merged(its)
                for mine, its in zip(self.instructions, other.instructions, strict=True)
            ),
            fabric_written=self.fabric_written + other.fabric_written,
            hbm_read=self.hbm_read + other.hbm_read,
            hbm_written=self.hbm_written + other.hbm_written,
            timing=self.timing and other.timing and self.timing.merged(other.timing),
        )

    def timed(self, timing: Timing, cycles: dict[int, dict[str, int]]) -> KernelProfile:
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
            replace(inst, modelled_cycles=cycles.get(inst.offset, {})) for inst in self.instructions
        )
        return replace(self, timing=timing, instructions=instructions)

    def at_clock(self, clock_mhz: float) -> KernelProfile:
        """Return the profile of one launch with its time modelled at another clock.

        Parameters
        ----------
        clock_mhz : float
            Latency and bandwidth beyond L2 do not scale with it; everything else does.

        Returns
        -------
        KernelProfile

        Raises
        ------
        ValueError
            The clock is not positive, or the profile is a sum of several launches.
        """
        from cupygemm.emulator.profiling.timing.model import model

        if clock_mhz <= 0:
            raise ValueError(f"a clock of {clock_mhz} MHz: it must be positive")
        if self.launches > 1:
            raise ValueError(f"{self.launches} launches are summed: set the clock of each")
        return self if self.timing is None else self.timed(*model(self.timing.workload, clock_mhz))

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as numbers, strings, lists and dictionaries, for JSON.

        Returns
        -------
        dict
            Rates are fractions of 1, or None where there is nothing to count.
        """
        from cupygemm.emulator.profiling.export import kernel_to_dict

        return kernel_to_dict(self)

    def listing(self) -> str:
        """Return the annotated disassembly.

        Returns
        -------
        str
            An instruction a line: waves that executed it, offset, text, and what it did.
        """
        from cupygemm.emulator.profiling.listing import listing

        return listing(self)

    def source_listing(self) -> str:
        """Return the source lines that are known, with what their instructions did.

        Returns
        -------
        str
            A line a line: number, wave-instructions, text, and what they did.
        """
        from cupygemm.emulator.profiling.source_listing import source_listing

        return source_listing(self)


def merge_key(profile: KernelProfile) -> tuple[Any, ...]:
    """Return what launches have in common whose profiles can be added up."""
    return profile.kernel, profile.target, profile.code, profile.block, profile.lds_bytes


def mix(instructions: Iterable[InstructionProfile]) -> dict[str, int]:
    """Return the wave-instructions executed, by category; all categories."""
    from cupygemm.emulator.profiling.classify import CATEGORIES

    result = dict.fromkeys(CATEGORIES, 0)
    for inst in instructions:
        result[inst.category] += inst.executions
    return result


def _sum(total: Any, parts: Iterable[Any]) -> Any:
    """Add up counts into an empty `total`; None if there are none."""
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
    profile: KernelProfile,
) -> Iterator[tuple[tuple[str, int] | None, InstructionProfile]]:
    """Yield each instruction with its source line where that changes, else None."""
    last: tuple[str, int] | None = None
    for inst in profile.instructions:
        news = inst.source if inst.source != last else None
        last = inst.source
        yield news, inst
