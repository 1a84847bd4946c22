"""Symmetric products ``x @ x.T`` on CDNA: panels up to the diagonal in one launch, then mirrored.

The rows are divided into panels, and each panel is computed up to the diagonal. The panels are
products of different widths, which a grouped launch computes. With p panels this takes (p + 1) / 2p
of the multiplications. A small kernel then copies the lower triangle to the upper one, so the
result is exactly symmetric. If the model says that the whole product takes less time (because there
are few tiles, which leave compute units idle), both triangles are computed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cupygemm._backends.cdna.arch import Arch
from cupygemm._backends.cdna.grouped import aligned_alike, choose, groups
from cupygemm._backends.cdna.requests import place_request, supports
from cupygemm._backends.cdna.select import select
from cupygemm._backends.protocol import Runner
from cupygemm._backends.runners import AddressGroup
from cupygemm._backends.unfused import applied
from cupygemm._records.dtypes import FLOAT8_DTYPES
from cupygemm._request.copies import assign, bits
from cupygemm._request.layout import Operand, contiguous
from cupygemm._request.options import Options
from cupygemm._request.request import Request, make_request

PANEL_ROWS = 256
"""The rows of a panel are a multiple of this, so that no tile reaches beyond its panel."""
MAX_PANELS = 32
EPILOGUE_PASSES = 6
"""The number of reads and writes of the sums by an epilogue in CuPy operations."""

Edges = tuple[tuple[int, int], ...]
"""The first row of each panel, and one past its last."""


def make_triangle(request: Request, arch: Arch) -> Runner | None:
    """Return the runner that computes one triangle of ``x @ x.T``; None if both cost less."""
    if request.epilogue is not None:
        sums = make_triangle_of(request.sums, arch, passes=1 + EPILOGUE_PASSES)
        return None if sums is None else applied(request, sums)
    return make_triangle_of(request, arch, passes=1)


def make_triangle_of(request: Request, arch: Arch, *, passes: int) -> Runner | None:
    """Return the runner for a product without an epilogue.

    Parameters
    ----------
    request : Request
    arch : Arch
    passes : int
        The number of passes over the result in memory after the product.
    """
    types, x = request.types, request.x1
    in_own_type = types.operand == x.dtype and x.dtype not in FLOAT8_DTYPES
    if types.accumulator.kind not in "fc" or not in_own_type or not supports(request, arch):
        return None
    edges = panel_edges(request.shape.m)
    if len(edges) < 2:
        return None
    copies_x = place_request(request, arch).x1_copy is not None
    operand = contiguous(x.shape, x.dtype) if copies_x else replace(x, address=x.address & 15)
    target = contiguous(request.shape.result, types.stored)
    panels = {number: _panel(operand, target, edge) for number, edge in enumerate(edges)}
    if not triangle_pays(panels, request, arch, passes=passes):
        return None
    placements = {number: place_request(panel, arch) for number, panel in panels.items()}
    launches = groups(placements, arch)
    if sum(len(group.numbers) for group in launches) < len(edges):
        return None
    return _make_runner(request, launches, edges, copies_x=copies_x)


def panel_edges(rows: int) -> Edges:
    """Return the panels of a matrix with `rows` rows."""
    height = PANEL_ROWS * -(-rows // (PANEL_ROWS * MAX_PANELS))
    return tuple((first, min(first + height, rows)) for first in range(0, rows, height))


def triangle_pays(
    panels: Mapping[int, Request], whole: Request, arch: Arch, *, passes: int
) -> bool:
    """Whether the panels and the passes after them cost less than the whole product, modelled."""
    problems = [place_request(panel, arch).layout.problem for panel in panels.values()]
    together = choose(aligned_alike(problems), arch)
    if together is None:
        return False
    moved = passes * whole.shape.size * whole.types.stored.itemsize
    afterwards = moved / (arch.hbm_gbytes_per_s * 1e3 / arch.clock_mhz)
    alone = select(place_request(whole, arch).layout.problem, arch).candidates[0]
    return together.cycles + afterwards < alone.cycles


def _panel(x: Operand, target: Operand, edge: tuple[int, int]) -> Request:
    """Return the request for a panel: its rows times all rows up to its end."""
    first, last = edge
    rows = Operand((last - first, x.shape[1]), x.strides, x.dtype, x.address)
    columns = Operand((x.shape[1], last), x.strides[::-1], x.dtype, x.address)
    out = Operand((last - first, last), target.strides, target.dtype)
    rows = replace(rows, address=(x.address + first * x.strides[0]) & 15)
    out = replace(out, address=first * target.strides[0] & 15)
    return make_request(rows, columns, out, options=Options(dtype=target.dtype))


def _make_runner(
    request: Request, groups: Sequence[AddressGroup], edges: Edges, *, copies_x: bool
) -> Runner:
    """Return the runner, which launches the panels, mirrors the result and copies it to `out`."""
    from cupy import ndarray

    shape, dtype = request.shape.result, request.types.stored

    def run(x: Any, _transposed: Any, out: Any) -> Any:
        if copies_x:
            x = x.copy(order="C")
        result = ndarray(shape, dtype)
        for group in groups:
            addresses = []
            for number, placement in zip(group.numbers, group.placements, strict=True):
                first, _ = edges[number]
                a = x.data.ptr + first * x.strides[0]
                b, c = x.data.ptr, result.data.ptr + first * result.strides[0]
                addresses.append((b, a, c) if placement.layout.swapped else (a, b, c))
            group.enqueue(addresses)
        _mirror()(shape[0], bits(result), size=result.size)
        if out is None:
            return result
        assign(out, result)
        return out

    return run


@functools.cache
def _mirror() -> Any:
    """Return the kernel that copies the lower triangle of a matrix to the upper one."""
    from cupy import ElementwiseKernel

    return ElementwiseKernel(
        "int64 n",
        "raw T matrix",
        """
        const ptrdiff_t below[2] = {i % n, i / n}, above[2] = {i / n, i % n};
        if (above[0] < above[1]) matrix[above] = matrix[below];
        """,
        "cupygemm_mirror",
    )
