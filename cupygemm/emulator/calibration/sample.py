"""Estimate the time of a large product from one emulated workgroup at two short depths.

A workgroup takes a constant number of cycles, and the same number for each step of k. Two depths
determine both. The model simulates a launch of many workgroups as copies of this one, in rounds, at
the clock to which power limits it. The L2 misses are from one emulation of the whole grid:
`FABRIC_SHARE` and `MEMORY_SHARE` are shares of the bytes requested from L2, for tiles of 128 x 128
of a product of 4096 x 4096 in row-major order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cupygemm.emulator.profiling.kernel_profile import KernelProfile
from cupygemm.emulator.profiling.timing.machine import MACHINES
from cupygemm.emulator.profiling.timing.model import model
from cupygemm.emulator.targets import TARGETS

FABRIC_SHARE, MEMORY_SHARE = 0.2135, 1 / 32


@dataclass(frozen=True, kw_only=True)
class Product:
    """The product that others measured.

    Attributes
    ----------
    m, n, k : int
    workgroups : int
    """

    m: int
    n: int
    k: int
    workgroups: int


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The modelled time of a product.

    Attributes
    ----------
    cycles : float
    clock_mhz : float
    tflops : float
    matrix_share : float
        Share of the device's cycles in which matrix units are busy.
    """

    cycles: float
    clock_mhz: float
    tflops: float
    matrix_share: float


def estimate(
    profiles: tuple[KernelProfile, KernelProfile],
    depths: tuple[int, int],
    product: Product,
    clock_mhz: float | None = None,
) -> Estimate:
    """Return the modelled time of a product.

    Parameters
    ----------
    profiles : (KernelProfile, KernelProfile)
        Profiles of one workgroup at two depths.
    depths : (int, int)
    product : Product
    clock_mhz : float, optional
        By default the clock to which power limits the product, or the boost clock without a fit.
    """
    target = profiles[0].target
    power, clock = MACHINES[target].power, float(clock_mhz or TARGETS[target].clock_mhz)
    cycles, share = _extrapolate(profiles, depths, product, clock)
    if clock_mhz is None and power is not None:
        for _ in range(3):  # the clock determines the latencies, which slightly change the clock
            clock = power.clock_mhz(share)
            cycles, share = _extrapolate(profiles, depths, product, clock)
    flop = 2 * product.m * product.n * product.k
    return Estimate(
        cycles=cycles,
        clock_mhz=clock,
        tflops=flop / (cycles / clock) / 1e6,
        matrix_share=share,
    )


def _extrapolate(
    profiles: tuple[KernelProfile, KernelProfile],
    depths: tuple[int, int],
    product: Product,
    clock: float,
) -> tuple[float, float]:
    """Return the cycles of the product, and the share of them with busy matrix units."""
    found = []
    for profile in profiles:
        if profile.timing is None:
            raise RuntimeError(f"{profile.kernel}: no modelled time")
        cus = TARGETS[profile.target].num_cus
        resident = min(profile.occupancy.workgroups, -(-product.workgroups // cus))
        workload = replace(
            profile.timing.workload.repeated(resident),
            workgroups=product.workgroups,
            fabric_share=FABRIC_SHARE,
            memory_share=MEMORY_SHARE,
        )
        timing, _ = model(workload, clock)
        found.append((timing.cycles, timing.cycles * timing.matrix_share))
    (a, b), (short, deep) = found, depths
    left = (product.k - deep) / (deep - short)
    cycles, matrix = (high + left * (high - low) for low, high in zip(a, b, strict=True))
    return cycles, matrix / cycles
