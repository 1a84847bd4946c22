"""The kernels that this library chooses for products on an H200, and their compilation.

Spawned processes import functions from their module, which cannot be ``__main__``.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.models.peers import Case

if TYPE_CHECKING:
    from cupygemm._backends.hopper.plan import HopperChoice


def compile_all(cases: Sequence[Case], processes: int) -> None:
    """Compile the kernels of products into the cache, in processes that use no GPU."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        pool.map(compile_one, cases, chunksize=1)


def compile_one(case: Case) -> None:
    """Compile the kernel of a product into the cache."""
    choice = choice_of(case)
    if choice is not None:
        _ = choice.gemm


def choice_of(case: Case) -> HopperChoice | None:
    """Return the selector's choice on an H200; None if cuBLAS is faster."""
    from benchmarks.fit.layouts import layout_of
    from benchmarks.fit.samples import Product
    from cupygemm._backends.hopper.config import HopperArch
    from cupygemm._backends.hopper.plan import choose

    kinds = {"bfloat16": "bf16", "float16": "f16", "float64": "f64"}
    if case.tf32:
        operands, result = "tf32", "f32"
    elif case.dtype.name in kinds:
        operands = result = kinds[case.dtype.name]
    else:
        return None
    product = Product(
        shape=(case.m, case.n, case.k),
        operands=operands,
        result=result,
        layout="NT" if case.w_transposed else "NN",
        group="models",
    )
    try:
        return choose(layout_of(product), HopperArch())
    except ValueError:  # cuBLAS is faster
        return None
