"""A kernel launch as the work of a stream or of a graph's node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cupygemm.emulator.concurrency.stream_order import Operation
from cupygemm.emulator.device import Device

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Kernel


@dataclass(frozen=True)
class KernelLaunch:
    """The work of a launch, and its parameters.

    Attributes
    ----------
    device : Device
    function : int
        The handle of the function, or the address of its stub in the program.
    kernel : Kernel
    grid, block : tuple of int
    dynamic_lds : int
    values : tuple of bytes
        The explicit arguments.
    cooperative : bool
    """

    device: Device
    function: int
    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_lds: int
    values: tuple[bytes, ...]
    cooperative: bool

    def __call__(self, place: Operation) -> None:
        """Launch the kernel at a place in a stream."""
        self.device.launch(
            self.kernel, self.grid, self.block, self.dynamic_lds, list(self.values), place,
            cooperative=self.cooperative,
        )  # fmt: skip
