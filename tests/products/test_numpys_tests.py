"""NumPy's own tests of products, which its wheels contain, run on this library's functions.

A test's module gets a stand-in for ``numpy`` whose products copy their operands to the device,
multiply there, and copy the result back; NumPy multiplies types that no device has. Intended
differences are omitted: subclasses, arguments that only this library accepts, and the text of
errors.
"""

import types

import numpy as np
import pytest

import cupygemm

TESTS = """
numpy._core.tests.test_multiarray:test_matmul_axes
numpy._core.tests.test_multiarray:TestMatmul.test_exceptions
numpy._core.tests.test_multiarray:TestMatmul.test_vector_vector_values
numpy._core.tests.test_multiarray:TestMatmul.test_vector_matrix_values
numpy._core.tests.test_multiarray:TestMatmul.test_matrix_vector_values
numpy._core.tests.test_multiarray:TestMatmul.test_matrix_matrix_values
numpy._core.tests.test_multiarray:TestMatmul.test_matmul_bool
numpy._core.tests.test_multiarray:TestVdot.test_basic
numpy._core.tests.test_multiarray:TestInner.test_3d_tensor
numpy._core.tests.test_ufunc:TestUfunc.test_vecdot
numpy._core.tests.test_ufunc:TestUfunc.test_matvec
numpy._core.tests.test_ufunc:TestUfunc.test_axis_argument
numpy._core.tests.test_ufunc:TestUfunc.test_keepdims_argument
numpy._core.tests.test_numeric:test_outer_out_param
numpy._core.tests.test_numeric:TestTensordot.test_zero_dimension
numpy._core.tests.test_numeric:TestTensordot.test_zero_dimensional
numpy._core.tests.test_einsum:TestEinsum.test_einsum_fixedstridebug
numpy._core.tests.test_einsum:TestEinsum.test_einsum_misc
numpy._core.tests.test_einsum:TestEinsum.test_inner_product
numpy._core.tests.test_einsum:TestEinsum.test_einsum_failed_on_p9_and_s390x
numpy.linalg.tests.test_linalg:TestMultiDot.test_basic_function_with_three_arguments
numpy.linalg.tests.test_linalg:TestMultiDot.test_basic_function_with_two_arguments
numpy.linalg.tests.test_linalg:TestMultiDot.test_basic_function_with_dynamic_programming_optimization
numpy.linalg.tests.test_linalg:TestMultiDot.test_vector_as_first_and_last_argument
numpy.linalg.tests.test_linalg:TestMultiDot.test_three_arguments_and_out
numpy.linalg.tests.test_linalg:TestMultiDot.test_dynamic_programming_optimization_and_out
""".split()
LONGEST = "fixedstridebug"  # products of 2-D operands, which other tests cover better
PRODUCTS = [
    "matmul",
    "dot",
    "vdot",
    "vecdot",
    "inner",
    "outer",
    "matvec",
    "vecmat",
    "tensordot",
    "einsum",
]


class Stand(types.ModuleType):
    """A module with some of its functions replaced."""

    def __init__(self, module, functions):
        super().__init__(module.__name__)
        self.module = module
        self.__dict__.update(functions)

    def __getattr__(self, name):
        return getattr(self.module, name)


class NotOnDevices(Exception):
    """An operand is of a type that no device has."""


def on_device(cp, function, numpys, called):
    """Return a function of this library as one of NumPy arrays; NumPy's own for other types."""

    def moved(x, arrays):
        if isinstance(x, np.ndarray):
            if type(x) is not np.ndarray or x.dtype.char not in "?bBhHiIlLqQefdFD":
                raise NotOnDevices
            arrays.append((x, cp.asarray(x)))
            return arrays[-1][1]
        return type(x)(moved(each, arrays) for each in x) if isinstance(x, (list, tuple)) else x

    def product(*args, **options):
        labelled = function.__name__ == "einsum" and not isinstance(args[0], str)
        if function.__name__ != "multi_dot" and not labelled:
            args = [np.asarray(x) if isinstance(x, list) else x for x in args]  # of numbers
        arrays = []
        try:
            moved_args = [moved(x, arrays) for x in args]
            moved_options = {key: moved(x, arrays) for key, x in options.items()}
        except NotOnDevices:
            return numpys(*args, **options)
        called.append(function.__name__)
        result = function(*moved_args, **moved_options)
        for host, array in arrays:
            if result is array:
                host[...] = cp.asnumpy(result)
                return host
        return cp.asnumpy(result)[()]

    return product


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "test",
    [
        pytest.param(
            test,
            id=test.rpartition(":")[2],
            marks=[pytest.mark.sweep] if test.endswith(LONGEST) else [],
        )
        for test in TESTS
    ],
)
def test_numpys(cp, monkeypatch, test):
    path, _, name = test.partition(":")
    monkeypatch.setattr(pytest.mark, "_config", None)  # NumPy's tests have marks of their own
    module = pytest.importorskip(path, reason="this NumPy has no tests")
    called = []
    functions = {
        key: on_device(cp, getattr(cupygemm, key), getattr(np, key), called) for key in PRODUCTS
    }
    linear = {"multi_dot": on_device(cp, cupygemm.linalg.multi_dot, np.linalg.multi_dot, called)}
    linalg = Stand(np.linalg, linear)
    monkeypatch.setattr(module, "np", Stand(np, functions | {"linalg": linalg}))
    for key, function in (functions | linear).items():
        if hasattr(module, key):
            monkeypatch.setattr(module, key, function)
    owner, _, method = name.rpartition(".")
    if not owner:
        getattr(module, method)()
    else:
        case = getattr(module, owner)()
        if owner == "TestMatmul":
            case.matmul = functions["matmul"]
        getattr(case, method)()
    assert called
