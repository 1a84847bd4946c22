"""Products of arbitrary shapes, types and views on the device, against NumPy, to the bit."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cupygemm
from cupygemm import testing

BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
EXTENTS = st.sampled_from([1, 2, 3, 7, 16, 31, 32, 33, 64, 65, 127, 130])


@pytest.fixture(scope="module", autouse=True)
def started(cp):
    """Start the device: it changes the recursion limit, to which hypothesis would object."""
    cupygemm.matmul(cp.ones(1, F16), cp.ones(1, F16))


@st.composite
def shapes(draw):
    """Draw the shapes of two operands, 1-D to 5-D."""
    m, n, k = draw(EXTENTS), draw(EXTENTS), draw(EXTENTS)
    if draw(st.integers(0, 5)) == 0:
        m, n, k = draw(st.permutations([m, n, 0]))
    batch = draw(st.lists(st.sampled_from([1, 2, 3]), max_size=3))
    operands = []
    for core in ((m, k), (k, n)):
        vector = draw(st.integers(0, 7)) == 0
        leading = [draw(st.sampled_from([1, e])) for e in batch[draw(st.integers(0, len(batch))) :]]
        operands.append((k,) if vector else (*leading, *core))
    return operands


@st.composite
def laid_out(draw, shape):
    """Draw an array's layout: the memory order of its axes, and its place in a larger block."""
    order = draw(st.permutations(range(len(shape))))
    margins = [draw(st.sampled_from([0, 0, 1, 8])) for _ in shape]
    steps = [draw(st.sampled_from([1] * 9 + [2, -1])) for _ in shape]

    def take(block):
        """Return the view of a block of `extents()` that has the shape."""
        if not shape:
            return block
        view = block.transpose(np.argsort(order))
        return view[tuple(np.s_[margin:] for margin in margins)][
            tuple(np.s_[::step] for step in steps)
        ]

    extents = [n * abs(s) + o for n, s, o in zip(shape, steps, margins, strict=True)]
    return [extents[axis] for axis in order], take


@pytest.mark.sweep  # test_fuzz.py draws the same shapes and views of other types
@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_any_product(cp, data):
    shape1, shape2 = data.draw(shapes())
    dtype = data.draw(st.sampled_from([BF16, F16]))
    values = testing.integer_operands(shape1, shape2, dtype, seed=data.draw(st.integers(0, 99)))
    operands = []
    for value in values:
        extents, take = data.draw(laid_out(value.shape))
        block = np.full(extents, np.nan, dtype)
        take(block)[...] = value
        operands.append(take(cp.asarray(block)))
    expected = testing.reference_matmul(*values)

    result_dtype = data.draw(st.sampled_from([None, F32, dtype]))
    result = cupygemm.matmul(*operands, dtype=result_dtype)
    assert result.shape == expected.shape
    assert result.dtype == (result_dtype or dtype)
    testing.assert_gemm_exact(result, *values)

    extents, take = data.draw(laid_out(expected.shape))
    block = np.full(extents, 77, dtype)
    memory = cp.asarray(block)
    cupygemm.matmul(*operands, take(memory))
    take(block)[...] = expected.astype(dtype)
    np.testing.assert_array_equal(cp.asnumpy(memory), block)
