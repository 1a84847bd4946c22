"""The arguments that functions accept as arrays, and those that they refuse."""

import numpy as np
import pytest
import scipy.sparse
from numpy.linalg import LinAlgError

import cupygemm
from cupygemm import linalg

FUNCTIONS = [
    cupygemm.matmul,
    cupygemm.dot,
    cupygemm.vdot,
    cupygemm.inner,
    cupygemm.outer,
    cupygemm.tensordot,
    cupygemm.vecdot,
    cupygemm.matvec,
    cupygemm.vecmat,
    linalg.matmul,
    linalg.outer,
    linalg.tensordot,
    linalg.vecdot,
]


def operands_of(function, cp):
    """Return two operands that a function takes, float32."""
    matrix, vector = cp.ones((4, 4), np.float32), cp.arange(4, dtype=np.float32)
    name = function.__name__
    if name == "matvec":
        return matrix, vector
    if name == "vecmat":
        return vector, matrix
    return (vector, vector) if name == "outer" else (matrix, matrix)


class Dlpack:
    """An array of another library: memory on the device, and DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


class OnHost(Dlpack):
    """A tensor in the memory of the host."""

    def __dlpack_device__(self):
        return 1, 0


class Interface:
    """An array of another library that has only the older protocol."""

    def __init__(self, array):
        self.__cuda_array_interface__ = array.__cuda_array_interface__ | {"stream": None}
        self.array = array


@pytest.mark.parametrize("kind", [Dlpack, Interface])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f"{f.__module__}.{f.__name__}")
def test_arrays_of_other_libraries(cp, function, kind):
    x1, x2 = operands_of(function, cp)
    expected = function(x1, x2)
    for operands in ((kind(x1), kind(x2)), (x1, kind(x2)), (kind(x1), x2)):
        result = function(*operands)
        assert isinstance(result, cp.ndarray)
        np.testing.assert_array_equal(cp.asnumpy(result), cp.asnumpy(expected))


@pytest.mark.parametrize("kind", [Dlpack, Interface])
def test_out_of_another_library_is_written_without_a_copy(cp, kind):
    a = cp.ones((4, 4), np.float32)
    for function in (cupygemm.matmul, cupygemm.dot, cupygemm.vecdot):
        memory = cp.zeros((4, 4) if function is not cupygemm.vecdot else (4,), np.float32)
        out = kind(memory)
        assert function(a, a, out) is out
        assert (cp.asnumpy(memory) == 4).all()


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f"{f.__module__}.{f.__name__}")
def test_arrays_of_the_host_are_refused_with_the_remedy(cp, function):
    x1, x2 = operands_of(function, cp)
    name = function.__name__
    first = "a" if name in ("dot", "vdot", "inner") else "."
    with pytest.raises(TypeError, match=rf"{name}: {first}.* numpy.ndarray, .* cupy\.asarray\("):
        function(cp.asnumpy(x1), x2)
    with pytest.raises(TypeError, match=rf"{name}: .* is a list, .* cupy\.asarray\("):
        function(x1, [1.0, 2.0])
    text = r"OnHost in the memory of the host, not a cupy\.ndarray; move it"
    with pytest.raises(TypeError, match=text):
        function(OnHost(x1), x2)


def test_sparse_matrices_are_refused_with_the_remedy(cp):
    text = r"x2 is a scipy.* make it dense first: cupy\.asarray\(x2\.toarray\(\)\)"
    with pytest.raises(TypeError, match=text):
        cupygemm.matmul(cp.ones((4, 4)), scipy.sparse.eye_array(4))


def test_two_numbers_are_refused():
    with pytest.raises(TypeError, match=r"dot: both operands are numbers; .* use numpy\.dot"):
        cupygemm.dot(2, 3.0)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda f, cp: cupygemm.dot(f(3, 4), f(3, 4)), ValueError, r"dot: .* 4 \(its last .* 3 \("),
        (lambda f, cp: cupygemm.dot(f(3), f(4)), ValueError, r"dot: .*\(its only axis\)"),
        (lambda f, cp: cupygemm.vdot(f(3), f(4)), ValueError, "vdot: the sizes differ: .* 3 .* 4"),
        (lambda f, cp: cupygemm.inner(f(3), f(4)), ValueError, "inner: the last extents differ"),
        (lambda f, cp: cupygemm.outer(f(3), f(4), f(4, 3)), ValueError, r"outer: out .*\(4, 3\)"),
        (lambda f, cp: linalg.outer(f(3, 1), f(4)), ValueError, "outer: .* must have one axis"),
        (lambda f, cp: cupygemm.tensordot(f(3, 4), f(3, 4)[:2]), ValueError, "axis 0 of a, .* b"),
        (lambda f, cp: cupygemm.tensordot(f(3), f(3), 2), ValueError, "axes = 2, but a has 1 axes"),
        (
            lambda f, cp: cupygemm.tensordot(f(3, 3), f(3), ([0, 0], [0, 0])),
            ValueError,
            "an axis of a twice",
        ),
        (lambda f, cp: cupygemm.tensordot(f(3), f(3), ([0], [])), ValueError, "1 axes of a and 0"),
        (lambda f, cp: cupygemm.tensordot(f(3), f(3), ([1], [0])), IndexError, "axis 1 is out of"),
        (lambda f, cp: cupygemm.vecdot(f(3), f(4)), ValueError, r"k in \(k\),\(k\)->\(\)"),
        (lambda f, cp: cupygemm.vecdot(f(2, 3), f(4, 3)), ValueError, "vecdot: .* broadcast"),
        (lambda f, cp: cupygemm.vecdot(f(1), f(3)), ValueError, "of k .* 1 in x1 .* 3 in x2"),
        (
            lambda f, cp: cupygemm.vecdot(f(3), f(3), axis=0, axes=[0, 0]),
            TypeError,
            "axis and axes are both given",
        ),
        (
            lambda f, cp: cupygemm.vecdot(f(3), f(3), axis="x"),
            TypeError,
            "axis 'x' of x1 is not an",
        ),
        (lambda f, cp: cupygemm.tensordot(f(3), f(3), "x"), ValueError, "axes = 'x'; it must be"),
        (lambda f, cp: cupygemm.tensordot(f(3), f(3), 1.5), TypeError, "axes = 1.5; it must be"),
        (lambda f, cp: cupygemm.tensordot(f(3), f(3), (0,)), ValueError, r"axes = \(0,\); it must"),
        (lambda f, cp: cupygemm.tensordot(f(3), f(3), 2), IndexError, "axes = 2, but a has 1 axes"),
        (lambda f, cp: cupygemm.matvec(f(3), f(3)), ValueError, r"x1 has shape \(3,\); it needs 2"),
        (lambda f, cp: cupygemm.matvec(f(2, 3), f(3), f(3)), ValueError, r"out .*\(3,\), .*\(2,\)"),
        (lambda f, cp: cupygemm.matvec(f(2, 3), f(3), axes=[0]), ValueError, "length of axes is 1"),
        (
            lambda f, cp: cupygemm.matvec(f(2, 3), f(3), axes=[0, 0, 0]),
            ValueError,
            "axes gives .* for x1; the number of its core axes",
        ),
        (lambda f, cp: cupygemm.vecdot(f(3), f(3), (f(), f())), ValueError, "out is a tuple of 2"),
        (lambda f, cp: linalg.multi_dot([f(3, 3)]), ValueError, "the number of arrays is 1"),
        (
            lambda f, cp: linalg.multi_dot([f(3, 3), f(3), f(3, 3)]),
            LinAlgError,
            r"arrays\[1\] has shape \(3,\); it must have 2 axes",
        ),
        (
            lambda f, cp: linalg.multi_dot([f(3, 3), f(3, 4), f(3, 3)]),
            ValueError,
            r"arrays\[1\] of shape \(3, 4\) and arrays\[2\]",
        ),
        (lambda f, cp: linalg.matrix_power(f(3, 4), 2), LinAlgError, "must be square"),
        (lambda f, cp: linalg.matrix_power(f(3), 2), LinAlgError, r"shape \(3,\); the matrices"),
        (lambda f, cp: linalg.matrix_power(f(3, 3), 2.5), TypeError, r"n is 2\.5"),
        (lambda f, cp: linalg.matrix_transpose(f(3)), ValueError, "needs two axes"),
        (lambda f, cp: cupygemm.vecdot(f(3), f(3), dtype="i4"), TypeError, "cannot cast x1"),
    ],
)
def test_refusals(cp, call, error, text):
    with pytest.raises(error, match=text):
        call(lambda *shape: cp.ones(shape, np.float32), cp)


def test_refusals_leave_out_alone(cp):
    a = cp.ones((4, 4), np.float32)
    out = cp.full((4, 4), 9, np.float64)
    with pytest.raises(ValueError, match=r"dot: out is float64 .* the result is float32"):
        cupygemm.dot(a, a, out)
    with pytest.raises(TypeError, match="cannot cast output"):
        cupygemm.vecdot(a, a, out[0].view(np.int64))
    assert (cp.asnumpy(out) == 9).all()
