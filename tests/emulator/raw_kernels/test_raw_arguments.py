"""Arguments of `cupy.RawKernel` that the kernel would misread are reported before the launch."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.code_object.kept_source import SECTION
from cupygemm.emulator.errors import ArgumentFault, EmulatorError, KernelWarning
from cupygemm.emulator.raw_kernels.parameter_types import without_name
from cupygemm.emulator.runtime.compile import compile_program

SOURCE = """
typedef float real;
#define INDEX unsigned int
struct Pair { float x, y; };
/* __global__ void all(double* old); */
extern "C" __global__ void all(const real* __restrict__ a, float *out, float alpha, size_t n,
                               int m = 3 /* a default */) {
    if (threadIdx.x < n) out[threadIdx.x] = a[threadIdx.x] * alpha + m;
}
extern "C" __global__ void others(const float4* v, const void* any, Pair* p, INDEX count,
                                  unsigned short bits, double d, const unsigned char bytes[]) {}
template <typename T> __global__ void scaled(const T* a, T* out, T alpha, unsigned n) {
    if (threadIdx.x < n) out[threadIdx.x] = a[threadIdx.x] * alpha;
}
"""
NAMES = ("scaled<float>", "scaled<double>")
FLOAT = "takes float, of 4 bytes, and would read"
INT = "takes int, of 4 bytes, and would read"
SIZE = "takes size_t, of 8 bytes, and would read"
AS_F8 = "is passed, as 8 bytes of float64: pass numpy.float32("
TOO_LARGE = "is passed, as 8 bytes of int64: int32 does not hold this value"
ONE, TWO = np.float32(1), np.float32(2)


@pytest.fixture(scope="module")
def module(emulated_cp: ModuleType) -> Any:
    """The kernels above."""
    declared = SOURCE.replace('extern "C" ', "")
    return {
        "": emulated_cp.RawModule(code=SOURCE),
        "C++": emulated_cp.RawModule(code=declared, name_expressions=("all", "others", *NAMES)),
    }


def findings(kernel: Any, *arguments: Any) -> tuple[str, str]:
    """Launch a kernel; return the errors and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", KernelWarning)
        try:
            kernel((1,), (64,), arguments)
        except ArgumentFault as err:
            return str(err), "".join(str(each.message) for each in caught)
    return "", "".join(str(each.message) for each in caught)


@pytest.mark.parametrize("linkage", ["", "C++"])
@pytest.mark.parametrize(
    ("alpha", "n", "m", "expected"),
    [
        (2.5, 10, 3, f"argument 2 (alpha): the kernel {FLOAT} 0.0; the Python float 2.5 {AS_F8}"),
        (np.float64(0.1), 10, 3, f"{FLOAT} -1.5881868e-23; the numpy.float64 0.1 {AS_F8}"),
        (2, 10, 3, f"{FLOAT} 3e-45; the Python int 2 is passed, as 8 bytes of int64"),
        (1 + 2j, 10, 3, "the Python complex (1+2j) is passed, as 16 bytes of complex128"),
        (ONE, np.int32(-1), 3, f"(n): the kernel {SIZE} 4294967295"),
        (ONE, 1.0, 3, f"(n): the kernel {SIZE} 4607182418"),
        (ONE, 10, 1 << 40, f"{INT} 0; the Python int {1 << 40} {TOO_LARGE}"),
        (ONE, 10, ONE, f"(m): the kernel {INT} 1065353216"),
    ],
)  # fmt: skip
def test_a_number_that_would_be_misread_is_an_error(
    module: Any, emulated_cp: ModuleType, linkage: str, alpha: Any, n: Any, m: Any, expected: str
) -> None:
    a = emulated_cp.ones(64, "f4")
    error, warned = findings(module[linkage].get_function("all"), a, a, alpha, n, m)
    if linkage:
        expected = expected.replace("size_t", "unsigned long")
    assert expected in error
    assert error.endswith("\n  check: argument_types")
    assert not warned


@pytest.mark.parametrize("linkage", ["", "C++"])
@pytest.mark.parametrize(
    ("alpha", "n", "m"),
    [
        (TWO, 10, 3),
        (TWO, np.uint64(10), np.int32(-3)),
        (TWO, np.int32(10), -3),
        (0.0, True, 0xFFFF_FFFD),  # all keep their values, or the bits that C would keep
        (np.float32("nan"), np.int8(10), np.int64(3)),
    ],
)
def test_a_number_that_keeps_its_value_is_not(
    module: Any, emulated_cp: ModuleType, linkage: str, alpha: Any, n: Any, m: Any
) -> None:
    a, out = emulated_cp.ones(64, "f4"), emulated_cp.zeros(64, "f4")
    assert findings(module[linkage].get_function("all"), a, out, alpha, n, m) == ("", "")
    expected = np.float32(alpha) + np.array(m).astype(np.int32)
    np.testing.assert_array_equal(out.get()[: int(n)], np.float32(expected))


