"""Symmetric products ``a @ a.T``: the blocks below the diagonal in one launch, then mirrored.

On CDNA the rows are cut into panels, and each is multiplied as far as its part of the diagonal:
products of different widths, which `grouped_matmul` computes in one launch. With p panels that is
(p + 1) / 2p of the multiplications. On Hopper the kernel itself walks over the tiles of a triangle
(``_backends/hopper/triangle.py``). One small kernel then copies the lower triangle to the upper
one, so the result is symmetric to the bit. Where the model says that one plain product of both
triangles takes less time (few tiles, which leave compute units idle), that is what is done.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cupygemm._backends.cdna.arch import Arch
from cupygemm._backends.cdna.grouped import aligned_alike, choose
from cupygemm._backends.cdna.select import select
from cupygemm._backends.device import device
from cupygemm._backends.hopper.config import HopperArch
from cupygemm._backends.runners import Runner
from cupygemm._epilogue.options import EpilogueArguments
from cupygemm._epilogue.unfused import applied
from cupygemm._products.grouped import grouped_matmul
from cupygemm._records.formats import FLOAT8_DTYPES
from cupygemm._request.arrays import Array, may_overlap
from cupygemm._request.call import Call, check_call, signature
from cupygemm._request.copies import bits
from cupygemm._request.layout import Operand
from cupygemm._request.options import CallOptions, Options
from cupygemm._request.promotion import product_types
from cupygemm._request.request import pose

PANEL_ROWS = 256
"""Panels have a multiple of it: no tile reaches beyond."""
MAX_PANELS = 32
MIN_ROWS = 512
"""Of products of which one triangle may be cheaper, on Hopper."""
MAX_RUNNERS = 256
"""Calls on Hopper whose plans are kept."""
EPILOGUE_PASSES = 6
"""How often CuPy's operations of an epilogue read or write the sums."""


def symmetric_product(
    x: Array, out: Array | None, dtype: np.dtype[Any] | None, epilogue: EpilogueArguments | None
) -> Array | None:
    """Return ``x @ x.T`` by one triangle; None where both triangles are cheaper.

    Raises
    ------
    ValueError, TypeError
        As `matmul` raises them.
    """
    memory = x.data
    if isinstance(device(memory.device_id).arch, HopperArch):
        return _on_hopper(x, out, dtype, epilogue)
    lie = x.shape, x.strides, x.dtype, memory.ptr & 15
    edges = _edges(lie, memory.device_id, dtype, epilogue is None)
    if not edges:
        return None
    from cupy import ndarray

    call = check_call(x, x.T, out, dtype, "same_kind", CallOptions(epilogue=epilogue))
    types, shape = call.posed.types, call.posed.shape.result
    if epilogue is None:
        if out is None:
            out = ndarray(shape, types.result)
        return _triangle(x, out, dtype, edges)
    sums = _triangle(x, ndarray(shape, types.accumulator), types.accumulator, edges)
    return applied(call.posed, lambda *_: sums)(x, x.T, out, epilogue)


def _on_hopper(
    x: Array, out: Array | None, dtype: np.dtype[Any] | None, epilogue: EpilogueArguments | None
) -> Array | None:
    """Return the product by the tiles of one triangle; None where both triangles are cheaper."""
    index = x.data.device_id
    if x.shape[0] < MIN_ROWS:
        return None
    aliased = out is not None and may_overlap(out, x)
    target = None if out is None else signature(out)
    key = signature(x), target, aliased, dtype, None if epilogue is None else epilogue.key
    try:
        run = _runners[key]
    except KeyError:
        from cupy.cuda import Device as CurrentDevice

        call = check_call(x, x.T, out, dtype, "same_kind", CallOptions(epilogue=epilogue))
        with CurrentDevice(index):  # kernels are loaded on the device that is current
            run = _make_runner(call)
        if len(_runners) >= MAX_RUNNERS:
            _runners.clear()
        _runners[key] = run
    if run is None:
        return None
    return run(x, x.T, out) if epilogue is None else run(x, x.T, out, epilogue)


def _make_runner(call: Call) -> Runner | None:
    """Return what computes a symmetric call by one triangle, or None where that does not pay."""
    from cupygemm._backends.hopper import product
    from cupygemm._backends.hopper.triangle import choose_triangle

    posed, arch = call.posed, call.device.arch
    assert isinstance(arch, HopperArch)
    if posed.layout is None:
        return None
    choice = choose_triangle(posed.layout, arch)
    return None if choice is None else product.make_runner(posed, choice)


def _triangle(
    x: Array, out: Array, dtype: np.dtype[Any] | None, edges: tuple[tuple[int, int], ...]
) -> Array:
    """Write ``x @ x.T`` to `out`, panel by panel, and mirror it."""
    grouped_matmul(
        [x[first:last] for first, last in edges],
        [x[:last].T for _, last in edges],
        [out[first:last, :last] for first, last in edges],
        dtype=dtype,
    )
    _mirror()(out.shape[0], bits(out), size=out.size)
    return out


_runners: dict[tuple[Any, ...], Runner | None] = {}


@functools.cache
def _mirror() -> Any:
    """Return the kernel that copies what is below the diagonal of a matrix to above it."""
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


@functools.lru_cache(maxsize=1024)
def _edges(
    lie: tuple[Any, ...], index: int, dtype: np.dtype[Any] | None, plain: bool
) -> tuple[tuple[int, int], ...]:
    """Return the panels' first and last rows, last excluded; none where they do not pay."""
    arch = device(index).arch
    n = lie[0][0]
    if not isinstance(arch, Arch) or n < 2 * PANEL_ROWS:
        return ()
    types = product_types(lie[2], lie[2], None, dtype, "same_kind", epilogue=not plain)
    stored = types.stored if plain else types.accumulator
    if types.accumulator.kind not in "fc" or types.operand != lie[2] or lie[2] in FLOAT8_DTYPES:
        return ()
    rows = PANEL_ROWS * -(-n // (PANEL_ROWS * MAX_PANELS))
    edges = tuple((first, min(first + rows, n)) for first in range(0, n, rows))
    problems = []
    for first, last in (*edges, (0, n)):
        layout = _posed(lie, first, last, stored, index).layout
        if layout is None:
            return ()
        problems.append(layout.problem)
    whole = problems.pop()
    together = choose(aligned_alike(problems), arch)
    if together is None:
        return ()
    bytes_per_cycle = arch.hbm_gbytes_per_s * 1e3 / arch.clock_mhz
    passes = 1 if plain else 1 + EPILOGUE_PASSES
    afterwards = passes * n * n * stored.itemsize / bytes_per_cycle
    alone = select(whole, arch).candidates[0]
    return edges if together.cycles + afterwards < alone.cycles else ()


def _posed(lie: tuple[Any, ...], first: int, last: int, dtype: np.dtype[Any], index: int) -> Any:
    """Return how a panel is multiplied by the rows up to its end."""
    (n, k), strides, operand, alignment = lie
    place = device(index)
    panel = Operand((last - first, k), strides, operand, alignment)
    turned = Operand((k, last), strides[::-1], operand, alignment)
    out = Operand((last - first, last), (n * dtype.itemsize, dtype.itemsize), dtype)
    return pose(
        panel, turned, out, Options(dtype), products=place.products, row_bytes=place.row_bytes
    )
