"""Products of float32 and float64 by int8 products modulo several integers."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._backends.modular import product
from cupygemm._build.flatten import device_source
from cupygemm._numerics import residues
from tests.products.test_matmul import assert_only_written, poisoned

F32, F64 = np.dtype("f"), np.dtype("d")


def test_moduli_are_coprime_and_as_in_device_code():
    assert all(math.gcd(p, q) == 1 for p, q in itertools.combinations(residues.MODULI, 2))
    text = device_source("common/modular/moduli.hpp")
    table = re.search(r"all\[most_moduli\] = \{([^}]*)\}", text)[1]
    assert tuple(map(int, table.split(","))) == residues.MODULI


@pytest.mark.parametrize("count", [6, 11, 16])
def test_integers_are_put_together(count):
    """Sums of high parts are exact, and the low parts complete them."""
    found, total = residues.constants(count), math.prod(residues.MODULI[:count])
    unit = 2 ** max(total.bit_length() + 11 - 53, 0)
    assert all(int(each) % unit == 0 for each in (*found.high, found.product_high))
    assert 128 * count * total <= 2**53 * unit
    largest = int(residues.largest_norm(count, 1) ** 2)
    for integer in (0, 1, -77, largest // 3, largest, -largest):
        rests = [(integer + 128) % modulus - 128 for modulus in residues.MODULI[:count]]
        high = sum(int(w) * r for w, r in zip(found.high, rests, strict=True))
        low = sum(int(w) * r for w, r in zip(found.low, rests, strict=True))
        quotient = round(high * found.inverse)
        rest = high + low - quotient * (int(found.product_high) + int(found.product_low))
        assert abs(rest - integer) <= total >> 80


@pytest.mark.slow
@pytest.mark.parametrize("orders", [*map("".join, itertools.product("CF", repeat=3))][::3])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_integers_are_exact(cp, dtype, orders):
    rng = np.random.default_rng(4)
    a = rng.integers(-9, 10, (37, 45)).astype(dtype)
    b = rng.integers(-9, 10, (45, 33)).astype(dtype)
    view, memory = poisoned(cp, (37, 33), dtype, order=orders[2])
    x1, x2 = (cp.asarray(x, order=order) for x, order in zip((a, b), orders, strict=False))
    assert cupygemm.matmul(x1, x2, out=view, precision="int8x7") is view
    assert (view.get() == a @ b).all()
    assert_only_written(cp, memory, view)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "dtype"), [("int8x15", F64), ("int8x8", F64), ("int8x7", F32)]
)
def test_rows_and_columns_of_any_size_are_within_the_bound(cp, precision, dtype):
    rng = np.random.default_rng(5)
    reach = 15 if dtype == F32 else 140
    a = rng.standard_normal((20, 70)) * 10.0 ** rng.uniform(-reach, reach, (20, 1))
    b = rng.standard_normal((70, 30)) * 10.0 ** rng.uniform(-reach, reach, 30)
    a, b = a.astype(dtype), b.astype(dtype)
    got = cupygemm.matmul(cp.asarray(a), cp.asarray(b), precision=precision).get()
    assert got.dtype == dtype
    testing.assert_gemm_close(got, a, b, precision=precision)


@pytest.mark.slow
def test_fifteen_moduli_are_as_exact_as_float64(cp):
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((30, 200)), rng.standard_normal((200, 30))
    got = cupygemm.matmul(cp.asarray(a), cp.asarray(b), precision="int8x15").get()
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    assert np.abs(got - exact).max() <= np.abs(a @ b - exact).max()


def test_numbers_at_the_ends_of_the_range(cp):
    a = np.array([[5e-324, 0.0], [1e-310, 3e-310], [1.7e308, 1e308], [0.0, 0.0]])
    b = np.array([[1.0, 0.0, 2.0**1000, 1e-308], [2.0, 0.0, -(2.0**1000), 3e-308]])
    got = cupygemm.matmul(cp.asarray(a), cp.asarray(b), precision="int8x16").get()
    with np.errstate(over="ignore"):
        exact = (a.astype(np.longdouble) @ b.astype(np.longdouble)).astype(F64)
    assert np.isinf(exact).any()
    np.testing.assert_allclose(got, exact, rtol=1e-15, atol=5e-324)


def test_a_row_or_column_that_is_not_finite_becomes_nan(cp):
    a, b = np.ones((5, 6)), np.ones((6, 7))
    a[1, 2], a[3, 5], b[4, 6] = np.inf, np.nan, -np.inf
    got = cupygemm.matmul(cp.asarray(a), cp.asarray(b), precision="int8x8").get()
    bad = np.zeros((5, 7), bool)
    bad[[1, 3]], bad[:, 6] = True, True
    assert (np.isnan(got) == bad).all()
    assert (got[~bad] == 6).all()


@pytest.mark.parametrize(
    ("first", "second"), [((3, 1, 4, 20), (2, 20, 5)), ((20,), (20, 3)), ((2, 3, 20), (20,))]
)
def test_stacks_and_vectors(cp, first, second):
    rng = np.random.default_rng(7)
    a, b = rng.integers(-5, 6, first).astype("d"), rng.integers(-5, 6, second).astype("d")
    got = cupygemm.matmul(cp.asarray(a), cp.asarray(b), precision="int8x6")
    assert (got.get() == a @ b).all()


def test_strided_operands_and_overlapping_results(cp):
    x = np.random.default_rng(8).integers(-5, 6, (60, 60)).astype("d")
    given = cp.asarray(x)
    got = cupygemm.matmul(given[::-2, 10:40], given[10:40, ::3], precision="int8x6")
    assert (got.get() == x[::-2, 10:40] @ x[10:40, ::3]).all()
    cupygemm.matmul(given, given, out=given, precision="int8x6")
    assert (given.get() == x @ x).all()


@pytest.mark.slow
def test_updates_in_place_and_whole_epilogues(cp):
    rng = np.random.default_rng(9)
    a, b, c = rng.standard_normal((25, 40)), rng.standard_normal((40, 18)), np.ones((25, 18))
    x, y, out = cp.asarray(a), cp.asarray(b), cp.asarray(c)
    cupygemm.matmul(x, y, alpha=-2, beta=3, c=out, out=out, precision="int8x14")
    testing.assert_gemm_close(out, a, b, precision="int8x14", alpha=-2, beta=3, c=c)
    got = cupygemm.matmul(x, y, bias=cp.asarray(c[0]), activation="relu", precision="int8x14")
    np.testing.assert_allclose(got.get(), np.maximum(a @ b + 1, 0), atol=1e-13)
    got = cupygemm.matmul(x, y, dtype="float32", casting="unsafe", precision="int8x14")
    np.testing.assert_allclose(got.get(), (a @ b).astype("f"), rtol=1e-6, atol=1e-6)


def test_rows_and_terms_are_divided(cp, monkeypatch):
    monkeypatch.setattr(product, "MOST_TERMS", 64)
    monkeypatch.setattr(product, "_SUMS_BYTES", 1)
    monkeypatch.setattr(product, "_ROWS", 16)
    a = np.random.default_rng(10).integers(-5, 6, (36, 150)).astype("d")
    x, c = cp.asarray(a), cp.ones((36, 36))
    got = cupygemm.matmul(x, x.T, beta=2, c=c, precision="int8x6").get()
    assert (got == a @ a.T + 2).all()


def test_other_types_are_multiplied_as_without_it(cp):
    x = cp.ones((4, 4), "D")
    assert (cupygemm.matmul(x, x, precision="int8x9").get() == 4).all()
    with pytest.raises(ValueError, match=r"precision must be one of .*'int8x16'"):
        cupygemm.matmul(x, x, precision="int8x17")


def test_explain_tells_of_residues(cp, device):
    x = cp.ones((64, 64))
    text = str(cupygemm.explain(x, x, precision="int8x14"))
    assert "precision='int8x14' asks for products of 14 residues" in text
    assert "scaled and rounded to integers, as 14 residues of int8" in text
    if device.has_kernels:
        assert "batch 14" in text


PROGRAM = """
import cupy as cp, cupygemm, numpy as np
a, b = np.random.default_rng(1).integers(-9, 10, (2, 40, 40)).astype("d")
assert (cupygemm.matmul(cp.asarray(a), cp.asarray(b), precision="int8x14").get() == a @ b).all()
"""


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["gfx90a", "gfx950"])
def test_other_targets(run_python, target):
    run_python(PROGRAM, target=target)