def test_kernels_that_are_templates_have_the_types_of_their_names(
    module: Any, emulated_cp: ModuleType
) -> None:
    a, b = emulated_cp.ones(64, "f4"), emulated_cp.ones(64, "f8")
    single, double = (module["C++"].get_function(name) for name in NAMES)
    assert "the kernel takes float, of 4 bytes" in findings(single, a, a, 1.5, 64)[0]
    assert "the kernel takes double, of 8 bytes" in findings(double, b, b, TWO, 64)[0]
    assert (
        "(a): the kernel takes double const*, and an array of float32"
        in (findings(double, a, b, 1.5, 16)[1])
    )
    a, b = a[:32], b[:32]
    assert findings(double, b, b, 1.5, 32) == findings(single, a, a, TWO, 32) == ("", "")


@pytest.mark.parametrize("linkage", ["", "C++"])
def test_too_few_arguments_are_an_error_and_too_many_a_warning(
    module: Any, emulated_cp: ModuleType, linkage: str
) -> None:
    a, kernel = emulated_cp.ones(64, "f4"), module[linkage].get_function("all")
    error, warned = findings(kernel, a, a, TWO, 64)
    assert error.startswith(f"kernel {kernel.name} would misread") or linkage
    assert "it takes 5 arguments: (" in error
    assert "); 4 are given\n" in error
    assert not warned
    error, warned = findings(kernel, a, a, TWO, 64, 3, 4)
    assert "6 are given; the last are not used" in warned
    assert not error


def test_classes_that_binary_modules_of_cupy_import_are_its_own(emulated_cp: ModuleType) -> None:
    """Another class of the name has no table of C functions, and the import of a module fails."""
    function = emulated_cp.cuda.function
    assert function.Module.__base__ is function.Function.__base__ is object
    kernel = emulated_cp.RawKernel('extern "C" __global__ void none() {}', "none").kernel
    assert isinstance(kernel, function.Function)
    assert type(kernel) is not function.Function


@pytest.mark.parametrize("keeps_source", [True, False])
def test_kernels_of_files_get_the_same_reports(
    emulated_cp: ModuleType, tmp_path: Path, *, keeps_source: bool
) -> None:
    cp, path = emulated_cp, tmp_path / "all.hsaco"
    code = compile_program(SOURCE, "all.cu", target_name=emulator.target()).code
    another = SECTION[:-1].encode() + b"-"
    path.write_bytes(code if keeps_source else code.replace(SECTION.encode(), another))
    module = cp.RawModule(path=str(path))
    assert type(module) is type(cp.RawModule(code=SOURCE)) is cp.RawModule
    kernel = module.get_function("all")
    assert isinstance(kernel, cp.RawKernel)
    assert (kernel.name, kernel.file_path, kernel.code) == ("all", str(path), None)
    a, out = cp.ones((8, 8), "f4"), cp.zeros((9, 64), "f4")
    error, _ = findings(kernel, a, out, 2.5, 10, 3)
    takes = "float, of 4 bytes, and would read 0.0" if keeps_source else "a value of 4 bytes"
    assert f"argument 2 (alpha): the kernel takes {takes}" in error
    assert "it takes 5 arguments" in findings(kernel, a, out)[0]
    _, warned = findings(kernel, a.T, out, ONE, 64, 3)
    assert "argument 0 (a): an array of shape (8, 8) whose strides are (1, 8) elements" in warned
    _, warned = findings(kernel, a, out[1, :8], ONE, 64, 3)
    assert "argument 1 (out): an array of shape (8,), which is a part of another" in warned
    _, warned = findings(kernel, out[0], out[1], ONE, 64, 3)
    assert not warned
    again = pickle.loads(pickle.dumps(kernel))
    for each in (kernel, again):
        out[:] = 0
        assert findings(each, a, out, TWO, 64, 3) == ("", "")
        np.testing.assert_array_equal(out[0].get(), 5)


def test_an_array_in_place_of_a_tuple_is_named(emulated_cp: ModuleType) -> None:
    kernel = emulated_cp.RawKernel('extern "C" __global__ void one(float* x) { x[0] = 1; }', "one")
    x = emulated_cp.zeros(8, "f4")
    with pytest.warns(KernelWarning, match=r"8 are given; .*elements of an array: write \(x,\)"):
        kernel((1,), (1,), x)
    kernel((1,), (1,), (x,))


