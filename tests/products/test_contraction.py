"""Contractions as products of views: right for any strides, and without unnecessary copies.

The plan is pure, so NumPy runs it here: its views by `as_strided`, its product by `numpy.matmul`.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from cupygemm._products.contraction import ItemSizes, LabelledAxes, plan_contraction


def plan_of(x1, labels1, x2, labels2, labels_out, out=None):
    """Return the plan of NumPy arrays with labelled axes."""
    sizes = dict(zip((*labels1, *labels2), (*x1.shape, *x2.shape), strict=True))
    itemsize = x1.itemsize
    return plan_contraction(
        LabelledAxes(labels1, x1.strides),
        LabelledAxes(labels2, x2.strides),
        LabelledAxes(labels_out, None if out is None else out.strides),
        sizes=sizes,
        itemsizes=ItemSizes(x1=itemsize, x2=itemsize, out=itemsize),
    )


def run(x1, labels1, x2, labels2, labels_out, out=None):
    """Return the contraction as planned, and the plan."""
    plan = plan_of(x1, labels1, x2, labels2, labels_out, out)
    sizes = dict(zip((*labels1, *labels2), (*x1.shape, *x2.shape), strict=True))
    operands = []
    for x, labels, copy, view in (
        (x1, labels1, plan.x1_copy, plan.x1),
        (x2, labels2, plan.x2_copy, plan.x2),
    ):
        if copy is not None:
            strides = tuple(x.strides[labels.index(label)] for label in copy)
            part = as_strided(x, tuple(sizes[label] for label in copy), strides)
            operands.append(as_strided(part.copy(order="C"), view.shape, view.strides))
        else:
            operands.append(as_strided(x, view.shape, view.strides))
    memory = out
    if memory is None:
        memory = np.full([sizes[label] for label in plan.storage], -1, x1.dtype)
    product = as_strided(memory, plan.product.shape, plan.product.strides)
    np.matmul(*operands, out=product)
    return as_strided(memory, plan.result.shape, plan.result.strides), plan


def laid_out(generator, shape, order, steps=None):
    """Return an array of small integers whose axes have a memory order, outermost first."""
    steps = steps or (1,) * len(shape)
    block = [shape[axis] * abs(step) for axis, step in zip(order, steps, strict=True)]
    array = generator.integers(-4, 5, block).transpose(np.argsort(order))
    by_axis = dict(zip(order, steps, strict=True))
    return array[(..., *(np.s_[:: by_axis[axis]] for axis in range(len(shape))))]


@st.composite
def contractions(draw):
    """Draw two operands, their labels and the result's."""
    groups = [draw(st.integers(0, most)) for most in (2, 2, 2, 2)]  # batch, contracted, left, right
    labels = iter("abcdefgh")
    batch, contracted, left, right = ([next(labels) for _ in range(count)] for count in groups)
    extents = (
        st.sampled_from([0, 1, 2, 3, 5]) if draw(st.integers(0, 5)) == 0 else st.integers(1, 5)
    )
    sizes = {lb: draw(extents) for lb in (*batch, *contracted, *left, *right)}
    labels1 = draw(st.permutations([*batch, *contracted, *left]))
    labels2 = draw(st.permutations([*batch, *contracted, *right]))
    labels_out = tuple(draw(st.permutations([*batch, *left, *right])))
    generator = np.random.default_rng(draw(st.integers(0, 9)))
    arrays = []
    for names in (labels1, labels2):
        order = draw(st.permutations(range(len(names))))
        steps = tuple(draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in names)
        arrays.append(laid_out(generator, [sizes[lb] for lb in names], order, steps))
    out = None
    if draw(st.booleans()):
        shape = [sizes[lb] for lb in labels_out]
        out = laid_out(generator, shape, draw(st.permutations(range(len(shape)))))
    return arrays[0], tuple(labels1), arrays[1], tuple(labels2), labels_out, out


@pytest.mark.slow
@settings(max_examples=500)
@given(contractions())
def test_any_contraction(case):
    x1, labels1, x2, labels2, labels_out, _ = case
    result, plan = run(*case)
    expected = np.einsum(f"{''.join(labels1)},{''.join(labels2)}->{''.join(labels_out)}", x1, x2)
    np.testing.assert_array_equal(result, expected)
    assert len(plan.product.shape) >= 2


def test_matrices_are_multiplied_where_they_lie():
    a, b = np.ones((40, 50)), np.ones((50, 60))
    plan = plan_of(a, ("i", "k"), b, ("k", "j"), ("i", "j"))
    assert (plan.x1_copy, plan.x2_copy) == (None, None)
    assert (plan.x1.shape, plan.x2.shape, plan.product.shape) == ((40, 50), (50, 60), (40, 60))
    assert plan.storage == ("i", "j")


@pytest.mark.parametrize(
    ("labels1", "labels2", "labels_out", "batch_axes"),
    [
        ("abij", "bajk", "abik", 2),  # a stack whose axes have another memory order
        ("ijkl", "klm", "ijm", 0),  # two axes as one, on both sides
        ("kija", "kb", "ijab", 0),
        ("ikj", "kn", "ijn", 1),  # k between the kept axes: one of them becomes a batch
        ("ikj", "kn", "nij", 1),
        ("kibj", "bkn", "ijbn", 2),
    ],
)
def test_nothing_is_copied_where_strides_nest(labels1, labels2, labels_out, batch_axes):
    sizes = dict.fromkeys(labels1 + labels2, 40)
    x1, x2 = (
        as_strided(
            np.ones(1),
            [sizes[label] for label in labels],
            [8 * 40 ** (len(labels) - 1 - axis) for axis in range(len(labels))],
        )
        for labels in (labels1, labels2)
    )
    plan = plan_of(x1, tuple(labels1), x2, tuple(labels2), tuple(labels_out))
    assert (plan.x1_copy, plan.x2_copy) == (None, None)
    assert len(plan.product.shape) - 2 == batch_axes


def test_contracted_axes_in_different_orders_copy_the_smaller_operand():
    large, small = np.ones((50, 4, 6)), np.ones((6, 4, 7))
    plan = plan_of(large, ("i", "k", "l"), small, ("l", "k", "j"), ("i", "j"))
    assert plan.x1_copy is None
    assert plan.x2_copy == ("j", "k", "l")
    assert plan.x1.shape == (50, 24)


def test_slivers_are_copied_to_one_large_matrix():
    """A thousand products of two rows would leave tiles of 32 nearly empty."""
    a, b = np.ones((1000, 64, 2)), np.ones((64, 80))
    plan = plan_of(a, ("i", "k", "j"), b, ("k", "n"), ("i", "j", "n"))
    assert plan.x1_copy == ("i", "j", "k")
    assert plan.product.shape == (2000, 80)


def test_a_result_with_the_batch_innermost_is_a_transposed_view():
    """In C order no axis of the product would be adjacent, and it would have to be copied."""
    a, b = np.ones((9, 40, 50)), np.ones((9, 50, 60))
    plan = plan_of(a, ("b", "i", "k"), b, ("b", "k", "j"), ("i", "j", "b"))
    assert plan.storage == ("b", "i", "j")
    assert plan.result.shape == (40, 60, 9)
    assert plan.product.strides[-1] == 8
