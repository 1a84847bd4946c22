"""Refusals of `matmul`: the exception, the quoted values, and that nothing was written."""

import tempfile

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm._backends.cdna import compile as _compile
from cupygemm._build import private_dir
from cupygemm._build.cache import CacheError
from cupygemm._plan.table import PLANS
from cupygemm._request import call as _call

BF16 = np.dtype(ml_dtypes.bfloat16)
SHAPES = [
    (),
    (0,),
    (3,),
    (2,),
    (3, 2),
    (2, 3),
    (3, 0),
    (2, 2, 3),
    (3, 3, 2),
    (1, 3, 2),
    (2, 1, 3, 2),
]


@pytest.fixture
def half(cp):
    """Return a function that makes float16 arrays of a shape."""
    return lambda *shape: cp.asarray(np.ones(shape, np.float16))


def test_shapes_as_numpy(cp):
    for shape1 in SHAPES:
        for shape2 in SHAPES:
            arrays = [np.ones(shape, np.float16) for shape in (shape1, shape2)]
            ours = [cp.asarray(array) for array in arrays]
            try:
                expected = np.matmul(*arrays)
            except ValueError:
                for function in (cupygemm.matmul, cupygemm.explain):
                    with pytest.raises(ValueError, match="matmul: "):
                        function(*ours)
            else:
                result = cupygemm.matmul(*ours)
                assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
                np.testing.assert_array_equal(cp.asnumpy(result), expected)


@pytest.mark.parametrize("options", [{"dtype": "int32"}, {"out": ((9,), "int32")}])
@pytest.mark.parametrize(
    ("name", "shape1", "shape2"),
    [
        ("matmul", (2, 3), (4, 5)),
        ("matmul", (), (4, 5)),
        ("vecdot", (2, 3), (2, 4)),
        ("matvec", (2, 3), (4,)),
        ("vecmat", (2,), (3, 4)),
    ],
)
def test_a_wrong_cast_comes_before_wrong_shapes_as_in_numpy(cp, name, shape1, shape2, options):
    for xp, module in ((np, np), (cp, cupygemm)):
        if not hasattr(module, name):
            continue  # NumPy's before 2.2
        out = {"out": xp.empty(*options["out"])} if "out" in options else options
        with pytest.raises(TypeError, match=r"annot cast .* to .*int32"):
            getattr(module, name)(xp.ones(shape1), xp.ones(shape2), **out)


@pytest.mark.parametrize(
    ("shapes", "options", "error", "text"),
    [
        (((4, 5), (6, 7)), {}, ValueError, r"\(4, 5\) has k = 5 .* \(6, 7\) has k = 6"),
        (((4, 5), ()), {}, ValueError, r"x2 is 0-d, shape \(\)"),
        (((2, 4, 5), (3, 5, 6)), {}, ValueError, r"\(2, 4, 5\), and x2, shape \(3, 5, 6\)"),
        (((4, 5), (5, 7)), {}, ValueError, r"out has shape \(4, 6\), .* shape \(4, 7\)"),
        (
            ((4, 5), (5, 6)),
            {"casting": "safe", "dtype": "f4"},
            TypeError,
            r"'float32'\) to dtype\('fl",
        ),
        (
            ((4, 5), (5, 6)),
            {"dtype": "i4"},
            TypeError,
            r"x1 from dtype\('float16'\) to dtype\('int32",
        ),
        (((4, 5), (5, 6)), {"casting": "maybe"}, ValueError, r"casting must be one of .*'maybe'"),
        (
            ((4, 5), (5, 6)),
            {"dtype": "M8[s]"},
            TypeError,
            r"datetime64\[s\] has no matrix product",
        ),
        (((4, 5), (5, 6)), {"dtype": ["f4"]}, TypeError, "is not a type; pass a NumPy dtype"),
    ],
)
def test_refusals_leave_out_alone(cp, half, shapes, options, error, text):
    out = cp.asarray(np.full((4, 6), 9, np.float16))
    arrays = [half(*shape) for shape in shapes]
    for function in (cupygemm.matmul, cupygemm.explain):
        with pytest.raises(error, match=text):
            function(*arrays, out, **options)
    assert (cp.asnumpy(out) == 9).all()


def test_output_that_cannot_hold_the_result(cp, half):
    out = cp.asarray(np.full((4, 6), 9, np.int32))
    with pytest.raises(TypeError, match=r"cannot cast output from dtype\('float16'\) to .*'int32'"):
        cupygemm.matmul(half(4, 5), half(5, 6), out)
    assert (cp.asnumpy(out) == 9).all()


