"""NumPy's keywords ``axes``, ``axis``, ``keepdims`` and ``order``, and ``stream``.

A random call gives NumPy's elements and shape, and NumPy's memory order if one is requested.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cupygemm

CORES = {
    "matmul": ("mk", "kn", "mn"),
    "vecdot": ("k", "k", ""),
    "matvec": ("mk", "k", "m"),
    "vecmat": ("k", "kn", "n"),
}
EXTENTS = {"m": 3, "k": 4, "n": 5}


@pytest.fixture(autouse=True)
def started(cp):
    """Start the device: it changes the recursion limit, to which hypothesis would object."""
    cp.ones(1) + 1


@st.composite
def calls(draw):
    """Draw a function's name, the shapes of its operands, its keywords and the place of ``out``."""
    name = draw(st.sampled_from([*CORES, "matmul"]))
    cores = CORES[name]
    if name == "matmul":
        row, column = draw(st.sampled_from(["m", ""])), draw(st.sampled_from(["n", ""]))
        cores = row + "k", "k" + column, row + column
    options = {"order": draw(st.sampled_from(["K", "C", "F", "A", "f"]))}
    if name == "vecdot" and draw(st.booleans()):
        options["keepdims"] = True
        cores = "k", "k", "*"
    stack = draw(st.sampled_from([(), (2,), (2, 6)]))
    stacks = [stack, stack[draw(st.integers(0, len(stack))) :]]
    axes, shapes = [], []
    stacks = list(draw(st.permutations(stacks)))
    if name == "matmul":  # for it, only a 1-D operand is a vector
        stacks = [b if len(core) == 2 else () for b, core in zip(stacks, cores, strict=False)]
    for core, batch in zip(cores, (*stacks, max(stacks, key=len)), strict=True):
        ndim = len(batch) + len(core)
        place = draw(st.permutations(range(ndim)))[: len(core)]
        extents = dict(zip(place, (EXTENTS.get(letter, 1) for letter in core), strict=True))
        rest = iter(batch)
        shapes.append(tuple(extents[a] if a in extents else next(rest) for a in range(ndim)))
        signed = [a - ndim * draw(st.integers(0, 1)) for a in place]
        axes.append(signed[0] if len(core) == 1 and draw(st.booleans()) else tuple(signed))
    if name == "vecdot" and draw(st.booleans()):  # the result's is then the last one
        axes = axes[:2]
        if "keepdims" in options:
            shapes[2] = (*(max(stacks, key=len)), 1)
    return name, shapes, options | {"axes": axes}, draw(st.booleans())


@pytest.mark.slow
@settings(max_examples=90)
@given(call=calls(), seed=st.integers(0, 2**31))
def test_axes_and_order_are_numpys(cp, call, seed):
    name, (shape1, shape2, shape_out), options, given_out = call
    generator = np.random.default_rng(seed)
    x1, x2 = (generator.integers(-4, 5, shape).astype("f4") for shape in (shape1, shape2))
    if generator.integers(2):
        x1, x2 = np.asfortranarray(x1), np.asfortranarray(x2)
    expected = getattr(np, name)(x1, x2, **options)
    assert expected.shape == shape_out, "of the test itself"
    ours = [cp.asarray(x) for x in (x1, x2)]
    if given_out:
        block = cp.full((*(n + 1 for n in shape_out),), 7, np.float32)
        view = block[tuple(slice(1, None) for _ in shape_out)]
        assert getattr(cupygemm, name)(*ours, out=view, **options) is view
        result = view.copy()
        view[...] = 7
        assert (cp.asnumpy(block) == 7).all()
    else:
        result = getattr(cupygemm, name)(*ours, **options)
        if options["order"] in ("C", "F") or (options["order"] == "A" and expected.ndim > 1):
            assert result.strides == expected.strides
    np.testing.assert_array_equal(cp.asnumpy(result), expected)


@pytest.mark.parametrize("axis", [0, 1, -1, -3])
def test_axis_of_vecdot(cp, axis):
    x = np.arange(24, dtype="f4").reshape(2, 3, 4)
    for options in ({}, {"keepdims": True}):
        expected = np.vecdot(x, x, axis=axis, **options)
        result = cupygemm.vecdot(cp.asarray(x), cp.asarray(x), axis=axis, **options)
        np.testing.assert_array_equal(cp.asnumpy(result), expected)


