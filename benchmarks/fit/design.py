"""The products that a sweep measures: a stratified, seeded design.

Products come in rounds, each of which draws from every group, so any beginning of the list is
balanced. The groups are linear layers of published models at many numbers of tokens, and random
shapes: aligned to cache lines, to 16 bytes and to nothing, small, with long k, in batches, and of
the other types.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

from benchmarks.fit.fitting import NEVER_FITTED
from benchmarks.fit.samples import Product
from benchmarks.models.layers import HELD_OUT, MODELS, VISION

TOKENS = (
    1,
    2,
    4,
    8,
    16,
    33,
    64,
    96,
    128,
    128,
    192,
    256,
    384,
    512,
    512,
    1024,
    2048,
    2048,
    4096,
    8192,
)
TOKENS_OF_IMAGES = (64, 128, 197, 257, 512, 1024, 4096, 8 * 196, 8 * 257, 32 * 197, 8192)
LAYOUTS = ("NN", "NT", "TN", "TT")
# How often a round draws from each group of bf16, and from layers in each other type.
ROUND = {
    "layer": 6,
    "tokens": 2,
    "aligned": 4,
    "of eight": 4,
    "small": 3,
    "long k": 3,
    "batch": 1,
    "odd": 1,
}
OTHER_TYPES = (
    ("f16", "f16"),
    ("e4m3fn", "bf16"),
    ("e4m3fn", "e4m3fn"),
    ("i8", "i32"),
    ("tf32", "f32"),
    ("tf32x3", "f32"),
    ("f64", "f64"),
    ("f64", "f64"),
    ("tf32x3", "f32"),
)
RESULTS = {"e4m3fn": "bf16", "i8": "i32", "tf32": "f32", "f16": "f16"}
"""The usual type of results, by the type of the operands."""
_OF_BYTES = ("e4m3fn", "i8")
# Largest number of multiply-adds of a product: a few milliseconds.
_MOST = {"f64": 1 << 36, "tf32x3": 1 << 37, "tf32": 1 << 39}
_MOST_OTHERS = 1 << 40
_MOST_OF_MODELS = 1 << 39
KINDS = "kinds"
"""The group of products near layers of which kernels of each kind were measured as they run."""
_NEARBY = 1.5
_LEAST_BYTES = 16


def design(seed: int = 0) -> Iterator[Product]:
    """Yield an endless sequence of distinct products."""
    rng = random.Random(seed)  # noqa: S311
    seen: set[Product] = set()
    while True:
        drawn = [_draw(rng, group) for group, count in ROUND.items() for _ in range(count)]
        drawn += [_of_type(rng, *types) for types in OTHER_TYPES]
        rng.shuffle(drawn)
        for product in drawn:
            most = _MOST.get(product.operands, _MOST_OTHERS)
            if product not in seen and product.multiply_adds <= most:
                seen.add(product)
                yield product


def models_design(seed: int = 0) -> Iterator[Product]:
    """Yield endless distinct linear layers of public models, few with other memory orders."""
    rng = random.Random(seed)  # noqa: S311
    seen: set[Product] = set()
    while True:
        kind = "f16" if rng.random() < 0.1 else "bf16"
        layer = _layer(rng, "tokens" if rng.random() < 0.3 else "layer")
        product = replace(
            layer,
            operands=kind,
            result=kind,
            layout="NN" if rng.random() < 0.15 else "NT",
            group="model",
        )
        if product not in seen and product.multiply_adds <= _MOST_OF_MODELS:
            seen.add(product)
            yield product


def near_design(seed: int = 0, rows: tuple[int, int] = (1, 1024)) -> Iterator[Product]:
    """Yield endless distinct products with extents near those of layers of public models.

    Each extent of a layer is multiplied by up to `_NEARBY` or divided by it. No layer of the models
    that the choice is not trained on is among the products.

    Parameters
    ----------
    seed : int
    rows : (int, int)
        The fewest and the most rows.
    """
    rng = random.Random(seed)  # noqa: S311
    held_out = {nk for layers in HELD_OUT.values() for nk in layers.values()}
    seen: set[Product] = set()
    while True:
        kind = "f16" if rng.random() < 0.1 else "bf16"
        unit = 8 if rng.random() < 0.25 else 64
        _, *of_layer = _layer(rng, "layer").shape
        n, k = (
            _log_uniform(rng, max(unit, extent / _NEARBY), extent * _NEARBY, unit)
            for extent in of_layer
        )
        product = Product(
            shape=(_log_uniform(rng, *rows), n, k),
            operands=kind,
            result=kind,
            layout=rng.choice(("NN", "NT")),
            group="wide",
        )
        new = product not in seen and (n, k) not in held_out
        if new and product.multiply_adds <= _MOST_OF_MODELS:
            seen.add(product)
            yield product


def of_type(products: Iterable[Product], operands: str) -> Iterator[Product]:
    """Yield distinct products with other operands, whose results have their usual type."""
    result = RESULTS[operands]
    seen: set[Product] = set()
    for product in products:
        shape, layout = product.shape, product.layout
        if operands in _OF_BYTES:
            shape = tuple(-(-extent // _LEAST_BYTES) * _LEAST_BYTES for extent in shape)
            layout = "NT"
        found = replace(product, shape=shape, operands=operands, result=result, layout=layout)
        if found not in seen:
            seen.add(found)
            yield found


def held_out_design(seed: int = 0, rows: tuple[int, int] = (1, 1024)) -> Iterator[Product]:
    """Yield distinct layers of models that are excluded from fits, to compute errors.

    Their group is held out of every fit.
    """
    rng = random.Random(seed)  # noqa: S311
    extents = sorted({nk for layers in HELD_OUT.values() for nk in layers.values()})
    seen: set[Product] = set()
    while True:
        shape = (_log_uniform(rng, *rows), *rng.choice(extents))
        product = Product(shape, "bf16", "bf16", rng.choice(("NN", "NT")), NEVER_FITTED)
        if product not in seen and product.multiply_adds <= _MOST_OF_MODELS:
            seen.add(product)
            yield product


def _draw(rng: random.Random, group: str) -> Product:
    """Return a product of bf16."""
    if group in ("layer", "tokens"):
        return _layer(rng, group)
    shape = _shape(rng, group)
    return Product(
        shape=shape, operands="bf16", result="bf16", layout=rng.choice(LAYOUTS), group=group
    )


def _layer(rng: random.Random, group: str) -> Product:
    """Return a linear layer, whose weights have a row for each output."""
    model = rng.choice(tuple(MODELS))
    n, k = rng.choice(tuple(MODELS[model].values()))
    if group == "tokens":
        tokens = _log_uniform(rng, 1, 8192)
    else:
        images = model.startswith(VISION)
        tokens = rng.choice(TOKENS_OF_IMAGES if images else TOKENS)
    return Product(shape=(tokens, n, k), operands="bf16", result="bf16", layout="NT", group=group)


def _shape(rng: random.Random, group: str) -> tuple[int, ...]:
    if group == "aligned":
        unit = rng.choice((64, 128))
        return tuple(_log_uniform(rng, 64, 16384, unit) for _ in range(3))
    if group == "of eight":
        return tuple(_log_uniform(rng, 64, 12288, 8) for _ in range(3))
    if group == "small":
        return tuple(_log_uniform(rng, 8, 1024, 8) for _ in range(3))
    if group == "long k":
        m, n = (_log_uniform(rng, 16, 1024, 8) for _ in range(2))
        return m, n, _log_uniform(rng, 4096, 131072, 64)
    if group == "batch":
        return _log_uniform(rng, 2, 128), *(_log_uniform(rng, 32, 1536, 8) for _ in range(3))
    return tuple(_log_uniform(rng, 33, 6000) for _ in range(3))


def _of_type(rng: random.Random, operands: str, result: str) -> Product:
    """Return a layer, or a product of random extents, of another type than bf16."""
    if rng.random() < 0.4:
        layer = _layer(rng, "tokens")
        return Product(
            shape=layer.shape, operands=operands, result=result, layout=layer.layout, group="layer"
        )
    kind = rng.choice(("aligned", "of eight", "small", "long k"))
    shape = _shape(rng, kind)
    if operands in _OF_BYTES:  # rows of fewer than 16 bytes would be copied
        shape = tuple(-(-extent // _LEAST_BYTES) * _LEAST_BYTES for extent in shape)
    # Operands of bytes are contiguous along k, as other libraries need; others have any order.
    layout = "NT" if operands in _OF_BYTES else rng.choice(LAYOUTS)
    return Product(shape=shape, operands=operands, result=result, layout=layout, group=kind)


def _log_uniform(rng: random.Random, least: float, most: float, unit: int = 1) -> int:
    """Return a random multiple of `unit` from `least` to `most`, uniform in its logarithm."""
    value = math.exp(rng.uniform(math.log(least), math.log(most)))
    return max(1, round(value / unit)) * unit
