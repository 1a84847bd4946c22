"""Two thousand random calls on the device, bitwise equal to NumPy's on the same memory.

A call is a function, shapes (0, 1, primes, powers of two and their neighbours), types, the place of
each operand in a larger block, and the target: a new array, a block whose other elements must keep
their values, or an operand. Values are small integers, whose sums are exact, and sometimes
infinities and NaN, which must be where NumPy has them.
"""

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

import cupygemm

EXTENTS = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33])
TYPES = st.sampled_from([np.float32] * 6 + [np.float16] * 2 + [np.float64, np.int8])
EINSUMS = [
    "ij,jk",
    "ij,kj->ki",
    "bij,bjk->bik",
    "ij,ij->i",
    "ij,ij",
    "bi,bj->ij",
    "ij,j,ik->k",
    "ii,ij->j",
    "ij->ji",
    "...i,ij->...j",
]


class Memory:
    """A block of memory on the host, and its copy on the device."""

    def __init__(self, cp, block):
        self.host, self.device = block, cp.asarray(block)

    def assert_equal(self, cp):
        np.testing.assert_array_equal(cp.asnumpy(self.device), self.host)


@st.composite
def calls(draw):
    """Draw a function's name, the shapes of its operands and its options."""
    m, n, k = draw(EXTENTS), draw(EXTENTS), draw(EXTENTS)
    if draw(st.integers(0, 9)) == 0:
        m, n, k = draw(st.permutations([m, n, 0]))
    batch = draw(st.lists(st.sampled_from([1, 2, 3]), max_size=2))
    stacks = [
        tuple(draw(st.sampled_from([1, extent])) for extent in batch[draw(st.integers(0, 2)) :])
        for _ in range(2)
    ]
    name = draw(
        st.sampled_from(
            ["matmul"] * 4
            + ["dot", "inner", "vecdot", "matvec", "vecmat", "tensordot", "einsum"] * 2
            + ["outer", "vdot"]
        )
    )
    shapes, arguments = {
        "matmul": ([(*stacks[0], m, k), (*stacks[1], k, n)], ()),
        "dot": ([(*batch, m, k), draw(st.sampled_from([(k,), (k, n), (2, k, n)]))], ()),
        "inner": ([(m, k), draw(st.sampled_from([(k,), (n, k), (2, n, k)]))], ()),
        "vecdot": ([(*stacks[0], k), (*stacks[1], k)], ()),
        "matvec": ([(*stacks[0], m, k), (*stacks[1], k)], ()),
        "vecmat": ([(*stacks[0], k), (*stacks[1], k, n)], ()),
        "tensordot": ([(m, k, 3), (3, n, k)], (([1, 2], [2, 0]),)),
        "outer": ([(m,), (n,)], ()),
        "vdot": ([(m, 3), (m, 3)], ()),
        "einsum": ([], ()),
    }[name]
    if name == "einsum":
        subscripts = draw(st.sampled_from(EINSUMS))
        sizes = {"b": 2, "i": m, "j": k, "k": n}
        terms = subscripts.partition("->")[0].replace("...", "b").split(",")
        shapes = [tuple(sizes[label] for label in term) for term in terms]
        return name, shapes, (subscripts,)
    return name, shapes, arguments


@st.composite
def layouts(draw, shape):
    """Draw the layout of an array in a block: the block's extents, and how to view the array."""
    order = draw(st.permutations(range(len(shape))))
    margins = [draw(st.sampled_from([0, 0, 0, 1, 4])) for _ in shape]
    steps = [draw(st.sampled_from([1] * 12 + [2, -1])) for _ in shape]
    extents = [n * abs(s) + o for n, s, o in zip(shape, steps, margins, strict=True)]

    def take(block):
        view = block.transpose(np.argsort(order))
        view = view[(..., *(np.s_[margin:] for margin in margins))]
        return view[(..., *(np.s_[::step] for step in steps))]

    return [extents[axis] for axis in order], take


def values(draw, shape, dtype):
    """Draw small integers, and sometimes values that are not finite."""
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    low = 0 if dtype == np.bool_ else -3
    array = np.asarray(generator.integers(low, 4, shape)).astype(dtype)
    if np.dtype(dtype).kind == "f" and array.size and draw(st.integers(0, 7)) == 0:
        places = generator.integers(0, array.size, 2)
        array.ravel()[places] = generator.choice([np.inf, -np.inf, np.nan], 2)
    return array


def placed(cp, draw, array):
    """Return a block that contains an array, and a function that returns the array's view."""
    extents, take = draw(layouts(array.shape))
    block = np.full(extents, 99, array.dtype)  # values that no call may read
    if array.dtype.kind == "f":
        block[...] = np.nan
    take(block)[...] = array
    return Memory(cp, block), take


def target(cp, draw, expected, operands):
    """Return the memory of the result and a function that views it; None for a new array."""
    how = draw(st.sampled_from(["new", "new", "block", "operand"]))
    if how == "new":
        return None
    if how == "operand":
        memory, _ = operands[0]
        if memory.host.dtype == expected.dtype and memory.host.size >= expected.size:
            first = draw(st.integers(0, memory.host.size - expected.size))
            return memory, lambda block: block.reshape(-1)[first : first + expected.size].reshape(
                expected.shape
            )
    return placed(cp, draw, np.zeros(expected.shape, expected.dtype))


@pytest.mark.slow
@pytest.mark.one_in(16)
@pytest.mark.parametrize("part", range(16))
def test_as_numpy(cp, part):
    cupygemm.matmul(cp.ones(1), cp.ones(1))  # start the device, which sets the recursion limit

    @settings(max_examples=125)
    @seed(part)
    @given(st.data())
    def check(data):
        name, shapes, arguments = data.draw(calls())
        dtype = data.draw(TYPES)
        arrays = [values(data.draw, shape, dtype) for shape in shapes]
        ours, numpys = getattr(cupygemm, name), getattr(np, name)
        before = arguments if name == "einsum" else ()
        after = () if name == "einsum" else arguments
        with np.errstate(invalid="ignore", over="ignore"):
            expected = np.asarray(numpys(*before, *arrays, *after))
            operands = [placed(cp, data.draw, array) for array in arrays]
            options = {}
            widens = name in ("matmul", "vecdot", "matvec", "vecmat") and dtype == np.float16
            if widens and data.draw(st.booleans()):
                options = {"dtype": np.float32}
                expected = expected.astype(np.float32)
            out = None
            if name not in ("inner", "vdot", "tensordot", "dot"):  # NumPy's dot needs C order
                out = target(cp, data.draw, expected, operands)
            on_host = [take(memory.host) for memory, take in operands]
            on_device = [take(memory.device) for memory, take in operands]
            if out is None:
                expected = np.asarray(numpys(*before, *on_host, *after, **options))
                result = ours(*before, *on_device, *after, **options)
                assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
                np.testing.assert_array_equal(cp.asnumpy(result), expected)
            else:
                memory, take = out
                views = take(memory.host), take(memory.device)
                numpys(*before, *on_host, *after, **options, out=views[0])
                assert ours(*before, *on_device, *after, **options, out=views[1]) is views[1]
                memory.assert_equal(cp)
        for memory, _ in operands:
            memory.assert_equal(cp)

    check()
