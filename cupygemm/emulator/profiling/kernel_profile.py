"""The profile of a kernel: its counts, and their representations for users.

kernel_counts ─► export, listing, source_listing (modelled, roofline) ─► KernelProfile
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cupygemm.emulator.profiling.export import kernel_to_dict
from cupygemm.emulator.profiling.kernel_counts import InstructionProfile, KernelCounts
from cupygemm.emulator.profiling.listing import listing
from cupygemm.emulator.profiling.source_listing import source_listing
from cupygemm.emulator.profiling.timing.model import model
from cupygemm.emulator.profiling.verdict import Verdict, verdict

__all__ = ["InstructionProfile", "KernelProfile"]


@dataclass(frozen=True, kw_only=True, repr=False)
class KernelProfile(KernelCounts):
    """The counts of one launch of a kernel, or of several.

    Attributes
    ----------
    kernel : str
    target : str
    launches : int
    grid, block : tuple of int
        Workgroups, and work-items of a workgroup; `grid` is that of the first launch.
    workgroups, waves : int
        Sums over all launches.
    registers : dict of str to int
        ``vgpr``, ``agpr`` and ``sgpr`` are the registers that the kernel uses, ``allocated`` the
        vector registers of a lane, and ``scratch`` the bytes of its private memory. Computed.
    lds_bytes : int
        LDS of a workgroup. Computed.
    occupancy : Occupancy
        Computed.
    code : str
        Digest of the kernel's code, because kernels of the same name may differ.
    instructions : tuple of InstructionProfile
        In the order of the code; those that were not executed are included.
    fabric_written : int
        Bytes that the L2s wrote back.
    hbm_read, hbm_written : int
        Bytes.
    timing : Timing or None
        Modelled. None if the launch was too long for a trace of whole workgroups.
    sampled : int
        Workgroups that ran, if the counts are scaled from a sample; else 0.
    max_threads : int
        Work-items of the largest workgroup for which the kernel was compiled.
    """

    def at_clock(self, clock_mhz: float) -> KernelProfile:
        """Return the profile with its time modelled at another clock.

        Parameters
        ----------
        clock_mhz : float
            Latency and bandwidth beyond L2 do not scale with the clock; everything else does.

        Returns
        -------
        KernelProfile

        Raises
        ------
        ValueError
            The clock is not positive, or the profile is a sum of several launches.
        """
        if clock_mhz <= 0:
            raise ValueError(f"clock_mhz={clock_mhz}: the clock must be positive")
        if self.launches > 1:
            raise ValueError(
                f"this profile is the sum of {self.launches} launches: set the clock of each launch"
            )
        return self if self.timing is None else self.timed(*model(self.timing.workload, clock_mhz))

    @property
    def verdict(self) -> Verdict:
        """What bounds the kernel, by how much, why, and what to try. Modelled."""
        return verdict(self)

    def _repr_html_(self) -> str:
        from cupygemm.emulator.profiling.notebook import profile_html

        return profile_html([self])

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as numbers, strings, lists and dictionaries, for JSON.

        Returns
        -------
        dict
            Rates are fractions of 1, or None if there is nothing to count.
        """
        return kernel_to_dict(self)

    def listing(self) -> str:
        """Return the annotated disassembly.

        Returns
        -------
        str
            One line for each instruction: waves that executed it, offset, text and notes.
        """
        return listing(self)

    def source_listing(self) -> str:
        """Return the known source lines, with notes about their instructions.

        Returns
        -------
        str
            One line for each source line: number, wave-instructions, text and notes.
        """
        return source_listing(self)
