"""Every variant of the Hopper kernels, and one product by each.

``python -m tests.cuda.variants`` runs them all and checks the results: it is what compute-sanitizer
watches, see ``make test-cuda``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from cupygemm import testing
from cupygemm._backends.device import device
from cupygemm._backends.hopper.backend import HopperBackend
from cupygemm._backends.hopper.choice.check import check, check_tall_tiles
from cupygemm._backends.hopper.choice.configurations import (
    configs_for,
    in_turns,
    short_widths,
    transposed_widths,
)
from cupygemm._backends.hopper.choice.tile_shapes import (
    CONFIGS,
    NARROW_CONFIGS,
    PART_CONFIGS,
    PING_PONG_CONFIGS,
    TRANSPOSED_CONFIGS,
    TRANSPOSED_PART_CONFIGS,
    TRANSPOSED_PING_PONG_CONFIGS,
)
from cupygemm._backends.hopper.config import HopperConfig
from cupygemm._backends.hopper.plan import choose
from cupygemm._backends.hopper.requests import place_request
from cupygemm._records.dtypes import DType
from cupygemm._records.formats import Precision, as_stored
from cupygemm._request.epilogue import epilogue_arguments
from cupygemm._request.layout import Operand
from cupygemm._request.options import Options
from cupygemm._request.request import make_request

BF16 = np.dtype(ml_dtypes.bfloat16)
F16 = np.dtype(np.float16)
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
I8, I32 = np.dtype(np.int8), np.dtype(np.int32)
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
ORDERS = ("CC", "CF", "FC", "FF")
STREAM_CLUSTERS = 10  # blocks of a grid that cuts tiles: few, for a product of few tiles


@dataclass(frozen=True)
class Variant:
    """A configuration with types, memory orders and the ways that alignment leaves."""

    config: HopperConfig
    dtype: np.dtype[Any]
    result: np.dtype[Any]
    orders: str  # C or F of x1 and of x2
    aligned: bool
    precision: Precision = "ieee"

    @property
    def name(self) -> str:
        ways = "tma" if self.aligned else "padded"
        types = f"{self.dtype}-{self.result}"
        if self.precision != "ieee":
            types += f"-{self.precision}"
        return f"{self.config.name}-{types}-{self.orders}-{ways}"


def variants() -> Iterator[Variant]:
    """Yield the variants of all types."""
    yield from variants_of_halves()
    yield from variants_of_others()
    yield from variants_that_cut_tiles()
    yield from variants_in_hilberts_order()
    yield from variants_in_turns()
    yield from variants_that_turn()
    yield from variants_of_short_sides()
    yield from variants_in_parts()
    yield from variants_of_narrow_boxes()
    yield from variants_of_bytes()


def variants_in_hilberts_order() -> Iterator[Variant]:
    """Yield configurations of small tiles in Hilbert's order; a product has many such tiles.

    With clusters along each axis and none, tiles whole and cut either way, and fp64.
    """
    alone, tall, wide = (
        next(c for c in reversed(CONFIGS) if (c.cluster_m, c.cluster_n) == shape)
        for shape in ((1, 1), (2, 1), (1, 2))
    )
    kinds: tuple[tuple[HopperConfig, dict[str, int], np.dtype[Any]], ...] = (
        (alone, {}, BF16),
        (alone, {"split_k": 2}, F16),
        (alone, {"stream_k": STREAM_CLUSTERS}, BF16),
        (tall, {}, F16),
        (tall, {"stream_k": STREAM_CLUSTERS // 2}, F16),
        (wide, {}, BF16),
        (wide, {"split_k": 3}, BF16),
        (configs_for("f64")[-1], {}, F64),
    )
    for number, (config, cut, dtype) in enumerate(kinds):
        chosen = replace(config, raster="hilbert", **cut)
        yield Variant(chosen, dtype, dtype, ORDERS[number % 4], aligned=number % 3 != 1)


def variants_in_turns() -> Iterator[Variant]:
    """Yield configurations whose consumers take turns, with types, orders and divisions dealt."""
    for number, config in enumerate(PING_PONG_CONFIGS):
        dtype, result = (BF16, F16)[number % 2], (BF16, F16, F32)[number % 3]
        split = 2 if number % 4 == 1 else 1
        chosen, orders = replace(config, split_k=split), ORDERS[number % 4]
        if config.tile_n % 16:
            orders = orders[0] + "F"
        yield Variant(chosen, dtype, result, orders, aligned=number % 5 != 2)
    for number, config in enumerate(in_turns("tf32")):
        result, aligned = (F32, BF16, E4M3)[number % 3], number % 4 != 1
        yield Variant(config, F32, result, "CF", aligned=aligned, precision="tf32")
    for number, config in enumerate(in_turns("i8")):
        result, orders = (I32, I8)[number % 2], ORDERS[(number + 1) % 4]
        yield Variant(config, I8, result, orders, aligned=number % 4 != 1)
    for number, config in enumerate(TRANSPOSED_PING_PONG_CONFIGS):
        dtype, raster = (F16, BF16)[number % 2], ("grouped", "hilbert")[number % 2]
        chosen = replace(config, raster=raster)
        yield Variant(chosen, dtype, dtype, ORDERS[number % 2], aligned=number % 4 != 2)


def variants_that_turn() -> Iterator[Variant]:
    """Yield configurations that compute C's transpose, types, orders and cuts dealt.

    Of tiles of every width, each fifth.
    """
    for number, config in enumerate((*TRANSPOSED_CONFIGS, *transposed_widths()[::5])):
        dtype, result = (BF16, F16)[number % 2], (BF16, F16)[number // 2 % 2]
        is_whole = config.cluster_k > 1 or (config.num_consumers == 3 and config.accumulators >= 64)
        cut = STREAM_CLUSTERS // config.cluster_size if number % 3 == 1 and not is_whole else 0
        orders = ORDERS[number // 3 % 2]  # its rows lie along k
        yield Variant(replace(config, stream_k=cut), dtype, result, orders, aligned=number % 4 != 1)
    for orders in ("FC", "FF"):
        yield Variant(replace(CONFIGS[1], transposed_c=True), F16, F16, orders, aligned=True)


def variants_of_short_sides() -> Iterator[Variant]:
    """Yield each third tile for batches with a short side, with types, orders and cuts dealt."""
    for number, config in enumerate(short_widths()[::3]):
        dtype = (BF16, F16)[number % 2]
        result = dtype if config.transposed_c else (dtype, dtype, F32)[number // 2 % 3]
        cut = STREAM_CLUSTERS if number % 3 == 1 and not config.ping_pong else 0
        chosen = replace(config, stream_k=cut)
        yield Variant(chosen, dtype, result, ORDERS[number % 4], aligned=number % 5 != 2)


def variants_in_parts() -> Iterator[Variant]:
    """Yield configurations whose clusters exchange sums, with types, orders and stores dealt."""
    for number, config in enumerate((*PART_CONFIGS, *TRANSPOSED_PART_CONFIGS)):
        dtype = (BF16, F16)[number % 2]
        result = dtype if config.transposed_c else (dtype, dtype, F32)[number // 2 % 3]
        orders = ORDERS[number // 3 % 2] if config.transposed_c else ORDERS[number % 4]
        yield Variant(config, dtype, result, orders, aligned=number % 4 != 2)


def variants_of_narrow_boxes() -> Iterator[Variant]:
    """Yield tiles whose last boxes of B, of C or of both are narrow, whole and cut either way.

    Of C, they are in results of 16 bits and of 8, in those of 32 bits only where 16 columns are
    left over. Tiles with eight columns left over read B along k, and do not store 8 bits.
    """
    results = (BF16, F16, F32, E4M3)
    sixteen = replace(NARROW_CONFIGS[-1], tile_n=112, cluster_m=1)
    for number, config in enumerate((*NARROW_CONFIGS, sixteen)):
        dtype, result = (BF16, F16)[number % 2], results[number // 2 % 4]
        clusters = STREAM_CLUSTERS // config.cluster_size
        cut = ({}, {"split_k": 2}, {"stream_k": clusters})[number % 3]
        orders = ("CC", "FC", "CC", "FC", "CF")[number % 5]
        if config.tile_n % 16:
            result, orders = (dtype if result == E4M3 else result), orders[0] + "F"
        yield Variant(replace(config, **cut), dtype, result, orders, aligned=number % 4 != 3)
    yield Variant(sixteen, F16, F32, "FC", aligned=True)
    turned_too = next(c for c in TRANSPOSED_CONFIGS if c.tile_n % 64 == 8)
    yield Variant(replace(turned_too, num_stages=5), BF16, BF16, "FF", aligned=True)


def turned(config: HopperConfig, orders: str, result: np.dtype[Any]) -> HopperConfig:
    """Return a configuration of tf32, turned where the second operand would have to be copied."""
    return replace(config, transposed_c=(orders, result) == ("CC", F32))


def variants_that_cut_tiles() -> Iterator[Variant]:
    """Yield each configuration with stream-K, types, orders and stores dealt among them."""
    kinds: tuple[tuple[DType, np.dtype[Any], np.dtype[Any], Precision], ...] = (
        ("bf16", BF16, BF16, "ieee"),
        ("f16", F16, F32, "ieee"),
        ("i8", I8, I32, "ieee"),
        ("e4m3fn", E4M3, BF16, "ieee"),
        ("tf32", F32, F32, "tf32"),
    )
    for number in range(len(CONFIGS)):
        name, dtype, result, precision = kinds[number % len(kinds)]
        configs = configs_for(name)
        config = configs[number % len(configs)]
        cut = replace(config, stream_k=STREAM_CLUSTERS // config.cluster_size)
        orders = ORDERS[number // 2 % 4]
        if name == "tf32":
            cut = turned(cut, orders, result)
        variant = Variant(cut, dtype, result, orders, aligned=number % 3 != 1, precision=precision)
        if cut.tile_n < 256 and (cut.tile_m < 256 or name in ("bf16", "f16", "i8")):
            yield variant


def variants_of_bytes() -> Iterator[Variant]:
    """Yield results of single bytes: each width of tile, by each way to store, whole and cut."""
    kinds: tuple[tuple[DType, np.dtype[Any], np.dtype[Any], Precision], ...] = (
        ("i8", I8, I8, "ieee"),
        ("e4m3fn", E4M3, E4M3, "ieee"),
        ("bf16", BF16, E5M2, "ieee"),
        ("e5m2", E5M2, E4M3, "ieee"),
        ("tf32", F32, E5M2, "tf32"),
    )
    for turn, (name, dtype, result, precision) in enumerate(kinds):
        configs = configs_for(name)
        for number in range(turn % 2, len(configs), 2):
            config = configs[-1 - number]
            if number % 4 == 3 and dtype != I8:
                config = replace(config, split_k=2)
            elif number % 4 == 1 and config.tile_n < 256 and config.tile_m < 256:
                config = replace(config, stream_k=STREAM_CLUSTERS // config.cluster_size)
            orders = ORDERS[(number // 2 + turn) % 4]
            yield Variant(
                config, dtype, result, orders, aligned=number % 3 != 1, precision=precision
            )


def variants_of_others() -> Iterator[Variant]:
    """Yield each configuration for the other types, orders and splits dealt among them."""
    kinds: tuple[tuple[DType, np.dtype[Any], np.dtype[Any], Precision], ...] = (
        ("i8", I8, I32, "ieee"),
        ("e4m3fn", E4M3, BF16, "ieee"),
        ("e5m2", E5M2, F32, "ieee"),
        ("tf32", F32, F32, "tf32"),
        ("tf32", F32, F32, "tf32"),
        ("tf32x3", F32, F32, "tf32x3"),
        ("f64", F64, F64, "ieee"),
        ("f64", F64, F32, "ieee"),
    )
    for turn, (name, dtype, result, precision) in enumerate(kinds):
        every = 3 if name in ("e5m2", "tf32x3") else 1  # their code is another type's
        for number, config in list(enumerate(configs_for(name)))[turn % every :: every]:
            split = 2 if dtype != I8 and (number + turn) % 3 == 0 else 1
            orders = ORDERS[(number + 2 * turn) % 4]
            aligned = (number + turn) % 5 != 1
            chosen = replace(config, split_k=split)
            if name == "tf32":
                chosen = turned(chosen, orders, result)
                if orders != "CF" and check_tall_tiles(chosen) is not None:
                    continue  # an operand that does not lie along k does not fit the registers
            yield Variant(chosen, dtype, result, orders, aligned=aligned, precision=precision)


def variants_of_halves() -> Iterator[Variant]:
    """Yield each configuration for 16-bit types, whole and split, in four memory orders."""
    for number, config in enumerate(CONFIGS):
        for turn, orders in enumerate(ORDERS):
            dtype = (BF16, F16)[(number + turn) % 2]
            result = (dtype, F32)[(number + turn // 2) % 2]
            split = 3 if (number + turn) % 3 == 0 else 1
            chosen = replace(config, split_k=split)
            yield Variant(chosen, dtype, result, orders, aligned=(number + turn) % 4 != 1)


def multiply(variant: Variant, a: Any, b: Any, **options: Any) -> Any:
    """Return a product by the configuration of a variant, with the options of an epilogue."""
    epilogue = epilogue_arguments(**options)
    operands = [Operand(x.shape, x.strides, variant.dtype, x.data.ptr) for x in (a, b)]
    options_of_plan = Options(
        dtype=np.dtype(variant.result),
        casting="unsafe",
        precision=variant.precision,
        epilogue=None if epilogue is None else epilogue.request,
    )
    request = make_request(*operands, options=options_of_plan)
    backend = device(a.data.device_id).kernels
    assert isinstance(backend, HopperBackend)
    placement, config = place_request(request), variant.config
    choice = choose(placement.layout, backend.arch, config)
    if config.stream_k:  # over fewer clusters where these would not cut this product
        fewer = (replace(config, stream_k=n) for n in (config.stream_k, 4, 3, 2, 0))
        config = next(c for c in fewer if check(c, choice.problem, backend.arch) is None)
        choice = choose(placement.layout, backend.arch, config)
    objection = check(choice.config, choice.problem, backend.arch)
    assert objection is None, objection
    run = backend.run(request, placement, choice)
    result = run(a, b, None) if epilogue is None else run(a, b, None, epilogue)
    return result.get().view(variant.result) if variant.result in (E4M3, E5M2) else result


def product(variant: Variant, m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    """Return operands of small integers on the host, and their product by a variant."""
    import cupy

    if not variant.aligned:
        n, k = n | 1, k | 1
    x1, x2 = testing.integer_operands((m, k), (k, n), variant.dtype, seed=m + n + k)
    a, b = (
        cupy.asarray(np.array(as_stored(x), order=order))
        for x, order in zip((x1, x2), variant.orders, strict=True)
    )
    return x1, x2, multiply(variant, a, b)


def main() -> None:
    """Run one product of several tiles by each variant."""
    for variant in variants():
        x1, x2, result = product(variant, 304, 528, 592)
        testing.assert_gemm_exact(result, x1, x2)
        sys.stdout.write(f"{variant.name}: exact\n")


if __name__ == "__main__":
    main()
