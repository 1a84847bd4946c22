"""The interconnects between the devices of one host, a table for the cost models of groups.

A figure is measured or modelled, as its row states. The time of a step of sends and receives is a
latency plus the bytes of a device divided by its bandwidth, to one peer or to all peers together,
whichever takes longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Interconnect:
    """The links between the devices of one host, and the rate at which a device computes.

    Attributes
    ----------
    name : str
    pair_gbs, total_gbs : float
        GB/s that a device receives from one peer, and from all peers together.
    latency_us : float
        Microseconds of a step of sends and receives in addition to the transfer of its bytes.
    tflops : float
        The rate of large products of 16-bit operands, in 10**12 operations per second.
    figures : {"measured", "modelled"}
    source : str
        Where the figures come from.
    copy_gbs, copy_latency_us : float
        The bandwidth and the latency of copies by copy engines to the memory of a peer; 0 if not
        measured.
    store_gbs, store_latency_us : float
        The same for a kernel that stores to the memory of all peers, its flags included.
    units, nccl_units : int
        The compute units of a device, and the number that products leave to the kernels of NCCL or
        RCCL while they overlap.
    nccl_overlaps : bool
        Whether it is faster to multiply while NCCL or RCCL move data between devices of one host.
    """

    name: str
    pair_gbs: float
    total_gbs: float
    latency_us: float
    tflops: float
    figures: Literal["measured", "modelled"]
    source: str
    copy_gbs: float = 0.0
    copy_latency_us: float = 0.0
    store_gbs: float = 0.0
    store_latency_us: float = 0.0
    units: int = 1
    nccl_units: int = 0
    nccl_overlaps: bool = True

    @property
    def copies(self) -> Interconnect | None:
        """Return the links with the figures of copy engines; None if not measured."""
        return self._used_at(self.copy_gbs, self.copy_latency_us)

    @property
    def stores(self) -> Interconnect | None:
        """Return the links with the figures of stores by kernels; None if not measured."""
        return self._used_at(self.store_gbs, self.store_latency_us)

    def _used_at(self, gbs: float, latency_us: float) -> Interconnect | None:
        if not gbs:
            return None
        return replace(self, pair_gbs=gbs, total_gbs=gbs, latency_us=latency_us)

    def step_seconds(self, received: Iterable[int]) -> float:
        """Return the time of a step in which a device receives these bytes from its peers."""
        counts = [count for count in received if count]
        if not counts:
            return 0.0
        transfer = max(max(counts) / self.pair_gbs, sum(counts) / self.total_gbs)
        return 1e-6 * self.latency_us + 1e-9 * transfer

    def product_seconds(self, flops: float, itemsize: int) -> float:
        """Return the time of a product; the rate is inversely proportional to the item size."""
        return flops / (self.tflops * 1e12 * 2 / itemsize)


NVLINK_H200 = Interconnect(
    name="four H200 on NVLink",
    pair_gbs=320,
    total_gbs=320,
    latency_us=30,
    tflops=696,
    figures="measured",
    # NCCL gathered 25, 101 and 403 MB from three peers in 108, 389 and 1263 us. Copies in a ring
    # move 8, 32 and 128 MiB at 332, 374 and 388 GB/s, and a flag follows in 6 to 12 us.
    source="four NVIDIA H200, NCCL 2.28.9, driver 580.159.04, 2026-11-26",
    copy_gbs=380,
    copy_latency_us=14,
    # Calls whose rows a kernel stores took 24 to 292 us with 1.6 to 25 MB, 2026-11-27.
    store_gbs=280,
    store_latency_us=10,
    units=132,
    nccl_units=16,
    # Parts of 16384**3 took 5.0 ms while NCCL sent and received, with 16 units left to it (5.7 with
    # none), and 4.5 ms after all rows were gathered.
    nccl_overlaps=False,
)
XGMI_MI300X = Interconnect(
    name="eight MI300X on xGMI, each linked to every other",
    pair_gbs=48,
    total_gbs=7 * 48,
    latency_us=30,
    tflops=654,  # half of the peak, 1307
    figures="modelled",
    source=(
        "48 of 64 GB/s per link and direction, seven links: "
        "rocm.blogs.amd.com/software-tools-optimization/mi300x-rccl-xgmi; latency assumed"
    ),
)
PCIE = Interconnect(
    name="PCIe 5.0 x16",
    pair_gbs=50,
    total_gbs=50,
    latency_us=30,
    tflops=500,
    figures="modelled",
    source="64 GB/s per direction by the standard, less overhead; latency and rate assumed",
)
"""The default, for devices with unknown links."""
