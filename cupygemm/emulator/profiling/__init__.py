"""Profile kernels on the emulated device: instructions, memory traffic, waits and modelled time.

    with cupygemm.emulator.profile() as p:
        c = a @ b                      # any CuPy code
    print(p)                           # a table; p.listing(), p.to_dict(), p.timeline("t.png")

    print(profile_loop("kernel.hsaco"))   # the main loop of a code object, without running it

    recorder ─► build, timing ─► KernelProfile ─► tables, listing, export, roofline, timeline
    (a launch)                   (kernel_profile.py)

Counts are *computed* or *emulated*. Times and cycles are *modelled* (`timing`), as their names say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cupygemm.emulator.concurrency.stream_deferral import run_deferred

if TYPE_CHECKING:
    from cupygemm.emulator.profiling.host_call import HostCall
    from cupygemm.emulator.profiling.kernel_profile import KernelProfile
    from cupygemm.emulator.profiling.loop import LoopProfile

__all__ = ["Profile", "profile", "profile_loop"]

MEMORY_LATENCY = 630
"""Cycles from a load that misses in L2 to its data: 300 ns (HipKittens, MI355X) at 2.1 GHz."""


class Profile:
    """The profiles of the launches in a block of code.

    Parameters
    ----------
    clock_mhz : float, optional
        The clock of modelled times; the boost clock by default.
    sample : int, optional
        Workgroups of each launch that run; all by default.

    Attributes
    ----------
    sample : int or None
    launches : list of KernelProfile
        One for each launch that succeeded, in order.
    host_calls : list of HostCall
        One for each call of a mathematical library that the host computed, in order.
    """

    def __init__(self, clock_mhz: float | None = None, sample: int | None = None) -> None:
        self.sample = sample
        self.launches: list[KernelProfile] = []
        self.host_calls: list[HostCall] = []
        self._clock_mhz = clock_mhz
        self._code: dict[tuple[str, str], bytes] = {}

    def add(self, launch: KernelProfile, code: bytes | None = None) -> None:
        """Add the profile of a launch.

        Parameters
        ----------
        launch : KernelProfile
        code : bytes, optional
            The code object of the kernel, which `loop` reads.
        """
        if code is not None:
            self._code[launch.kernel, launch.code] = code
        clock = self._clock_mhz
        self.launches.append(launch if clock is None else launch.at_clock(clock))

    def add_host_call(self, call: HostCall) -> None:
        """Add a library call that the host computed.

        Parameters
        ----------
        call : HostCall
        """
        self.host_calls.append(call)

    def __repr__(self) -> str:
        launches, kernels = len(self.launches), len(self.kernels)
        return (
            f"Profile({launches} launch{'es' * (launches != 1)} of {kernels} "
            f"kernel{'s' * (kernels != 1)})"
        )

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, width: int = 130) -> str:
        """Return the tables as text, which ``print`` shows.

        Parameters
        ----------
        width : int, optional
            Columns of a line; at least 80.

        Returns
        -------
        str
            Lines of at most `width` columns.
        """
        from cupygemm.emulator.profiling.host_call import host_calls_table
        from cupygemm.emulator.profiling.tables import render

        tables = render(self.kernels, width), host_calls_table(self.host_calls)
        return "\n".join(filter(None, tables))

    def _repr_html_(self) -> str:
        from cupygemm.emulator.profiling.notebook import profile_html

        return profile_html(self.kernels)

    @property
    def kernels(self) -> list[KernelProfile]:
        """Return the launches merged by kernel, in the order of their first launch.

        Launches belong to the same kernel if name, code, block and LDS are equal.
        """
        from cupygemm.emulator.profiling.kernel_counts import merge_key

        result: dict[Any, KernelProfile] = {}
        for launch in self.launches:
            key = merge_key(launch)
            result[key] = result[key].merged(launch) if key in result else launch
        return list(result.values())

    def loop(self) -> LoopProfile:
        """Count the main loop of the kernel with the most MFMA operations.

        Returns
        -------
        LoopProfile
            See `profile_loop`; the bank conflicts are those of the launch.

        Raises
        ------
        ValueError
            No launched kernel uses MFMA, or that kernel has no loop with it.
        """
        found = [k for k in self.kernels if (k.kernel, k.code) in self._code and k.matrix_flop]
        if not found:
            names = ", ".join(k.kernel for k in self.kernels) or "none"
            raise ValueError(f"no kernel that was launched uses MFMA; launched: {names}")
        most = max(found, key=lambda k: sum(k.matrix_flop.values()))
        code = self._code[most.kernel, most.code]
        return profile_loop(code, most.kernel, conflicts=most.lds_conflicts)

    def listing(self) -> str:
        """Return the annotated disassembly of every kernel.

        Returns
        -------
        str
            See `KernelProfile.listing`.
        """
        return "\n".join(kernel.listing() for kernel in self.kernels)

    def source_listing(self) -> str:
        """Return the source lines of every kernel that was compiled with ``-g``.

        Returns
        -------
        str
            See `KernelProfile.source_listing`.
        """
        return "\n".join(kernel.source_listing() for kernel in self.kernels)

    def to_dict(self) -> dict[str, Any]:
        """Return the profiles by kernel as numbers, strings, lists and dictionaries, for JSON.

        Returns
        -------
        dict
            ``kernels`` is a list of results of `KernelProfile.to_dict`; ``host_calls`` is a list of
            the library calls that the host computed.
        """
        return {
            "kernels": [kernel.to_dict() for kernel in self.kernels],
            "host_calls": [asdict(call) for call in self.host_calls],
        }

    def roofline(self, path: str | Path) -> None:
        """Draw the kernels under the roofline of their device, and save the picture.

        It shows the upper bound from the counted FLOP per byte. No speed in it is measured.

        Parameters
        ----------
        path : str or Path
            A file name that ends in ``.png``, ``.svg`` or ``.pdf``.

        Raises
        ------
        ModuleNotFoundError
            matplotlib is not installed.
        ValueError
            No kernel does floating-point operations on global memory.
        """
        from cupygemm.emulator.profiling.roofline import draw

        draw(self.kernels, Path(path))

    def timeline(
        self, path: str | Path, *, kernel: str | None = None, cycles: tuple[int, int] | None = None
    ) -> None:
        """Draw the activity of each wave of a compute unit by modelled cycle, and save the picture.

        Parameters
        ----------
        path : str or Path
            A file name that ends in ``.png``, ``.svg`` or ``.pdf``.
        kernel : str, optional
            A substring of the kernel's name. By default, the kernel with the longest modelled time.
        cycles : (int, int), optional
            The first and the last cycle; all by default.

        Raises
        ------
        ModuleNotFoundError
            matplotlib is not installed.
        ValueError
            No kernel of that name has a modelled time, or the range of cycles is empty.
        """
        from cupygemm.emulator.profiling.timeline import draw

        found = [k for k in self.kernels if k.timing and (kernel is None or kernel in k.kernel)]
        if not found:
            known = ", ".join(k.kernel for k in self.kernels) or "none"
            raise ValueError(f"no kernel {kernel or ''} with a modelled time; launched: {known}")
        draw(max(found, key=lambda k: k.timing.cycles if k.timing else 0), Path(path), cycles)


active: list[Profile] = []
"""The profiles that collect launches at present: those of the `profile` blocks in progress."""


@contextmanager
def profile(*, clock_mhz: float | None = None, sample: int | None = None) -> Iterator[Profile]:
    """Collect a profile of every launch on the emulated device inside a ``with`` block.

    Launches inside the block are slower; those outside are not affected. Blocks may be nested.

    Parameters
    ----------
    clock_mhz : float, optional
        The clock at which times are modelled; the part's boost clock by default. On a real board, a
        dense product runs well below the boost clock.
    sample : int, optional
        Run at most this many workgroups of each launch, and scale its counts to the whole grid; the
        modelled time is that of the grid. The other workgroups write nothing, so the results are
        incomplete. Workgroups must not wait for each other. Misses in L2 and bytes of HBM are upper
        bounds. By default all workgroups run.

    Yields
    ------
    Profile
        Each launch adds a profile to it.

    Raises
    ------
    ValueError
        The clock or the sample is not positive.

    Examples
    --------
    >>> from cupygemm import emulator
    >>> with emulator.profile() as p:  # doctest: +SKIP
    ...     c = a @ b
    >>> print(p)  # doctest: +SKIP
    """
    if clock_mhz is not None and clock_mhz <= 0:
        raise ValueError(f"clock_mhz={clock_mhz}: the clock must be positive")
    if sample is not None and sample < 1:
        raise ValueError(f"sample={sample}: the sample must be at least 1 workgroup")
    collected = Profile(clock_mhz, sample)
    run_deferred()
    active.append(collected)
    try:
        yield collected
        run_deferred()
    finally:
        active.remove(collected)


def profile_loop(
    code: bytes | str | Path,
    kernel: str | None = None,
    *,
    threads: int | None = None,
    staggered: bool | None = None,
    memory_latency: int = MEMORY_LATENCY,
    conflicts: Mapping[int, float] | None = None,
) -> LoopProfile:
    """Count the main loop of a kernel: MFMA, issue, LDS and memory of one iteration.

    The main loop is the innermost loop with the most MFMA cycles. If that loop's trip count follows
    from the code, the loop around it is counted instead, with all iterations of the inner one.

    Parameters
    ----------
    code : bytes, str or Path
        A code object or its path.
    kernel : str, optional
        The kernel's name; required if the code object holds several kernels.
    threads : int, optional
        Work-items of a workgroup; by default, the maximum for which the kernel was compiled.
    staggered : bool, optional
        Whether half of the waves run one segment behind the others. By default, True if a branch
        that depends on the wave skips a barrier before the loop.
    memory_latency : int
        Cycles from a load to its data. With 0, waits for global memory are not counted.
    conflicts : mapping of int to float, optional
        LDS cycles that bank conflicts add to a wave's instruction, by the instruction's offset from
        the kernel's entry. Without running the kernel, the addresses and so the conflicts are
        unknown.

    Returns
    -------
    LoopProfile

    Raises
    ------
    ValueError
        The code object has no such kernel, or the kernel has no loop with MFMA.
    cupygemm.emulator.EmulatorError
        The bytes are not a code object, or hold an unknown instruction.
    """
    from cupygemm.emulator import code_object
    from cupygemm.emulator.memory.allocations import Memory
    from cupygemm.emulator.profiling.loop import count_loop

    data = code if isinstance(code, bytes) else Path(code).read_bytes()
    memory = Memory()
    try:
        kernels = code_object.load(data, memory).kernels
        if kernel is None and len(kernels) == 1:
            (kernel,) = kernels
        if kernel not in kernels:
            names = ", ".join(kernels) or "none"
            raise ValueError(f"the code object has no kernel {kernel!r}; its kernels: {names}")
        found = kernels[kernel]
        return count_loop(
            found,
            threads=threads or found.max_threads,
            staggered=staggered,
            memory_latency=memory_latency,
            conflicts=conflicts or {},
        )
    finally:
        memory.close()
