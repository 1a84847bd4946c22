"""Accumulation in place by each kind of Hopper kernel, on the modelled GPU."""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm import testing
from cupygemm._backends.hopper.choice import tf32x3
from cupygemm._solvers.common import products
from tests.products.test_in_place import EXTENTS, kinds_in_place


@pytest.mark.slow
@pytest.mark.one_in(5)
@pytest.mark.parametrize(("m", "n"), EXTENTS)
def test_every_kind_of_kernel_accumulates_in_place(cp, model, m, n):
    kinds = kinds_in_place(cp, m, n)
    assert any(kind.is_split for kind in kinds)
    assert any(not kind.is_split for kind in kinds)


def test_products_of_float32_are_subtracted_in_place(cp, monkeypatch):
    monkeypatch.setattr(tf32x3, "require", lambda *_: None)  # cuBLAS is sooner with so small ones
    x1, x2 = testing.integer_operands((140, 96), (96, 72), np.float32, seed=1)
    c = np.arange(140 * 72, dtype="f").reshape(140, 72) % 37
    out = cp.asarray(c)
    rounding = products.ROUNDINGS["tf32x3"]
    assert products._kernels_add.__wrapped__(0, np.dtype("f"), rounding)
    monkeypatch.setattr(products, "_kernels_add", lambda *_: True)
    products.subtract_product(cp.asarray(x1), cp.asarray(x2), out, rounding)
    assert (out.get() == c - x1.astype("d") @ x2).all()
