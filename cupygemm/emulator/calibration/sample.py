"""Estimate the time of a large product from one emulated workgroup at two short depths.

A workgroup takes a constant number of cycles, plus a constant number for each step of k. Two depths
determine both. The model simulates a launch of many workgroups as copies of this one, in rounds, at
the clock to which power limits it. The workgroups' sharing in the caches follows from the order of
their tiles (`timing.tile_order`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cupygemm.emulator.profiling.kernel_profile import KernelProfile
from cupygemm.emulator.profiling.timing.model import model
from cupygemm.emulator.profiling.timing.power import ELSEWHERE, Fitted, Power
from cupygemm.emulator.profiling.timing.tile_order import Shares, Tiling, derive
from cupygemm.emulator.profiling.timing.workload import Workload
from cupygemm.emulator.targets import TARGETS


@dataclass(frozen=True, kw_only=True)
class Product:
    """A product with a published speed.

    Attributes
    ----------
    m, n, k : int
    tiling : Tiling
    power : Power
        The board and the operands.
    work : float
        Steps of k of the measured kernel, and so its matrix instructions and cycles, relative to
        the emulated one.
    slowdown : float
        Cycles of the measured kernel for the same work, relative to the emulated one.
    """

    m: int
    n: int
    k: int
    tiling: Tiling
    power: Power = ELSEWHERE["MI300X", "bf16", "normal"]
    work: float = 1.0
    slowdown: float = 1.0


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
    memory : float
        Bytes from HBM per cycle of a CU.
    power : Power
    """

    cycles: float
    clock_mhz: float
    tflops: float
    matrix_share: float
    memory: float
    power: Power

    def tflops_at(self, fitted: Fitted) -> float:
        """Return the speed at the clock from other fitted constants.

        Parameters
        ----------
        fitted : Fitted
        """
        clock = self.power.clock_mhz(self.matrix_share, self.memory, fitted)
        return self.tflops * clock / self.clock_mhz


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
    target = TARGETS[profiles[0].target]
    workgroups = len(product.tiling.order)
    resident = min(profiles[0].occupancy.workgroups, -(-workgroups // target.num_cus))
    shares = derive(product.tiling, profiles[0].target, resident)
    workloads = [_workload(profile, shares, workgroups, resident) for profile in profiles]
    clock = clock_mhz or float(target.clock_mhz)
    for again in range(1 if clock_mhz else 4):
        # The clock determines the latencies, which in turn change the clock slightly.
        cycles, share = _extrapolate(workloads, depths, product.k, clock)
        cycles, share = cycles * product.work * product.slowdown, share / product.slowdown
        memory = shares.memory_bytes / (cycles * target.num_cus)
        if not clock_mhz and again < 3:
            clock = product.power.clock_mhz(share, memory)
    flop = 2 * product.m * product.n * product.k
    return Estimate(
        cycles=cycles,
        clock_mhz=clock,
        tflops=flop / (cycles / clock) / 1e6,
        matrix_share=share,
        memory=memory,
        power=product.power,
    )


def _workload(profile: KernelProfile, shares: Shares, workgroups: int, resident: int) -> Workload:
    """Return the workload of the product at the profile's depth, as copies of one workgroup."""
    if profile.timing is None:
        raise RuntimeError(f"{profile.kernel}: no modelled time")
    one = profile.timing.workload
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
