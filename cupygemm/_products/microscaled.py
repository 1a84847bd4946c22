"""`scaled_matmul` with factors for blocks of 32 along k, by their exponents: OCP Microscaling.

gfx950 multiplies such operands as they are, pairs of 8-bit formats and 4-bit ones; what lies
between, 6-bit floats and pairs of 4-bit with others, becomes e4m3fn first, which holds the same
numbers. Other devices multiply them decoded, in bfloat16.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._backends.cdna.arch import Arch
from cupygemm._backends.cdna.config import BLOCK_SCALED_MMA_K
from cupygemm._backends.cdna.launch import BLOCK_SCALE_ARGS, EpiloguePacker
from cupygemm._backends.cdna.microscaling import (
    BLOCK,
    ELEMENTS,
    U8,
    decoded,
    element_format,
    is_factors,
    packed_factors,
    per_byte,
    scaled_numbers,
)
from cupygemm._backends.cdna.select import select
from cupygemm._backends.device import Device, device
from cupygemm._backends.runners import around
from cupygemm._epilogue.options import EpilogueArguments
from cupygemm._plan.plan import Choice, launches_of
from cupygemm._products.matmul import matmul
from cupygemm._records.formats import FLOAT8, result_dtype
from cupygemm._request.arrays import Array, as_array
from cupygemm._request.call import check_call
from cupygemm._request.copies import assign
from cupygemm._request.layout import Operand
from cupygemm._request.options import Options, call_options
from cupygemm._request.promotion import F16, F32
from cupygemm._request.request import pose

_NAME = "scaled_matmul"


@dataclass(frozen=True)
class Microscaled:
    """An operand with its factors, as rows of elements along k: A, or B transposed.

    Attributes
    ----------
    codes : cupy.ndarray
        Bytes, (rows, k) or (rows, k / 2).
    name : str
        The format of the elements.
    factors : cupy.ndarray
        Bytes, (rows, blocks).
    """

    codes: Array
    name: str
    factors: Array

    @property
    def k(self) -> int:
        """Return the extent along k."""
        return int(self.codes.shape[1]) * per_byte(self.name)

    def as_e4m3fn(self) -> Microscaled:
        """Return the same numbers in bytes, if they are not in bytes of 8 bits already."""
        if self.name in FLOAT8:
            return self
        return replace(self, codes=decoded(self.codes, self.name, FLOAT8["e4m3fn"]), name="e4m3fn")

    def numbers(self) -> Array:
        """Return the numbers, (rows, k), in bfloat16."""
        return scaled_numbers(self.codes, self.name, self.factors)


def microscaled_matmul(
    a: Array,
    b: Array,
    scale_a: Any,
    scale_b: Any,
    block: int | None,
    out: Any,
    dtype: DTypeLike | None,
    options: dict[str, Any],
) -> Array:
    """Return the product of two matrices with factors for blocks along k; see `scaled_matmul`."""
    if block not in (None, BLOCK):
        raise ValueError(f"{_NAME}: block = {block}; exponents are for blocks of {BLOCK} along k")
    first = _operand("a", a, scale_a, options.pop("format_a", None))
    second = _operand("b", b.T, scale_b, options.pop("format_b", None))
    if first.k != second.k:
        raise ValueError(
            f"{_NAME}: a has shape {a.shape} and b {b.shape}, of {first.name} and {second.name}: k "
            f"is {first.k} and {second.k} (there are two e2m1 in a byte)"
        )
    place = device(a.data.device_id)
    if min(a.size, b.size) and isinstance(place.arch, Arch) and place.arch.block_scales:
        if first.name != second.name or first.name != "e2m1":
            first, second = first.as_e4m3fn(), second.as_e4m3fn()
        result = _multiplied(first, second, place, out, dtype, options)
        if result is not None:
            return result
    return _multiplied_decoded(first, second, out, dtype, options)


def _multiplied_decoded(
    first: Microscaled,
    second: Microscaled,
    out: Any,
    dtype: DTypeLike | None,
    options: dict[str, Any],
) -> Array:
    """Multiply the numbers, in bfloat16; the sums are rounded once, as if they were not decoded."""
    numbers = first.numbers(), second.numbers().T
    if dtype is None:
        dtype = F32 if out is None else out.dtype
    if result_dtype(dtype) != F16:
        return matmul(*numbers, out, dtype=dtype, **options)
    # Which has not the range of bfloat16, so that matmul would not take it for the result.
    sums = matmul(*numbers, dtype=F32, **options)
    if out is None:
        return sums.astype(F16)
    assign(out, sums)
    return out


def _operand(name: str, codes: Array, scale: Any, tag: Any) -> Microscaled:
    """Return an operand, checked; `codes` are those of A, or of B transposed.

    Raises
    ------
    TypeError
        It has no such format, or its scales are none.
    ValueError
        The scales do not fit.
    """
    given = codes.dtype if tag is None else tag
    found = element_format(given)
    tagged = tag is not None and codes.dtype == U8
    if found is None or not (tagged or (codes.dtype == ELEMENTS[found] and per_byte(found) == 1)):
        raise TypeError(
            f"{_NAME}: {name} has dtype {codes.dtype} and format_{name} is {tag!r}; with exponents "
            f"as scales {name} is a uint8 array, and format_{name} one of "
            f"{', '.join(map(repr, ELEMENTS))}"
        )
    if not is_factors(scale):
        raise TypeError(
            f"{_NAME}: scale_{name} must be exponents too, a uint8 array (e8m0): the other scale "
            "is one, or the format takes nothing else"
        )
    factors = as_array(_NAME, f"scale_{name}", scale)
    rows, columns = codes.shape
    blocks = -(-columns * per_byte(found) // BLOCK)
    expected = (rows, blocks) if name == "a" else (blocks, rows)
    if factors.shape != expected:
        turned = f"; pass scale_{name}.T" if factors.shape == expected[::-1] else ""
        raise ValueError(
            f"{_NAME}: scale_{name} has shape {factors.shape}; exponents of blocks of {BLOCK} "
            f"along k are {expected}{turned}"
        )
    codes, factors = (x if x.dtype == U8 else x.view(U8) for x in (codes, factors))
    return Microscaled(codes, found, factors if name == "a" else factors.T)


def _multiplied(
    first: Microscaled,
    second: Microscaled,
    place: Device,
    out: Any,
    dtype: DTypeLike | None,
    options: dict[str, Any],
) -> Array | None:
    """Multiply by the scaled MFMA; return None where no kernel can."""
    pairs = first.name == "e2m1"
    formats = ("e4m3fn",) * 2 if pairs else (first.name, second.name)  # bytes, to what moves them
    options = options.copy()
    casting = options.pop("casting", "same_kind")
    given = call_options(
        {**options, "format_a": formats[0], "format_b": formats[1]}  # type: ignore[typeddict-item]
    )
    x1, x2 = first.codes, second.codes.T
    call = check_call(x1, x2, out, dtype, casting, given)
    lies = (replace(o, address=o.address & 15) for o in (call.x1, call.x2))
    target = call.target and replace(call.target, address=call.target.address & 15)
    run = _runner(*lies, target, call.options, place, call.aliased, pairs)
    if run is None:
        return None
    from cupy.cuda import Device as CurrentDevice

    with CurrentDevice(place.index):
        return run(x1, x2, call.out, first.factors, second.factors, given.epilogue)


@functools.lru_cache(maxsize=1024)
def _runner(
    x1: Operand,
    x2: Operand,
    target: Operand | None,
    options: Options,
    place: Device,
    aliased: bool,
    pairs: bool,
) -> Callable[..., Array] | None:
    """Return what multiplies operands that lie so; None where no kernel can."""
    assert isinstance(place.arch, Arch)
    posed = pose(
        x1,
        x2,
        target,
        options,
        products=place.products,
        epilogue_products=place.epilogue_products,
        row_bytes=place.row_bytes,
        aliased=aliased,
    )
    if posed.layout is None or (posed.epilogue is not None and posed.sources is None):
        return None
    problem = replace(posed.layout.problem, block_scaled=True)
    if pairs:
        problem = replace(problem, a_dtype="e2m1x2", b_dtype="e2m1x2")
    try:
        selection = select(problem, place.arch, reproducible=options.reproducible)
    except ValueError:  # rows that are gigabytes apart, say
        return None
    from cupy.cuda import Device as CurrentDevice

    from cupygemm._backends.cdna.compile import compile_kernel

    layout = replace(posed.layout, problem=problem)
    config = selection.config
    with CurrentDevice(place.index):  # kernels are loaded on the device that is current
        compiled = compile_kernel(problem, config, place.arch.name)
        (launch,) = launches_of(layout, Choice(selection, compiled))
    packer = None if posed.sources is None else EpiloguePacker(layout, layout.launches[0])
    depth = BLOCK_SCALED_MMA_K // (2 if pairs else 1)  # of an instruction, in bytes
    steps = config.num_steps(problem) * (config.tile_k // depth)
    swapped, sources = layout.swapped, posed.sources

    def launch_all(
        a: int, b: int, c: int, rows: Array, columns: Array, epilogue: EpilogueArguments | None
    ) -> None:
        if swapped:
            rows, columns = columns, rows
        packed = (
            packed_factors(rows, config.tile_m, steps),
            packed_factors(columns, config.tile_n, steps),
        )
        more = b""
        if packer is not None and epilogue is not None and sources is not None:
            more = packer(epilogue, sources.arrays(epilogue))
        scales = np.zeros(1, BLOCK_SCALE_ARGS)
        scales["a"], scales["b"] = (x.data.ptr for x in packed)
        launch(a, b, c, more + scales.tobytes())

    return around(replace(posed, layout=layout), launch_all)
