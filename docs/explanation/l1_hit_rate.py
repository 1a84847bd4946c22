"""Draw the pictures of the page "Why is my L1 hit rate 0 %?", from emulated figures.

    python docs/explanation/l1_hit_rate.py      (in an environment with cupygemm[emulator,plot])

It profiles the page's kernel for several strides on an emulated MI300X, and writes
``l1_sets.svg`` and ``l1_strides.svg`` beside itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

import cupygemm.emulator

cupygemm.emulator.enable("gfx942")

import cupy as cp  # noqa: E402  # after the emulated device

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "l1_hit_rate"  # the same picture gives the same file
mpl.rcParams["svg.fonttype"] = "none"

from matplotlib import pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
LINE, SETS, WAYS, ROWS = 128, 4, 64, 256
SOURCE = r"""
extern "C" __global__ void tiles(const uint4* a, uint4* out, int row_vectors, int steps) {
    __shared__ uint4 tile[256][4];                     // 256 rows of 32 bf16: 64 bytes each
    for (int step = 0; step < steps; ++step) {
        for (int i = threadIdx.x; i < 1024; i += 256)  // 4 lanes read the 64 bytes of a row
            tile[i / 4][i % 4] = a[(i / 4) * row_vectors + 4 * step + i % 4];
        __syncthreads();
        out[threadIdx.x] = tile[threadIdx.x][step % 4];
        __syncthreads();
    }
}
"""


def profiled(k: int) -> Any:
    """Return the profile of the kernel on 256 rows of `k` bf16."""
    kernel = cp.RawKernel(SOURCE, "tiles")
    a, out = cp.zeros((ROWS, k), np.uint16), cp.zeros((256, 8), np.uint16)
    with cupygemm.emulator.profile() as profile:
        kernel((1,), (256,), (a, out, np.int32(k // 8), np.int32(8)))
    return profile.kernels[0]


def draw_sets(path: Path) -> None:
    """Draw which sets the first lines of the 256 rows fall into, for two strides."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
    for axis, k in zip(axes, (8192, 8256), strict=True):
        lines = np.arange(ROWS) * (2 * k // LINE)
        counts = np.bincount(lines % SETS, minlength=SETS)
        hit_rate = profiled(k).global_memory.l1_hit_rate
        axis.bar(range(SETS), counts, color=["#b2182b" if n > WAYS else "#2166ac" for n in counts])
        axis.axhline(WAYS, color="black", linestyle="--", linewidth=1)
        axis.text(3.45, WAYS + 4, "64 ways", ha="right", fontsize=8)
        axis.set_title(
            f"K = {k}: rows {2 * k:,} bytes = {2 * k // LINE} lines apart\n"
            f"vL1D hit rate {hit_rate:.0%}",
            fontsize=9,
        )
        axis.set_xticks(range(SETS), [f"set {n}" for n in range(SETS)])
    axes[0].set_ylabel("lines of the 256 rows")
    figure.savefig(path, metadata={"Date": None})


def draw_strides(path: Path) -> None:
    """Draw the hits and the causes of misses over the distance of the rows."""
    strides = list(range(8192, 8192 + 33 * 8, 8))
    shares = []
    for k in strides:
        traffic = profiled(k).global_memory.traffic
        shares.append(
            [
                traffic.l1_hits / traffic.l1_reads,
                traffic.l1_compulsory / traffic.l1_reads,
                traffic.l1_capacity / traffic.l1_reads,
                traffic.l1_conflict / traffic.l1_reads,
            ]
        )
    figure, axis = plt.subplots(figsize=(8, 3.2), layout="constrained")
    labels = ("hits", "compulsory misses", "capacity misses", "conflict misses")
    colors = ("#2166ac", "#bbbbbb", "#f4a582", "#b2182b")
    bottom = np.zeros(len(strides))
    for values, label, color in zip(np.array(shares).T, labels, colors, strict=True):
        axis.bar([2 * k for k in strides], values, 14, bottom, label=label, color=color)
        bottom += values
    axis.set_xlabel("bytes between rows")
    axis.set_ylabel("share of load requests")
    axis.set_xticks(range(2 * strides[0], 2 * strides[-1] + 1, LINE // 2))
    axis.tick_params(axis="x", labelsize=8)
    axis.legend(fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.18), frameon=False)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw_sets(HERE / "l1_sets.svg")
    draw_strides(HERE / "l1_strides.svg")
