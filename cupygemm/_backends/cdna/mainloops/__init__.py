"""The mainloops of the CDNA kernels: their limits, and the configurations that are built.

A mainloop is a file of device code, ``kernels/cdna/mainloop_<name>.hpp``, and a module of this
package with the same name. `cupygemm._backends.cdna.check` calls its `check`, and `configs_for`
collects the configurations of all mainloops.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from cupygemm._backends.cdna.arch import ARCHS, Arch
from cupygemm._backends.cdna.config import WAVE_SIZE, GemmConfig
from cupygemm._backends.cdna.mainloops import (
    direct_to_lds,
    direct_to_register,
    ping_pong,
    register_double_buffer,
)
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem


class Mainloop(Protocol):
    """The interface of a mainloop's module."""

    NAME: str
    ROW_BANDS: int
    """Bands into which the rows of a tile are divided; each wave has equally many rows of each."""
    TAKES_BLOCK_SCALES: bool
    """Whether it supports instructions with scales for blocks of k."""

    def check(self, config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
        """Return why the mainloop cannot run the configuration, or None if it can."""

    def configs(self, dtype: DType, arch: str) -> tuple[GemmConfig, ...]:
        """Return the configurations that are built for inputs of a type."""

    def lds_bytes(self, config: GemmConfig, itemsize: int) -> int:
        """Return the LDS of a workgroup for operands of `itemsize` bytes."""

    def lds_traffic(self, config: GemmConfig, itemsize: int) -> int:
        """Return the bytes that a workgroup moves to and from LDS in a step of tile_k."""

    def idle_cycles(self, config: GemmConfig) -> int:
        """Return the cycles of a tile_k step in which the matrix units of a CU are idle.

        The cost model needs them for one workgroup alone on its CU whose loads arrive in time.
        """

    def tiles_ahead(self, config: GemmConfig) -> int:
        """Return the number of tiles being loaded from memory while one is multiplied."""


_MODULES: tuple[Mainloop, ...] = (
    register_double_buffer,
    ping_pong,
    direct_to_lds,
    direct_to_register,
)
MAINLOOPS: Mapping[str, Mainloop] = MappingProxyType({module.NAME: module for module in _MODULES})
"""The mainloops by name."""


def mainloop_of(config: GemmConfig) -> Mainloop:
    """Return the mainloop of a configuration."""
    return MAINLOOPS[config.mainloop]


def resident_workgroups(config: GemmConfig, arch: Arch, itemsize: int) -> int:
    """Return the number of workgroups that fit on a CU, as limited by LDS and by registers."""
    waves = config.num_threads // WAVE_SIZE
    by_lds = arch.lds_bytes // mainloop_of(config).lds_bytes(config, itemsize)
    by_registers = config.waves_per_simd * arch.simds_per_cu // waves
    return max(1, min(by_lds, by_registers))


def raster_group(config: GemmConfig, arch: Arch, itemsize: int) -> int:
    """Return the `group_m` with which the workgroups of an XCD share most of their operands.

    The workgroups that run together on an XCD have neighbouring tiles, which form a block as high
    as a group. Their rows of A and columns of B have the fewest bytes if that block is as high as
    it is wide, in elements. The result is rounded to a power of two, since neighbouring values
    differ little.
    """
    together = arch.num_cus / arch.num_xcds * resident_workgroups(config, arch, itemsize)
    return 1 << max(0, round(math.log2(together * config.tile_n / config.tile_m) / 2))


@functools.cache
def configs_for(dtype: DType, arch: str) -> tuple[GemmConfig, ...]:
    """Return the configurations that the selector chooses from, by the type of the inputs."""
    return tuple(
        replace(config, group_m=raster_group(config, ARCHS[arch], ITEMSIZE[dtype]))
        for mainloop in MAINLOOPS.values()
        for config in mainloop.configs(dtype, arch)
    )