def test_axes_are_whatever_is_an_integer(cp):
    x = np.arange(24, dtype="f4").reshape(2, 3, 4)
    axes = [np.int8(-1), np.array(-1, dtype=np.int32)]
    result = cupygemm.vecdot(cp.asarray(x), cp.asarray(x), axes=axes)
    np.testing.assert_array_equal(cp.asnumpy(result), np.vecdot(x, x, axes=axes))


def test_axes_with_the_options_of_matmul(cp):
    """They refer to the product before its axes are moved, as in `explain`."""
    x = cp.asarray(np.arange(24, dtype="f4").reshape(2, 3, 4))
    bias = cp.asarray(np.arange(2, dtype="f4")).reshape(2, 1, 1)
    axes = [(1, 2), (2, 1), (0, 1)]
    result = cupygemm.matmul(x, x[0], axes=[(1, 2), (1, 0), (0, 1)], alpha=2, dtype="float64")
    expected = 2 * np.matmul(x.get(), x.get()[0], axes=[(1, 2), (1, 0), (0, 1)])
    np.testing.assert_array_equal(cp.asnumpy(result), expected)
    turned = cupygemm.matmul(x, x, axes=axes, bias=bias, order="F")
    expected = np.matmul(x.get(), x.get(), axes=axes) + np.arange(2)
    np.testing.assert_array_equal(cp.asnumpy(turned), expected)
    explained = cupygemm.explain(x, x, axes=axes, stream=cp.cuda.Stream.null)
    assert "-> float32 (2, 3, 3)" in explained.call


@pytest.mark.parametrize(
    "axes",
    [
        5,
        "mk",
        [(0, 1)],
        [(0,), (0, 1), (0, 1)],
        [(0, 0), (0, 1), (0, 1)],
        [(0, 1), (0, 1), (0, 2)],
        [(0, 1), (0, 1.5), (0, 1)],
    ],
)
def test_axes_that_are_none_raise_as_numpys_do(cp, axes):
    x = np.ones((4, 4), "f4")
    with pytest.raises((ValueError, TypeError)) as numpys:
        np.matmul(x, x, axes=axes)
    with pytest.raises(numpys.type, match=r"ax[ei]s|integer"):
        cupygemm.matmul(cp.asarray(x), cp.asarray(x), axes=axes)


class AnotherLibrarys:
    """A stream of a library that has the protocol only."""

    def __init__(self, stream):
        self.stream = stream

    def __cuda_stream__(self):
        return 0, self.stream.ptr


def test_a_stream_of_another_library(cp):
    seen = []

    class Watched(cp.ndarray):
        def conj(self):
            seen.append(cp.cuda.get_current_stream().ptr)
            return super().conj()

    stream = cp.cuda.Stream(non_blocking=True)
    x = cp.ones(4, np.complex64).view(Watched)
    cp.cuda.Device().synchronize()
    result = cupygemm.vecdot(x, x, stream=AnotherLibrarys(stream))
    stream.synchronize()
    assert seen == [stream.ptr]
    assert float(result.real) == 4
    assert cp.cuda.get_current_stream().ptr == 0


@pytest.mark.parametrize("name", ["matmul", "dot", "grouped_matmul", "einsum", "gemm"])
def test_what_is_no_stream_or_lies_elsewhere_is_refused(cp, name):
    a = cp.ones((4, 4), np.float32)
    out = cp.full((4, 4), 9, np.float32)
    positional = {
        "einsum": ("ij,jk", a, a),
        "grouped_matmul": ([a], [a]),
        "gemm": (1, a, a),
    }.get(name, (a, a))
    call = getattr(cupygemm, name)
    given = {"out": [out] if name == "grouped_matmul" else out}
    with pytest.raises(TypeError, match=rf"{name}: stream is 0; pass a cupy\.cuda\.Stream"):
        call(*positional, stream=0, **given)
    elsewhere = type("Elsewhere", (), {"ptr": 1, "device_id": 3, "__enter__": None})()
    with pytest.raises(ValueError, match=f"{name}: the stream is on device 3, the arrays are on d"):
        call(*positional, stream=elsewhere, **given)
    assert (cp.asnumpy(out) == 9).all()
