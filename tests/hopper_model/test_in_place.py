"""Accumulation in place by each kind of Hopper kernel, on the modelled GPU."""

from __future__ import annotations

import pytest

from tests.products.test_in_place import EXTENTS, kinds_in_place


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("m", "n"), EXTENTS)
def test_every_kind_of_kernel_accumulates_in_place(cp, model, m, n):
    kinds = kinds_in_place(cp, m, n)
    assert any(kind.is_split for kind in kinds)
    assert any(not kind.is_split for kind in kinds)