def test_an_array_of_another_dtype_is_a_warning(module: Any, emulated_cp: ModuleType) -> None:
    kernel, a = module[""].get_function("all"), emulated_cp.ones(64, "f4")
    for dtype in ("f8", "i4", "f2", "?", "i8"):
        error, warned = findings(kernel, a.astype(dtype), a, TWO, 16, 3)
        assert not error
        assert (
            f"argument 0 (a): the kernel takes const real* __restrict__, and an array of "
            f"{np.dtype(dtype)} is passed: pass an array of float32" in warned
        )
    for fits in (a, a.astype("c8"), a.view("u1"), a.view("i1"), a.data):
        assert findings(kernel, fits, a, TWO, 32, 3) == ("", "")
    with emulator.checks(argument_types="error"), pytest.raises(EmulatorError, match="of float64"):
        kernel((1,), (64,), (a.astype("f8"), a, TWO, 32, 3))
    with emulator.checks(argument_types="off"):
        assert findings(kernel, a.astype("f8"), a, 2.5, 32, 3) == ("", "")


def test_an_array_where_a_number_is_wanted_and_a_number_where_an_array_is(
    module: Any, emulated_cp: ModuleType
) -> None:
    kernel, a = module[""].get_function("all"), emulated_cp.ones(64, "f4")
    error, _ = findings(kernel, a, a, a.sum(), 32, 3)
    assert "(alpha): the kernel takes float by value, and the address of an array of" in error
    for number in (64, np.int32(64), 2.5, 0.0):
        error, _ = findings(kernel, a, number, TWO, 64, 3)
        assert "(out): the kernel takes float *, and the" in error
    address = int(a.data.ptr)
    assert findings(kernel, address, np.uintp(address), TWO, 64, 3) == ("", "")


def test_types_that_take_anything_are_left_alone(module: Any, emulated_cp: ModuleType) -> None:
    kernel, a = module[""].get_function("others"), emulated_cp.ones(64, "f8")
    assert findings(kernel, a, a, a, 4, np.uint16(1), 1.5, a) == ("", "")
    assert "(count)" in findings(kernel, a, a, a, 4.5, np.uint16(1), 1.5, a)[0]
    assert "(bits)" in findings(kernel, a, a, a, 4, np.float16(1), 1.5, a)[1]  # may be meant


def test_the_bits_of_narrow_floats_may_be_read(emulated_cp: ModuleType) -> None:
    code = 'extern "C" __global__ void copies(const unsigned short* x, short* y) { y[0] = x[0]; }'
    kernel = emulated_cp.RawKernel(code, "copies")
    for dtype in (ml_dtypes.bfloat16, np.float16):
        x = emulated_cp.ones(64, dtype)
        y = emulated_cp.zeros(64, dtype)
        assert findings(kernel, x, y) == ("", "")
        assert y[0] == 1
    assert "pass an array of uint16" in findings(kernel, x.astype("f4"), y)[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("const float* a", "const float*"),
        ("float *__restrict__ a", "float *__restrict__"),
        ("const float* __restrict__", "const float* __restrict__"),
        ("unsigned int", "unsigned int"),
        ("unsigned n", "unsigned"),
        ("int m = 3", "int"),
        ("const T a[4][2]", "const T*"),
        ("const complex<float>*x", "const complex<float>*"),
        ("T", "T"),
        ("Foo<1> a", "Foo<1>"),
    ],
)
def test_a_parameter_without_its_name(text: str, expected: str) -> None:
    assert without_name(text) == expected


PRODUCT = """
extern "C" __global__ void product(const float* a, const float* b, float* c, int m, int n, int k,
                                   const int* strides, int ldb) {
    int i = threadIdx.x;
    float sum = 0;
    if (i >= m * n) return;
    for (int l = 0; l < k; l++) sum += a[i / n * k + l] * b[l * ldb + i % n];
    c[i] = sum;
}
"""


