"""Estimate the time of a large product from one emulated workgroup at two short depths.

A workgroup takes a constant number of cycles, and the same number for each step of k. Two depths
determine both. The model simulates a launch of many workgroups as copies of this one, in rounds, at
the clock to which power limits it. What the workgroups share in the caches follows from the order
of their tiles (`timing.tile_order`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cupygemm.emulator.profiling.kernel_profile import KernelProfile
from cupygemm.emulator.profiling.timing.model import model
from cupygemm.emulator.profiling.timing.power import POWER
from cupygemm.emulator.profiling.timing.tile_order import Tiling, derive
from cupygemm.emulator.profiling.timing.workload import Workload
from cupygemm.emulator.targets import TARGETS


@dataclass(frozen=True, kw_only=True)
class Product:
    """The product that others measured.

    Attributes
    ----------
    m, n, k : int
    tiling : Tiling
    board, dtype, operands : str
        A key of `POWER`.
    """

    m: int
    n: int
    k: int
    tiling: Tiling
    board: str = "MI300X"
    dtype: str = "bf16"
    operands: str = "normal"


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
        By default the clock to which power limits the product.
    """
    power, clock = POWER[product.board, product.dtype, product.operands], clock_mhz or 0.0
    clock = clock or float(TARGETS[profiles[0].target].clock_mhz)
    workgroups, cus = len(product.tiling.order), TARGETS[profiles[0].target].num_cus
    resident = min(profiles[0].occupancy.workgroups, -(-workgroups // cus))
    workloads = [_workload(profile, product, resident) for profile in profiles]
    cycles, share = _extrapolate(workloads, depths, product.k, clock)
    if clock_mhz is None:
        for _ in range(3):  # the clock determines the latencies, which slightly change the clock
            clock = power.clock_mhz(share)
            cycles, share = _extrapolate(workloads, depths, product.k, clock)
    flop = 2 * product.m * product.n * product.k
    return Estimate(
        cycles=cycles,
        clock_mhz=clock,
        tflops=flop / (cycles / clock) / 1e6,
        matrix_share=share,
    )


def _workload(profile: KernelProfile, product: Product, resident: int) -> Workload:
    """Return the workload of the product at the profile's depth, as copies of one workgroup."""
    if profile.timing is None:
        raise RuntimeError(f"{profile.kernel}: no modelled time")
    one, shares = profile.timing.workload, derive(product.tiling, profile.target, resident)
    workgroups = len(product.tiling.order)
    fabric, memory = (
        beyond / shares.l2_bytes for beyond in (shares.fabric_bytes, shares.memory_bytes)
    )
    return replace(
        one.repeated(resident),
        workgroups=workgroups,
        l2_bytes=one.l2_bytes * workgroups,
        fabric_bytes=int(one.l2_bytes * workgroups * fabric),
        memory_bytes=int(one.l2_bytes * workgroups * memory),
        fabric_share=fabric,
        memory_share=memory,
        waits=shares.waits,
    )


def _extrapolate(
    workloads: Sequence[Workload], depths: tuple[int, int], k: int, clock: float
) -> tuple[float, float]:
    """Return the cycles of the product, and the share of them with busy matrix units."""
    timings = [model(workload, clock)[0] for workload in workloads]
    found = [(timing.cycles, timing.cycles * timing.matrix_share) for timing in timings]
    (a, b), (short, deep) = found, depths
    left = (k - deep) / (deep - short)
    cycles, matrix = (high + left * (high - low) for low, high in zip(a, b, strict=True))
    return cycles, matrix / cycles
