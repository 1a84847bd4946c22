"""Whether a product's kernel may start before the previous work has ended (`enqueue`).

Early starts hide the microsecond between two kernels. But if a launch leaves many SMs idle, the
next launch's blocks start on these, and so on other SMs than in the previous call. Each half of L2
keeps its own copy of the data that its SMs read. When the readers change from call to call, both
halves eventually need all of an operand, and an operand larger than half of L2 does not stay. In
order, the placement of blocks repeats, and so do the contents of each half.

Measured on an H200 (60 MB of L2, driver 580.159.04, 2026-11-27), in order compared with early:
kernels without clusters whose 67 to 100 blocks read 36 to 46 MB take 0.69 of the time warm and 0.96
cold, and 0.79 and 0.90 if they read 46 to 60 MB. Kernels of 101 blocks and more, and most kernels
that read less, take 1.05 to 1.2 times as long in order.
"""

from __future__ import annotations

from cupygemm._backends.hopper.config import LINE_BYTES, HopperConfig, num_clusters
from cupygemm._records.dtypes import ITEMSIZE
from cupygemm._records.problem import GemmProblem

_BUSY = 0.77  # of the SMs, at most: more would leave too few idle ones for most of the next blocks
_LEAST_OF_L2, _MOST_OF_L2 = 0.58, 1.0
_FEW_ROWS = 64  # more of them keep the tensor cores busy, and L2 matters less


def starts_early(
    config: HopperConfig, problem: GemmProblem, *, num_sms: int, l2_bytes: int
) -> bool:
    """Return whether a kernel's launch may start early.

    Parameters
    ----------
    config : HopperConfig
    problem : GemmProblem
        The product as the kernel computes it.
    num_sms, l2_bytes : int
        Of the GPU.
    """
    p = problem
    size = ITEMSIZE[p.a_dtype]
    read, written = (p.m + p.n) * p.k * size, p.m * p.n * ITEMSIZE[p.out_dtype]
    moved = (read + written) * p.num_batches
    if min(p.m, p.n) > _FEW_ROWS or not _LEAST_OF_L2 <= moved / l2_bytes <= _MOST_OF_L2:
        return True
    if config.split_k > 1 or config.stream_k:  # a kernel follows, or the SMs are busy
        return True
    clusters = min(config.num_units(p), num_clusters(num_sms, config.cluster_size))
    if clusters * config.cluster_size > _BUSY * num_sms:
        return True
    # Tiles that share cache lines with their neighbours are read twice by blocks that drift apart.
    across = ((config.tile_m, p.a_major), (config.tile_n, p.b_major))
    return any(major != "k" and tile * size % LINE_BYTES for tile, major in across)
