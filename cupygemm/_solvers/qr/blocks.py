"""The blocks of half a QR panel.

Each block takes three launches: one factors it, one sums V^H C over chunks of rows, and one adds
the chunks in order and applies the block to the columns to its right, up to the end of the half. As
for an LU panel, the launches are prepared once for all matrices of a shape (launch_rows.py).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from cupygemm._backends.device import current_device
from cupygemm._backends.kernel_kind import Call
from cupygemm._backends.launch_rows import LaunchRows, region
from cupygemm._request.arrays import Array
from cupygemm._solvers.common import blocks
from cupygemm._solvers.common.blocks import Blocks, Limits, current_limits, panel_blocks, wave_size
from cupygemm._solvers.common.kernels import QR_PANEL, REFLECT_APPLY, REFLECT_SUMS, load
from cupygemm._solvers.common.matrices import Layout, Matrices
from cupygemm._solvers.common.teams import Workspace, num_teams

_MATRIX, _V, _T, _TAU, _FLAGS, _RECORDS, _SUMS, _DONE = map(region, range(1, 9))
_ROWS = 256
"""The rows of a workgroup of the kernels that apply a block to its panel."""
_THREADS = 256
_MOST_CHUNKS = 32
_TILE = 64


def factor_blocks(
    a: Matrices,
    tau: Array,
    v: Matrices,
    t: Matrices,
    start: int,
    half: range,
    workspace: Workspace,
    done: int = 0,
) -> int:
    """Factor half a panel, and return the most columns of a block.

    Parameters
    ----------
    a : Matrices
    tau : cupy.ndarray
        (batches, k).
    v, t : Matrices
        Of the panel; see `qr.Reflector`. The diagonal blocks of T are computed.
    start : int
        The panel's first column.
    half : range
        The columns that are factored. No others change.
    workspace : Workspace
    done : int
        The address of a flag, or zero. If the flag is set when the launches run, the half is
        already factored, and they do nothing.
    """
    from cupy.cuda import alloc, get_current_stream

    prepared = _prepared(
        a.layout(_MATRIX),
        v.layout(_V),
        t.layout(_T),
        tau.shape[1],
        start,
        half,
        current_device(),
        blocks.LIMITS,
        stands_by=done != 0,
    )
    workspace.reshape(prepared.shape)
    flags, records = workspace.next_blocks(prepared.num_blocks)
    sums = alloc(prepared.sums_bytes)
    launches = prepared.launches.at(
        a.address(0, 0),
        v.address(0, 0),
        t.address(0, 0),
        tau.data.ptr,
        flags,
        records,
        sums.ptr,
        done,
    )
    stream = int(get_current_stream().ptr)
    for row in range(prepared.num_launches):
        launches.enqueue(row, stream)
    return prepared.shape.width


class _Prepared(NamedTuple):
    """The launches of half a panel, the shape of its blocks, and the bytes of V^H C."""

    launches: LaunchRows
    num_launches: int
    num_blocks: int
    shape: Blocks
    sums_bytes: int


@functools.lru_cache(maxsize=512)
def _prepared(
    a: Layout,
    v: Layout,
    t: Layout,
    k: int,
    start: int,
    half: range,
    index: int,
    limits: Limits,
    *,
    stands_by: bool,
) -> _Prepared:
    """Return the launches of half a panel of matrices with `k` reflections.

    Fallback launches, which run in case another method is inaccurate, use no clusters: a cluster
    might wait for adjacent compute units until a product ends, only to find that it is not needed.
    """
    max_cluster, units = current_limits()
    if stands_by:
        max_cluster = 1
    shape = panel_blocks(a.m - half.start, a.dtype, max_cluster, wave_size())
    chunk = max(_ROWS, -(-(a.m - half.start) // _MOST_CHUNKS))
    sums_stride = _MOST_CHUNKS * shape.width * len(half)
    teams = num_teams(shape, units, a.batches)
    columns = [half[i : i + shape.width] for i in range(0, len(half), shape.width)]
    calls: list[Call] = []
    for number, own in enumerate(columns):
        calls.append(_factor(a, v, t, k, start, own, shape, teams, number, stands_by))
        if own.stop < half.stop:
            done = _DONE if stands_by else 0
            calls += _apply(a, v, t, start, own, half.stop, sums_stride, chunk, shape.width, done)
    sums_bytes = a.batches * sums_stride * a.dtype.itemsize
    return _Prepared(LaunchRows(calls), len(calls), len(columns), shape, sums_bytes)


def _factor(
    a: Layout,
    v: Layout,
    t: Layout,
    k: int,
    start: int,
    own: range,
    shape: Blocks,
    teams: int,
    number: int,
    stands_by: bool,
) -> Call:
    """Return the launch that factors a block."""
    launch = load(
        QR_PANEL,
        a.dtype,
        shape.threads,
        width=shape.width,
        rows=shape.rows,
        team=shape.team,
        by_products=not stands_by and _by_products(a, shape),
        clusters=not stands_by,
    )
    column, at, alone = own.start, own.start - start, shape.team == 1
    arguments = (
        a.address(column, column),
        a.pitch,
        a.stride,
        v.address(at, at),
        v.pitch,
        v.stride,
        _TAU + column * a.dtype.itemsize,
        k,
        t.address(at, at),
        t.pitch,
        t.stride,
        0 if alone else _FLAGS + 4 * shape.team * teams * number,
        0 if alone else _RECORDS,
        _DONE if stands_by else 0,
        a.m - column,
        len(own),
        a.batches,
        teams,
    )
    return Call(launch, (shape.team, teams), arguments)


def _by_products(a: Layout, shape: Blocks) -> bool:
    """Tell whether a block is factored by products of its columns, if that is accurate.

    The workgroups of a cluster then wait for each other only four times. This does not work for
    complex reflections, whose R has a real diagonal.
    """
    max_cluster, _ = current_limits()
    fits = shape.width % 8 == 0 and 1 < shape.team <= max_cluster
    return a.dtype.kind == "f" and fits


def _apply(
    a: Layout,
    v: Layout,
    t: Layout,
    start: int,
    own: range,
    end: int,
    sums_stride: int,
    chunk: int,
    width: int,
    done: int,
) -> list[Call]:
    """Return the launches that apply a block to the columns to its right, up to `end`."""
    row, at, trailing = own.start, own.start - start, own.stop
    m, n, k = a.m - row, end - trailing, len(own)
    chunks = -(-m // chunk)
    reflections = (v.address(at, at), v.pitch, v.stride)
    columns = (a.address(row, trailing), a.pitch, a.stride)
    sums = (_SUMS, sums_stride)
    of_t = (t.address(at, at), t.pitch, t.stride)
    tile = 16 if a.dtype.itemsize == 16 else 32
    return [
        Call(
            load(REFLECT_SUMS, a.dtype, _THREADS, width=width),
            (chunks * -(-n // _TILE), a.batches),
            (*reflections, *columns, *sums, done, m, n, k, chunk),
        ),
        Call(
            load(REFLECT_APPLY, a.dtype, _THREADS, width=width, tile=tile),
            (-(-m // _ROWS) * -(-n // tile), a.batches),
            (*reflections, *of_t, *columns, *sums, done, m, n, k, chunks, _ROWS, 0),
        ),
    ]