def test_a_view_whose_strides_the_kernel_cannot_know_is_a_warning(emulated_cp: ModuleType) -> None:
    cp, none = emulated_cp, None
    kernel = cp.RawKernel(PRODUCT, "product")
    x = cp.arange(300, dtype="f4").reshape(20, 15)
    a, c = cp.ones((6, 5), "f4"), cp.zeros((6, 6), "f4")

    def told(b: Any, strides: Any = none, ldb: int = 6) -> str:
        error, warned = findings(kernel, a, b, c, 6, 6, 5, strides, ldb)
        assert not error
        return warned

    square = cp.ones((6, 6), "f4")
    assert "(b): an array of shape (6, 6) whose strides are (1, 6) elements\n" in told(square.T)
    assert "it is transposed" in told(square.T)
    assert "do not follow each other" in told(x[:6, :6])
    assert "it repeats elements" in told(cp.broadcast_to(x, (2, 20, 15))[:, :6])
    assert told(x.T).endswith("cupy.ascontiguousarray(x)\n  check: argument_views")
    # The kernel may know the strides: by a number, by an array, or because the view is intended.
    assert not told(x[:6, :6], ldb=15)
    assert "none of its strides" not in told(x[:6, :6], ldb=60)
    assert not told(x[:6, :6], cp.array([15, 1], "i4"))
    assert not told(cp.asfortranarray(square))
    assert not told(x[:6])
    assert "none of its strides" not in told(x[:1, :1].T)
    with emulator.checks(argument_views="off"):
        assert not told(square.T)


COPIES = """
extern "C" __global__ void copy(const float* x, float* y, int first, int count) {
    int i = threadIdx.x;
    if (i < count) y[i] = x[i + first];
}
"""


def test_kernels_of_cupy_that_binary_modules_launch_are_not_looked_at(
    emulated_cp: ModuleType,
) -> None:
    """CuPy passes its kernel for products of integers a transposed array, from no Python frame."""
    a = emulated_cp.arange(12, dtype="int32").reshape(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        product = a @ a.T
    np.testing.assert_array_equal(product.get(), a.get() @ a.get().T)


def test_accesses_beyond_a_view_inside_its_array_are_a_warning(emulated_cp: ModuleType) -> None:
    cp, kernel = emulated_cp, emulated_cp.RawKernel(COPIES, "copy")
    x, y, none = cp.ones((4, 50), "f4"), cp.zeros((4, 50), "f4"), ("", "")

    def told(*arguments: Any) -> str:
        error, warned = findings(kernel, *arguments)
        assert not error
        return warned.split("finding in a call:\n")[-1].replace("\n  ", "|")

    text = told(x[1], y, 0, 51)
    assert text.startswith("kernel copy goes beyond a view that it was given, inside the view's")
    assert (
        "|argument 0 (x): an array of shape (50,), which is a part of another|reads 0 bytes" in text
    )
    assert "kernel.cu:4: if (i < count) y[i] = x[i + first];|check: argument_views" in text
    assert "writes 0 bytes past its end" in told(x, y[2], 0, 51)
    assert "reads 8 bytes before its start" in told(x[3], y, -2, 1)
    # Not beyond, or into what another argument has; the whole array; and where others may point.
    assert findings(kernel, x[1], y[2], 0, 50) == none
    assert findings(kernel, x[1], x[2], 0, 50) == none
    assert findings(kernel, x, y, 0, 64) == none
    assert findings(kernel, x[1:].ravel(), y[1:], 50, 64) == none
    assert findings(kernel, x[1].data.ptr, y, 0, 60) == none
    y[:] = x + 1
    assert findings(kernel, x[1], x, 0, 0) == none  # accesses of other kernels are ignored
    with emulator.checks(argument_views="error"), pytest.raises(EmulatorError, match="beyond a"):
        kernel((1,), (64,), (x[1], y, 0, 51))
    with emulator.checks(argument_views="off"):
        assert findings(kernel, x[1], y, 0, 51) == none


def test_a_launch_that_waits_is_not_looked_at_too_early(emulated_cp: ModuleType) -> None:
    cp, kernel = emulated_cp, emulated_cp.RawKernel(COPIES, "copy")
    x, y = cp.ones((4, 50), "f4"), cp.zeros(64, "f4")
    with emulator.streams(3):
        assert findings(kernel, x[1], y, 0, 51) == ("", "")
    assert y.get().sum() == 51


def test_a_view_behind_whose_address_nothing_is_is_named(emulated_cp: ModuleType) -> None:
    kernel = emulated_cp.RawKernel(
        'extern "C" __global__ void none(const float* a, int n) {}', "none"
    )
    a = emulated_cp.ones((8, 8), "f4")
    assert "it is reversed: its other elements lie before" in findings(kernel, a[::-1], 64)[1]
    told = emulated_cp.RawKernel(
        'extern "C" __global__ void none(const float* a, int n) { const int pitch = 24; }', "none"
    )
    wide = emulated_cp.ones((8, 24), "f4")[:, :8]
    assert findings(kernel, wide, 64)[1]
    assert findings(told, wide, 64) == ("", "")
