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
from cupygemm._device import device
from cupygemm._hopper.config import CONFIGS, HopperConfig, check
from cupygemm._hopper.plan import choose, make_runner
from cupygemm._layout import Operand
from cupygemm._options import Options
from cupygemm._pose import pose

BF16 = np.dtype(ml_dtypes.bfloat16)
F16 = np.dtype(np.float16)
F32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Variant:
    """A configuration with types, memory orders and the ways that alignment leaves."""

    config: HopperConfig
    dtype: np.dtype[Any]
    result: np.dtype[Any]
    orders: str  # C or F of x1 and of x2
    aligned: bool

    @property
    def name(self) -> str:
        ways = "tma" if self.aligned else "padded"
        return f"{self.config.name}-{self.dtype}-{self.result}-{self.orders}-{ways}"


def variants() -> Iterator[Variant]:
    """Yield each configuration, whole and split, in four memory orders."""
    for number, config in enumerate(CONFIGS):
        for turn, orders in enumerate(("CC", "CF", "FC", "FF")):
            dtype = (BF16, F16)[(number + turn) % 2]
            result = (dtype, F32)[(number + turn // 2) % 2]
            split = 3 if (number + turn) % 3 == 0 else 1
            chosen = replace(config, split_k=split)
            yield Variant(chosen, dtype, result, orders, aligned=(number + turn) % 4 != 1)


def multiply(variant: Variant, a: Any, b: Any) -> Any:
    """Return a product by the configuration of a variant."""
    operands = [Operand(x.shape, x.strides, x.dtype, x.data.ptr) for x in (a, b)]
    posed = pose(*operands, options=Options(variant.result))
    assert posed.layout is not None
    arch = device(a.data.device_id).arch
    choice = choose(posed.layout, arch, variant.config)
    objection = check(choice.config, choice.problem, arch)
    assert objection is None, objection
    return make_runner(posed, choice)(a, b, None)


def product(variant: Variant, m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    """Return operands of small integers on the host, and their product by a variant."""
    import cupy

    if not variant.aligned:
        n, k = n | 1, k | 1
    x1, x2 = testing.integer_operands((m, k), (k, n), variant.dtype, seed=m + n + k)
    a, b = (
        cupy.asarray(np.array(x, order=order))
        for x, order in zip((x1, x2), variant.orders, strict=True)
    )
    return x1, x2, multiply(variant, a, b)


def main() -> None:
    """Run one product of several tiles by each variant."""
    for variant in variants():
        x1, x2, result = product(variant, 304, 520, 584)
        testing.assert_gemm_exact(result, x1, x2)
        sys.stdout.write(f"{variant.name}: exact\n")


if __name__ == "__main__":
    main()
