"""The mainloops of the CDNA kernels: what each asks of a configuration, and those that are built.

A mainloop is a file of device code, ``kernels/cdna/mainloop_<name>.hpp``, and a module here of the
same name. `cupygemm._config.check` asks it about a configuration; `cupygemm._config.configs_for`
collects the configurations of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from cupygemm._arch import Arch
from cupygemm._config import GemmConfig
from cupygemm._mainloops import (
    direct_to_lds,
    direct_to_register,
    ping_pong,
    register_double_buffer,
)
from cupygemm._problem import DType, GemmProblem


class Mainloop(Protocol):
    """What the module of a mainloop offers."""

    NAME: str
    ROW_PARTS: int
    """Parts that the rows of a tile are cut into; a wave has as many rows of each."""

    def check(self, config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
        """Return why the mainloop cannot run the configuration, or None if it can."""

    def configs(self, dtype: DType, arch: str) -> tuple[GemmConfig, ...]:
        """Return the configurations that are built for inputs of a type."""

    def lds_bytes(self, config: GemmConfig, itemsize: int) -> int:
        """Return the LDS of a workgroup for operands of `itemsize` bytes."""

    def lds_traffic(self, config: GemmConfig, itemsize: int) -> int:
        """Return the bytes that a workgroup moves to and from LDS in a step of tile_k."""

    def idle_cycles(self, config: GemmConfig) -> int:
        """Return the cycles of a tile_k step in which the matrix units of a CU have nothing to do.

        That is of one workgroup alone on its CU, its loads in time; for the cost model.
        """

    def tiles_ahead(self, config: GemmConfig) -> int:
        """Return how many tiles are on their way from memory while one is multiplied."""


_MODULES: tuple[Mainloop, ...] = (
    register_double_buffer,
    ping_pong,
    direct_to_lds,
    direct_to_register,
)
MAINLOOPS: Mapping[str, Mainloop] = MappingProxyType({module.NAME: module for module in _MODULES})
"""The mainloops by name."""
