"""A large product from one emulated workgroup and two short depths.

A workgroup costs a fixed number of cycles and as many for each step of k; both follow from two
depths. Of a launch of many workgroups the model sees copies of that one, in rounds, at the clock
that power leaves. What L2 misses comes from an emulation of the whole grid, once: `FABRIC_SHARE`
and `MEMORY_SHARE` of the bytes asked of L2 for 128 x 128 tiles of 4096 x 4096 in row-major order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cupygemm.emulator.profiling.record import KernelProfile
from cupygemm.emulator.profiling.timing.machine import MACHINES
from cupygemm.emulator.profiling.timing.model import model
from cupygemm.emulator.targets import TARGETS

FABRIC_SHARE, MEMORY_SHARE = 0.2135, 1 / 32


@dataclass(frozen=True)
class Product:
    """What was measured.

    Attributes
    ----------
    m, n, k : int
    workgroups : int
    """

    m: int
    n: int
    k: int
    workgroups: int


@dataclass(frozen=True)
class Estimate:
    """The modelled time of a product.

    Attributes
    ----------
    cycles : float
    clock_mhz : float
    tflops : float
    matrix_share : float
        Of the device's cycles, in which matrix units work.
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
        Of one workgroup, at two depths.
    depths : (int, int)
    product : Product
    clock_mhz : float, optional
        By default the clock that power leaves, where there is a fit, else the boost clock.
    """
    target = profiles[0].target
    power, clock = MACHINES[target].power, float(clock_mhz or TARGETS[target].clock_mhz)
    cycles, share = _extrapolate(profiles, depths, product, clock)
    if clock_mhz is None and power is not None:
        for _ in range(3):  # the clock decides about latencies, and they a little about the clock
            clock = power.clock_mhz(share)
            cycles, share = _extrapolate(profiles, depths, product, clock)
    flop = 2 * product.m * product.n * product.k
    return Estimate(cycles, clock, flop / (cycles / clock) / 1e6, share)


def _extrapolate(
    profiles: tuple[KernelProfile, KernelProfile],
    depths: tuple[int, int],
    product: Product,
    clock: float,
) -> tuple[float, float]:
    """Return the cycles of the product, and the share of them in which matrix units work."""
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
