"""Code objects that Triton makes without a GPU run on the emulated device and are right.

They need `pip install "cupygemm[triton]"`; see conftest.py for where they are collected.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import triton.language as tl

from tests.triton_kernels import kernels
from tests.triton_kernels.harness import TYPES, compile_kernel

pytestmark = pytest.mark.triton

RNG = np.random.default_rng(5)
ORDERS: tuple[Any, ...] = ("lockstep", "forward", "reverse", ("random", 1))
# target, dtype, tile_k, num_warps, num_stages, operands stored transposed, further options
PRODUCTS: tuple[Any, ...] = (
    ("gfx942", "fp16", 32, 4, 1, "", {}),
    ("gfx942", "bf16", 64, 8, 2, "ab", {"matrix_instr_nonkdim": 32}),
    ("gfx942", "fp8e4b8", 64, 4, 2, "b", {}),
    ("gfx942", "fp8e5b16", 64, 2, 1, "", {}),
    ("gfx942", "i8", 64, 4, 2, "b", {}),
    ("gfx942", "fp32", 32, 4, 3, "a", {}),
    ("gfx942", "fp64", 16, 4, 1, "", {}),
    ("gfx950", "fp16", 32, 4, 3, "", {}),
    ("gfx950", "bf16", 64, 8, 2, "a", {}),
    ("gfx950", "fp8e4nv", 128, 4, 2, "b", {}),
    ("gfx950", "fp8e5", 64, 4, 2, "", {}),
    ("gfx90a", "fp16", 32, 4, 2, "b", {}),
    ("gfx90a", "bf16", 32, 8, 1, "", {}),
)


def integers(*shape: int, dtype: str, low: int = -3, high: int = 4) -> np.ndarray:
    """Return small integers, whose products and sums are exact in every type."""
    return RNG.integers(low, high, shape).astype(TYPES[dtype])


@pytest.mark.parametrize(
    ("target", "dtype", "tile_k", "num_warps", "num_stages", "transposed", "options"), PRODUCTS
)
def test_matmul(
    target: str,
    dtype: str,
    tile_k: int,
    num_warps: int,
    num_stages: int,
    transposed: str,
    options: dict[str, Any],
) -> None:
    m, n, k = 130, 100, 2 * tile_k + 16
    a, b = integers(m, k, dtype=dtype), integers(k, n, dtype=dtype)
    accumulate = {"i8": "i32", "fp64": "fp64"}.get(dtype, "fp32")
    c = np.zeros((m, n), TYPES[accumulate])
    strides = ((1, m) if "a" in transposed else (k, 1)) + ((1, k) if "b" in transposed else (n, 1))
    arguments = (
        np.asfortranarray(a).T if "a" in transposed else a,
        np.asfortranarray(b).T if "b" in transposed else b,
        c,
        m,
        n,
        k,
        *strides,
    )
    constants = {
        "tile_m": 64,
        "tile_n": 64,
        "tile_k": tile_k,
        "precision": "ieee",
        "accumulate": {"i32": tl.int32, "fp64": tl.float64, "fp32": tl.float32}[accumulate],
    }
    kernel = compile_kernel(
        kernels.matmul,
        target,
        arguments,
        constants,
        num_warps=num_warps,
        num_stages=num_stages,
        **options,
    )
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for order in ORDERS[::2]:
        c[:] = 99
        stats = kernel((6, 1, 1), *arguments, order=order)
        assert (c == expected).all()
        assert stats.mfma > 0


def test_tf32_keeps_the_bound_of_its_significand() -> None:
    """Gfx942 multiplies fp32 as tf32 where asked: 11 bits of each factor."""
    m = n = k = 64
    a, b = (RNG.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    c = np.zeros((m, n), np.float32)
    constants = {
        "tile_m": 64,
        "tile_n": 64,
        "tile_k": 32,
        "precision": "tf32",
        "accumulate": tl.float32,
    }
    arguments = (a, b, c, m, n, k, k, 1, n, 1)
    stats = compile_kernel(kernels.matmul, "gfx942", arguments, constants)((1, 1, 1), *arguments)
    assert any("xf32" in name for name in stats.mnemonics)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert (np.abs(c - exact) <= 2.0**-9 * (np.abs(a) @ np.abs(b))).all()
    assert (c != exact.astype(np.float32)).any()


@pytest.mark.parametrize("order", ORDERS)
def test_split_k_adds_with_atomics(order: Any) -> None:
    m, n, k = 70, 50, 200
    a, b = integers(m, k, dtype="fp16"), integers(k, n, dtype="fp16")
    c = np.zeros((m, n), np.float32)
    constants = {"tile": 32, "tile_k": 32, "splits": 3}
    kernel = compile_kernel(kernels.split_k, "gfx942", (a, b, c, m, n, k), constants)
    kernel((6, 3, 1), a, b, c, m, n, k, order=order)
    assert (c == a.astype(np.float64) @ b.astype(np.float64)).all()


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_attention(target: str) -> None:
    heads, length, width = 2, 100, 64
    q, k, v = (RNG.standard_normal((heads, length, width)).astype(np.float16) for _ in range(3))
    out = np.zeros_like(q)
    scale = width**-0.5 * np.log2(np.e)
    arguments = (q, k, v, out, length, float(scale))
    constants = {"width": width, "tile_q": 64, "tile_k": 32}
    kernel = compile_kernel(kernels.attention, target, arguments, constants, num_stages=2)
    scores = np.float64(q) @ np.float64(k).transpose(0, 2, 1) * width**-0.5
    scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    expected = weights / weights.sum(2, keepdims=True) @ np.float64(v)
    for order in ORDERS[::2]:
        out[:] = np.nan
        kernel((2, heads, 1), *arguments, order=order)
        # fp16 weights and fp16 results: 2**-11 each, and what the sum makes of it.
        assert np.abs(out - expected).max() <= 4 * 2.0**-11 * np.abs(v).max()


@pytest.mark.parametrize("num_warps", [1, 8])
def test_softmax(num_warps: int) -> None:
    x = RNG.standard_normal((3, 700)).astype(np.float32)
    y = np.zeros_like(x)
    kernel = compile_kernel(
        kernels.softmax, "gfx942", (x, y, 700), {"block": 1024}, num_warps=num_warps
    )
    kernel((3, 1, 1), x, y, 700)
    weights = np.exp(np.float64(x))
    np.testing.assert_allclose(y, weights / weights.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("order", ORDERS)
def test_sort_scan_and_histogram(order: Any) -> None:
    x = integers(512, dtype="i32", low=0, high=64)
    ordered, sums, counts = np.zeros_like(x), np.zeros_like(x), np.zeros(64, np.int32)
    arguments = (x, ordered, sums, counts)
    kernel = compile_kernel(kernels.sort_and_scan, "gfx942", arguments, {"n": 512, "bins": 64})
    kernel((1, 1, 1), *arguments, order=order)
    assert (ordered == np.sort(x)).all()
    assert (sums == x.cumsum()).all()
    assert (counts == np.bincount(x, minlength=64)).all()


@pytest.mark.parametrize("order", ORDERS)
def test_workgroups_contend_for_a_lock(order: Any) -> None:
    lock, total, x = np.zeros(1, np.int32), np.zeros(256, np.int32), integers(3, 256, dtype="i32")
    kernel = compile_kernel(kernels.under_a_lock, "gfx942", (lock, total, x), {"n": 256})
    kernel((3, 1, 1), lock, total, x, order=order)
    assert (total == x.sum(0)).all()


def test_through_cupy(run_python: Callable[..., str], tmp_path: Path) -> None:
    """RawModule(path=...): two more pointers, and the dynamic LDS that Triton asks for."""
    a = b = c = np.zeros((1, 1), np.float16)
    constants = {"tile": 64, "tile_k": 32, "splits": 1}
    kernel = compile_kernel(
        kernels.split_k, "gfx942", (a, b, c.astype(np.float32), 100, 72, 64), constants
    )
    path = tmp_path / "split_k.hsaco"
    path.write_bytes(kernel.code)
    code = f"""
import cupygemm, cupy, numpy as np
kernel = cupy.RawModule(path={str(path)!r}).get_function({kernel.name!r})
rng = np.random.default_rng(0)
a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((100, 64), (64, 72)))
c = cupy.zeros((100, 72), cupy.float32)
sizes = [np.int32(x) for x in (100, 72, 64)]
arguments = (cupy.asarray(a), cupy.asarray(b), c, *sizes, np.uint64(0), np.uint64(0))
kernel((4, 1, 1), ({kernel.threads},), arguments, shared_mem={kernel.dynamic_lds})
assert (c.get() == a.astype(float) @ b.astype(float)).all()
print("right")
"""
    assert run_python(code, target="gfx942").strip() == "right"
