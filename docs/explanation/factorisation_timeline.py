"""Draw the timeline of an LU factorisation, from modelled times of its kernels.

    python docs/explanation/factorisation_timeline.py   (with cupygemm[emulator,plot])

It profiles the factorisation of a matrix of 512 rows in float64 on an emulated MI300X, and writes
``factorisation_timeline.svg`` beside itself. The kernels of both streams are taken to find free
compute units at once, and launches to take no time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib as mpl
import numpy as np

import cupygemm.emulator

cupygemm.emulator.enable("gfx942")

import cupy as cp  # noqa: E402  # after the emulated device

from cupygemm._solvers.common import ahead, blocks  # noqa: E402
from cupygemm._solvers.common.matrices import copied  # noqa: E402
from cupygemm._solvers.lu import lu  # noqa: E402

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "factorisation_timeline"  # the same picture gives the same file
mpl.rcParams["svg.fonttype"] = "none"

from matplotlib import pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
N = 512
KINDS = {
    "cupygemm_lu_panel": ("panel", "#b2182b"),
    "cupygemm_panel_update": ("update inside a panel", "#f4a582"),
    "cupygemm_swap_moves": ("swaps", "#92c5de"),
    "cupygemm_swap_rows": ("swaps", "#92c5de"),
    "cupygemm_triangular_solve": ("triangular system", "#4d9221"),
}
PRODUCT = ("product", "#2166ac")


@dataclass(frozen=True)
class Span:
    """A launch on a stream, in microseconds."""

    stream: int
    start: float
    end: float
    kernel: str


def profiled() -> tuple[list[tuple[str, float]], list[tuple[int, str]]]:
    """Return the launches in order, and before which of them streams fork and join."""
    marks: list[tuple[int, str]] = []
    a = cp.asarray(np.random.default_rng(0).standard_normal((N, N)))
    matrices = copied(a, a.dtype)
    blocks.LIMITS = replace(blocks.LIMITS, ahead=64, tail=64)
    with cupygemm.emulator.profile() as profile:

        @contextmanager
        def marked(work: Callable[[], object], *_: int) -> Iterator[None]:
            marks.append((len(profile.launches), "fork"))
            work()
            marks.append((len(profile.launches), "back"))
            yield
            marks.append((len(profile.launches), "join"))

        lu.beside = marked
        lu.factor(matrices)
        lu.beside = ahead.beside
    return [(each.kernel, each.timing.seconds * 1e6) for each in profile.launches], marks


def scheduled(
    launches: list[tuple[str, float]], marks: list[tuple[int, str]], *, streams: bool
) -> list[Span]:
    """Return when each launch runs, on one stream or on two."""
    clocks, current, spans = [0.0, 0.0], 0, []
    for index, (kernel, time) in enumerate(launches):
        for _, mark in [each for each in marks if streams and each[0] == index]:
            current = int(mark == "fork")
            if mark == "fork":
                clocks[1] = max(clocks)
            elif mark == "join":
                clocks[0] = max(clocks)
        start = clocks[current]
        clocks[current] = start + time
        spans.append(Span(current, start, clocks[current], kernel))
    return spans


def draw(path: Path) -> None:
    """Draw both schedules below each other, and print how long they are."""
    launches, marks = profiled()
    figure, axis = plt.subplots(figsize=(8, 2.6), layout="constrained")
    rows = {(False, 0): 2, (True, 0): 1, (True, 1): 0}
    seen = {}
    for streams in (False, True):
        spans = scheduled(launches, marks, streams=streams)
        name = "two streams" if streams else "one stream"
        sys.stdout.write(f"{name}: {max(span.end for span in spans):.0f} us\n")
        for span in spans:
            label, color = KINDS.get(span.kernel, PRODUCT)
            bar = axis.barh(
                rows[streams, span.stream], span.end - span.start, 0.8, span.start, color=color
            )
            seen.setdefault(label, bar)
    totals: dict[str, float] = {}
    for kernel, time in launches:
        label, _ = KINDS.get(kernel, PRODUCT)
        totals[label] = totals.get(label, 0) + time
    sys.stdout.write("".join(f"{name}: {total:.0f} us\n" for name, total in totals.items()))
    axis.set_yticks([2, 1, 0], ["one stream", "current stream", "side stream"])
    axis.set_xlabel("modelled microseconds on an MI300X")
    axis.legend(
        seen.values(),
        seen,
        fontsize=8,
        ncols=5,
        loc="upper center",
        frameon=False,
        bbox_to_anchor=(0.45, 1.2),
    )
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(HERE / "factorisation_timeline.svg")
