"""Profile kernels on the emulated device: what they execute, what they ask of memory, what waits.

    with cupygemm.emulator.profile() as p:
        c = a @ b                      # any CuPy code
    print(p)                           # a table; p.listing(), p.to_dict(), p.roofline("r.png")

    recorder ─► build ─► KernelProfile ─► tables, listing, export, roofline
    (a launch)           (record.py)

Everything is *computed* or *emulated*; there are no times.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cupygemm.emulator.profiling.record import KernelProfile

__all__ = ["Profile", "profile"]


class Profile:
    """The profiles of the launches of a stretch of code.

    Attributes
    ----------
    launches : list of KernelProfile
        One for each launch that ended well, in their order.
    """

    def __init__(self) -> None:
        self.launches: list[KernelProfile] = []

    def __repr__(self) -> str:
        return f"Profile({len(self.launches)} launches of {len(self.kernels)} kernels)"

    def __str__(self) -> str:
        from cupygemm.emulator.profiling.tables import render

        return render(self.kernels)

    @property
    def kernels(self) -> list[KernelProfile]:
        """Return the launches merged by kernel, in the order of their first launch.

        Launches are of one kernel if name, code, block and LDS are the same.
        """
        from cupygemm.emulator.profiling.record import merge_key

        result: dict[Any, KernelProfile] = {}
        for launch in self.launches:
            key = merge_key(launch)
            result[key] = result[key].merged(launch) if key in result else launch
        return list(result.values())

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
            ``kernels`` is a list of what `KernelProfile.to_dict` returns.
        """
        return {"kernels": [kernel.to_dict() for kernel in self.kernels]}

    def roofline(self, path: str | Path) -> None:
        """Draw the kernels under the roofline of their device, and save the picture.

        It shows what the counted FLOP per byte allow at most; nothing in it is a measured speed.

        Parameters
        ----------
        path : str or Path
            A file name that ends in ``.png``, ``.svg`` or ``.pdf``.

        Raises
        ------
        ModuleNotFoundError
            matplotlib is not installed.
        ValueError
            No kernel does floating-point operations.
        """
        from cupygemm.emulator.profiling.roofline import draw

        draw(self.kernels, Path(path))


@contextmanager
def profile() -> Iterator[Profile]:
    """Collect a profile of every launch on the emulated device inside a ``with`` block.

    Launches are slower inside, and as fast as ever outside. Blocks may be nested.

    Yields
    ------
    Profile
        It fills as kernels are launched.

    Examples
    --------
    >>> from cupygemm import emulator
    >>> with emulator.profile() as p:  # doctest: +SKIP
    ...     c = a @ b
    >>> print(p)  # doctest: +SKIP
    """
    from cupygemm.emulator import run

    collected = Profile()
    run.observers.append(collected.launches.append)
    try:
        yield collected
    finally:
        run.observers.remove(collected.launches.append)
