"""Matrices and right-hand sides that are stored side by side."""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm._solvers.common.augmented import augment, augmented_shape, store_columns
from cupygemm._solvers.common.matrices import empty
from tests.tables import swept

LAYOUTS = {
    "contiguous": lambda a: a,
    "transposed": lambda a: np.ascontiguousarray(a.swapaxes(-1, -2)),
    "padded": lambda a: np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, 3)]),
    "not aligned": lambda a: np.pad(a, [(0, 0)] * (a.ndim - 1) + [(1, 3)]),
}


def placed(cp, a, layout):
    """Return an array on the device whose memory has a layout."""
    n, memory = a.shape[-1], cp.asarray(LAYOUTS[layout](a))
    if layout == "transposed":
        return memory.swapaxes(-1, -2)
    start = layout == "not aligned"
    return memory[..., start : n + start]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("char", ["d", *swept("f", "F", "D")])
@pytest.mark.parametrize(
    ("stack", "n", "k", "stored"),
    [
        ((), 33, 3, 4),
        ((2,), 5, 1, 0),
        pytest.param((2, 2), 5, 1, 0, marks=pytest.mark.sweep),
        pytest.param((), 530, 2, 256, marks=pytest.mark.sweep),
    ],
)
def test_stored_beside_each_other(cp, draw, layout, char, stack, n, k, stored):
    a, b = draw((*stack, n, n), char), draw((*stack, n, k), char)
    dtype = np.dtype(char)
    columns, first = augmented_shape(n, k, dtype)
    made = empty(int(np.prod(stack)), n, columns, dtype)
    made.array.fill(7)
    on_device = placed(cp, a, layout)
    if stored:
        store_columns(made, on_device, range(stored))
        assert (made.array.get()[..., stored:] == 7).all()
    augment(made, on_device, cp.asarray(b), stored)
    expected = np.full(made.array.shape, 7, char)
    expected[..., :n] = a.reshape(-1, n, n)
    expected[..., n:first] = 0
    expected[..., first:columns] = b.reshape(-1, n, k)
    assert (made.array.get() == expected).all()


def test_matrices_of_another_type_and_one_for_all(cp, draw):
    a, b = draw((7, 7)).astype("f"), draw((3, 7, 2))
    columns, first = augmented_shape(7, 2, np.dtype("d"))
    made = empty(3, 7, columns, np.dtype("d"))
    for matrix in (a, a.astype("d")):
        made.array.fill(7)
        augment(made, cp.broadcast_to(cp.asarray(matrix), (3, 7, 7)), cp.asarray(b))
        found = made.array.get()
        assert (found[..., :7] == a).all()
        assert (found[..., first:columns] == b).all()
