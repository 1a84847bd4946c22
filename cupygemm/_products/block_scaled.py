"""`scaled_matmul` with scales for blocks of k, in one launch where the device has a kernel for it.

Hopper multiplies 8-bit floats so, with scales of fp32 for blocks of 128 along k or a multiple of
it. Elsewhere `scaled_matmul` launches a product for each block of k.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import DTypeLike

from cupygemm._backends.cdna.launch import EpiloguePacker
from cupygemm._backends.device import Device, device
from cupygemm._backends.hopper.config import HopperArch
from cupygemm._backends.runners import around
from cupygemm._epilogue.options import EpilogueArguments
from cupygemm._plan.plan import Plan
from cupygemm._request.arrays import Array
from cupygemm._request.call import Call, check_call, signature
from cupygemm._request.layout import Operand
from cupygemm._request.options import Options, call_options
from cupygemm._request.promotion import F32
from cupygemm._request.request import pose

FORMATS = ("format_a", "format_b")
MAX_RECENT = 256
"""Calls without other options whose plans are kept."""


@dataclass(frozen=True)
class Scales:
    """Scales for the rows of A, or the columns of B, and blocks of k.

    Attributes
    ----------
    table : cupy.ndarray
        Rows, blocks of k.
    shared : int
        Rows, or columns, that share a row of it.
    """

    table: Array
    shared: int

    def of_block(self, index: int, count: int) -> Array:
        """Return the scale of each of `count` rows for a block of k."""
        import cupy

        scales = self.table[:, index]
        return scales if self.shared == 1 else cupy.repeat(scales, self.shared)[:count]


def block_scaled_matmul(
    a: Array,
    b: Array,
    rows: Scales | None,
    columns: Scales | None,
    block: int,
    out: Any,
    dtype: DTypeLike | None,
    options: dict[str, Any],
) -> Array | None:
    """Return the product in one launch; None where no kernel computes it so.

    `options` are those of `matmul`, with scales that do not change along k.
    """
    place = device(a.data.device_id)
    if not isinstance(place.arch, HopperArch) or not min(a.size, b.size):
        return None
    shared = tuple(1 << 31 if s is None else s.shared for s in (rows, columns))
    key, plan, epilogue = None, None, None
    if options.keys() <= set(FORMATS) and (out is None or type(out) is type(a)):
        lies = signature(a), signature(b), None if out is None else signature(out)
        key = (*lies, *map(options.get, FORMATS), dtype, block, shared)
        plan = _recent.get(key)
        if plan is not None and out is not None and plan.overlaps(a, b, out):
            plan = None
    if plan is None:
        options = options.copy()
        casting = options.pop("casting", "same_kind")
        given = call_options(options)  # type: ignore[arg-type]
        call = check_call(a, b, out, dtype, casting, given)
        operands = tuple(x and replace(x, address=x.address & 15) for x in _operands(call))
        run = _runner(operands, call.options, place, call.aliased, block, shared)
        if run is None:
            return None
        plan = Plan(run, tuple((0, 0) if x is None else x.extent() for x in operands))
        if key is not None and not call.aliased:
            if len(_recent) >= MAX_RECENT:
                _recent.clear()
            _recent[key] = plan
        out, epilogue = call.out, given.epilogue
    from cupy.cuda import Device as CurrentDevice

    with CurrentDevice(place.index):
        return plan.run(a, b, out, _table(rows), _table(columns), epilogue)


def _operands(call: Call) -> tuple[Operand, Operand, Operand | None]:
    return call.x1, call.x2, call.target


def _table(scales: Scales | None) -> Array:
    """Return scales in fp32; without any, one that is 1."""
    import cupy

    if scales is None:
        return cupy.ones((1, 1), F32)
    return scales.table.astype(F32, copy=False)


_recent: dict[tuple[Any, ...], Plan] = {}


def forget_scaled() -> None:
    """Forget all plans."""
    _recent.clear()
    _runner.cache_clear()


@functools.lru_cache(maxsize=1024)
def _runner(
    operands: tuple[Operand, Operand, Operand | None],
    options: Options,
    place: Device,
    aliased: bool,
    block: int,
    shared: tuple[int, int],
) -> Callable[..., Array] | None:
    """Return what multiplies operands that lie so; None where no kernel can."""
    from cupy.cuda import Device as CurrentDevice

    from cupygemm._backends.hopper.block_scales import BLOCK, choose_scaled, make_scaled_product

    assert isinstance(place.arch, HopperArch)
    posed = pose(
        *operands,
        options,
        products=place.products,
        epilogue_products=place.epilogue_products,
        row_bytes=place.row_bytes,
        aliased=aliased,
    )
    layout, sources = posed.layout, posed.sources
    if block % BLOCK or layout is None or (posed.epilogue is not None and sources is None):
        return None
    swapped = layout.swapped
    of_a, of_b = shared[::-1] if swapped else shared
    try:
        choice = choose_scaled(layout, place.arch, of_b)
    except ValueError:  # no configuration can run
        return None
    if choice is None:
        return None
    with CurrentDevice(place.index):  # kernels are loaded on the device that is current
        launch = make_scaled_product(choice, block)
    packer = None if sources is None else EpiloguePacker(layout, layout.launches[0])

    def launch_all(
        a: int, b: int, c: int, rows: Array, columns: Array, epilogue: EpilogueArguments | None
    ) -> None:
        if swapped:
            rows, columns = columns, rows
        more = b""
        if packer is not None and epilogue is not None and sources is not None:
            more = packer(epilogue, sources.arrays(epilogue))
        launch(a, b, c, more, (rows, of_a), (columns, of_b))

    return around(posed, launch_all)