@pytest.mark.parametrize("bad", [np.ones((4, 5), np.float16), [[1.0]], 3, None, "ab"])
def test_operands_that_are_no_cupy_arrays(half, bad):
    kind = "an int" if isinstance(bad, int) else rf"a .*{type(bad).__name__}"
    remedy = r"cupy\.asarray\({}\)"
    if bad is None or isinstance(bad, str):  # no numbers to move to the device
        remedy = "pass a CuPy array"
    with pytest.raises(TypeError, match=rf"x1 is {kind}, .* {remedy.format('x1')}$"):
        cupygemm.matmul(bad, half(5, 6))
    with pytest.raises(TypeError, match=rf"x2 is {kind}, .* {remedy.format('x2')}$"):
        cupygemm.matmul(half(4, 5), bad)


def test_out_that_is_no_cupy_array(half):
    with pytest.raises(TypeError, match=r"out is a numpy\.ndarray, .* pass a CuPy array"):
        cupygemm.matmul(half(4, 5), half(5, 6), np.empty((4, 6), np.float16))


def test_out_as_a_tuple(cp, half):
    out = cp.empty((4, 6), np.float16)
    assert cupygemm.matmul(half(4, 5), half(5, 6), (out,)) is out
    assert (cp.asnumpy(out) == 5).all()
    with pytest.raises(ValueError, match="out is a tuple of 2"):
        cupygemm.matmul(half(4, 5), half(5, 6), (out, out))


def test_out_whose_elements_share_memory(cp, half):
    memory = cp.asarray(np.full(6, 9, np.float16))
    out = cp.ndarray((4, 6), np.float16, memory.data, (0, 2))
    with pytest.raises(ValueError, match=r"strides \(0, 2\) bytes, share an address"):
        cupygemm.matmul(half(4, 5), half(5, 6), out)
    assert (cp.asnumpy(memory) == 9).all()


def test_operands_without_a_common_type(cp, half):
    b = cp.asarray(np.ones((5, 6), BF16))
    with pytest.raises(TypeError, match="float16 and x2 of dtype bfloat16 have no common dtype"):
        cupygemm.matmul(half(4, 5), b)


class OnDevice:
    """An array's stand-in that says where it is."""

    def __init__(self, array, index):
        self.array, self.index = array, index

    def __getattr__(self, name):
        return self.index if name == "device_id" else getattr(self.array, name)

    @property
    def data(self):
        return OnDevice(self.array.data, self.index)


def test_arrays_on_different_devices(half, monkeypatch):
    monkeypatch.setattr(_call, "as_array", lambda function, name, array: array)
    with pytest.raises(ValueError, match="one device: x1 on device 0, x2 on device 1"):
        cupygemm.matmul(half(4, 5), OnDevice(half(5, 6), 1))


def test_types_without_a_kernel(cp, device):
    """CuPy's own kernel multiplies them, unless another backend does."""
    for dtype in (np.int16, np.int32, np.int64, np.bool_):
        a, b = cp.asarray(np.ones((4, 5), dtype)), cp.asarray(np.ones((5, 6), dtype))
        out = cp.asarray(np.full((4, 6), 9).astype(dtype))
        if device.backend == "default":
            assert cupygemm.explain(a, b, out).backend == "cupy.matmul"
        np.testing.assert_array_equal(
            cp.asnumpy(cupygemm.matmul(a, b, out)), np.full((4, 6), 5).astype(dtype)
        )


def test_a_cache_that_cannot_be_written_leaves_out_untouched(cp, device, monkeypatch, tmp_path):
    """The kernel cannot be stored: the error names a remedy, with which the call works."""
    if not device.runs_cdna:
        pytest.skip("its kernels are compiled elsewhere")
    PLANS.clear()
    _compile.compile_source.cache_clear()
    a, b = cp.ones((7, 5), np.float16), cp.ones((5, 6), np.float16)
    out = cp.full((7, 6), 9, np.float16)
    (tmp_path / "file").write_text("")
    with monkeypatch.context() as patch:
        patch.setenv("CUPYGEMM_CACHE_DIR", str(tmp_path / "file" / "cache"))
        patch.setattr(tempfile, "tempdir", str(tmp_path / "file"))  # nor is there another place
        private_dir.temporary_dir.cache_clear()
        with pytest.raises(CacheError, match=r"can be written.*set CUPYGEMM_CACHE_DIR"):
            cupygemm.matmul(a, b, out)
    assert (cp.asnumpy(out) == 9).all()
    assert (cp.asnumpy(cupygemm.matmul(a, b, out)) == 5).all()


@pytest.mark.parametrize(("m", "n"), [(1 << 31, 4), (10**6, 10**7)])
def test_products_that_are_too_large_for_a_kernel(cp, device, m, n):
    if not device.emulated and m < 1 << 31:
        pytest.skip("only a kernel for CDNA has no grid for so many tiles")
    one = cp.ones((1, 1), np.float32)
    with pytest.raises(TypeError) as caught:
        cupygemm.matmul(cp.broadcast_to(one, (m, 1)), cp.broadcast_to(one, (1, n)))
    text = str(caught.value)
    assert "multiply parts of the operands" in text
    assert "convert" not in text
    assert text.count("grid axis") <= 1
