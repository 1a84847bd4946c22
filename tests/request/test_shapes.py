"""Shapes of products: the same results and refusals as NumPy, over many pairs of shapes."""

import itertools

import numpy as np
import pytest

from cupygemm._records.shapes import product_shape

SHAPES = [
    (),
    (0,),
    (1,),
    (2,),
    (3,),
    (2, 3),
    (3, 2),
    (3, 1),
    (1, 3),
    (0, 3),
    (3, 0),
    (2, 2, 3),
    (2, 3, 2),
    (1, 3, 2),
    (0, 3, 2),
    (4, 1, 2, 3),
    (4, 2, 3, 2),
    (1, 2, 3, 2),
    (3, 2, 3),
]


@pytest.mark.parametrize(("x1", "x2"), list(itertools.product(SHAPES, SHAPES)))
def test_pair_as_numpy(x1, x2):
    try:
        expected = np.matmul(np.zeros(x1), np.zeros(x2)).shape
    except ValueError:
        with pytest.raises(ValueError, match="matmul: ") as caught:
            product_shape(x1, x2)
        if () not in (x1, x2):
            assert str(x1) in str(caught.value)
            assert str(x2) in str(caught.value)
    else:
        assert product_shape(x1, x2).result == expected


OUTS = [
    (),
    (1,),
    (2,),
    (3,),
    (2, 2),
    (2, 3),
    (1, 2, 2),
    (5, 2, 2),
    (2, 2, 2),
    (4, 2, 2, 2),
    (3, 2, 2),
]


@pytest.mark.parametrize("x1", [(3,), (2, 3), (2, 2, 3), (1, 2, 3)])
@pytest.mark.parametrize("x2", [(3,), (3, 2), (2, 3, 2)])
@pytest.mark.parametrize("out", OUTS)
def test_out_as_numpy(x1, x2, out):
    try:
        expected = np.matmul(np.ones(x1), np.ones(x2), out=np.zeros(out)).shape
    except ValueError:
        with pytest.raises(ValueError, match="out has shape") as caught:
            product_shape(x1, x2, out)
        assert str(out) in str(caught.value)
    else:
        assert product_shape(x1, x2, out).result == expected


def test_extents():
    shape = product_shape((5, 1, 2, 3), (4, 3, 7))
    assert (shape.m, shape.n, shape.k, shape.batch) == (2, 7, 3, (5, 4))
    assert shape.size == 5 * 4 * 2 * 7


def test_message_names_the_axes():
    with pytest.raises(ValueError, match=r"x1 of shape \(2, 3\) has k = 3 .* \(4, 5\) has k = 4"):
        product_shape((2, 3), (4, 5))
