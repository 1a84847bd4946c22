"""Calls of `matmul` with an epilogue: plans, streams, targets, explanations and refusals."""

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._plan.table import PLANS

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32 = map(np.dtype, ("f2", "f4"))


def on_device(cp, options):
    """Return the options with their arrays on the device."""
    return {
        name: cp.asarray(value) if isinstance(value, np.ndarray) else value
        for name, value in options.items()
    }


# -- Plans -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_numbers_and_arrays_change_without_another_plan(cp, monkeypatch):
    from cupygemm._products import matmul as _matmul

    made = []
    make_plan = _matmul.make_plan
    PLANS.clear()
    monkeypatch.setattr(_matmul, "make_plan", lambda *args: made.append(args) or make_plan(*args))
    x1, x2 = testing.integer_operands((9, 20), (20, 16), F16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    for number in (2, 4, 0.5):
        bias = np.full(16, number, F32)
        options = {"alpha": number, "bias": bias, "clamp": (-number, 8 * number)}
        result = cupygemm.matmul(a, b, **on_device(cp, options))
        testing.assert_gemm_exact(result, x1, x2, **options)
    assert len(made) == 1
    cupygemm.matmul(a, b, activation="relu")
    cupygemm.matmul(a, b, bias=cp.ones((9, 1), F32))
    assert len(made) == 3
    cupygemm.matmul(a, b, alpha=1, beta=0)
    assert len(made) == 4
    assert PLANS.of("matmul")[-1].binding is None, "options without an effect need no epilogue"


@pytest.mark.slow
def test_a_repeated_call_reads_its_own_arrays(cp, monkeypatch):
    """Keywords are checked only once, but no array or address is kept."""
    from cupygemm._products import matmul as _matmul

    x1, x2 = testing.integer_operands((9, 20), (20, 16), F16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    checked = []
    call_options = _matmul.call_options
    PLANS.clear()
    monkeypatch.setattr(
        _matmul, "call_options", lambda options: checked.append(options) or call_options(options)
    )
    out = cp.zeros((9, 16), F32)
    for number in range(3):
        options = {
            "c": np.full((9, 16), number, F32),
            "beta": 2,
            "scale_a": 3,
            "clamp": (None, 1e3),
            "scale_b": np.full(16, 2.0**number, F32),
            "activation": "relu",
        }
        assert cupygemm.matmul(a, b, out, **on_device(cp, options)) is out
        testing.assert_gemm_exact(out, x1, x2, **options)
    assert len(checked) == 1
    for options in ({"alpha": 0.0}, {"alpha": -0.0}, {"alpha": 1}, {"alpha": True}):
        cupygemm.matmul(a, b, **options)
    assert len(checked) == 3, "numbers share a plan, but for 0 and 1"


def test_a_repeated_call_sees_that_arrays_overlap(cp):
    """The same shapes at other addresses: first disjoint, then overlapping, then in place."""
    x1, x2 = testing.integer_operands((16, 16), (16, 16), F16)
    memory = cp.zeros(3 * 256, F32)
    for c_at, out_at in ((0, 256), (256, 256), (240, 256), (272, 256), (512, 256)):
        memory[:] = cp.asarray(np.arange(768) % 50)
        c, out = (memory[at : at + 256].reshape(16, 16) for at in (c_at, out_at))
        before = c.get()
        cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), out, c=c)
        testing.assert_gemm_exact(out, x1, x2, c=before)
    for at in (0, 256, 264):
        memory[:] = cp.asarray(np.arange(768) % 50)
        bias, out = memory[256:272], memory[at : at + 256].reshape(16, 16)
        before = bias.get()
        cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), out, bias=bias)
        testing.assert_gemm_exact(out, x1, x2, bias=before)


@pytest.mark.filterwarnings("ignore:cupyx.allow_synchronize")
def test_no_call_synchronises(cp):
    import cupyx

    x1, x2 = testing.integer_operands((9, 20), (20, 16), F16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    options = {"scale_a": cp.asarray(np.array(2, F32)), "bias": cp.ones(16, F32), "alpha": 2}
    with cupyx.allow_synchronize(False):
        result = cupygemm.matmul(a, b, **options)
    testing.assert_gemm_exact(result, x1, x2, alpha=4, bias=np.ones(16))


def test_a_stream_of_choice(cp):
    x1, x2 = testing.integer_operands((9, 20), (20, 16), F16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    stream = cp.cuda.Stream(non_blocking=True)
    before = cp.cuda.get_current_stream().ptr
    for options in ({}, {"alpha": 2}):
        result = cupygemm.matmul(a, b, stream=stream, **options)
        stream.synchronize()
        testing.assert_gemm_exact(result, x1, x2, **options)
    assert cp.cuda.get_current_stream().ptr == before
    with pytest.raises(TypeError, match=r"stream is 0; pass a cupy\.cuda\.Stream"):
        cupygemm.matmul(a, b, stream=0)


def test_explain_tells_of_the_epilogue(cp, device):
    a, bias = cp.ones((16, 16), F16), cp.ones(32, F32)[::2]
    text = str(cupygemm.explain(a, a, bias=bias, activation="gelu", alpha=3))
    if not device.runs_cdna:
        assert "  epilogue   alpha, " in text
        return
    assert "  epilogue   alpha, bias per column (f32), gelu\n" in text
    assert "bias is copied: its elements are 2 apart along the rows of the result" in text
    by_cupy = str(cupygemm.explain(a.astype("i4"), a.astype("i4"), alpha=3))
    assert "  epilogue   alpha; of float64 sums, by CuPy" in by_cupy


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("target", ["gfx90a", "gfx950"])
def test_other_targets(run_python, device, target):
    """Vectors along each axis, c, an activation and bytes; row- and column-major, with tails."""
    if not device.emulated:
        return
    code = """
import cupygemm, cupy as cp, ml_dtypes, numpy as np
from cupygemm import testing
for kind, dtype, order in (("e", "e", "C"), ("e", "f", "F"), ("b", "b", "C")):
    x1, x2 = testing.integer_operands((70, 150), (150, 67), kind)
    given = {
        "scale_a": np.float32(2.0) ** -np.arange(70, dtype="f").clip(0, 9),
        "bias": np.arange(67, dtype="e"), "c": np.ones((70, 67), dtype), "beta": 3,
        "activation": "relu",
    }
    out = cp.zeros((70, 67), dtype, order=order)
    options = {k: cp.asarray(v) if isinstance(v, np.ndarray) else v for k, v in given.items()}
    cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), out, **options)
    assert cupygemm.explain(cp.asarray(x1), cp.asarray(x2), out, **options).backend == "cupygemm"
    check = testing.assert_gemm_exact if dtype != "e" else testing.assert_gemm_close
    check(out, x1, x2, **given)
x1, x2 = testing.integer_operands((2, 70, 150), (150, 65), ml_dtypes.bfloat16)
a, b = cp.asarray(x1), cp.asarray(x2)
testing.assert_gemm_exact(cupygemm.matmul(a, b), x1, x2)
print(cupygemm.explain(a, b).device)
"""
    assert run_python(code, target=target).strip() == f"{target} (emulated)"


def test_parts_of_k_share_an_epilogue(cp, device):
    """It is applied once, to the sum of the parts; c, which is out, is read then."""
    x1, x2 = testing.integer_operands((64, 8192), (8192, 96), F16)
    before = (np.arange(64 * 96) % 50).reshape(64, 96).astype(F32)
    out = cp.asarray(before)
    options = {"bias": np.arange(96, dtype=F32), "activation": "relu", "alpha": 2}
    a, b = cp.asarray(x1), cp.asarray(x2)
    if device.has_kernels:
        config = cupygemm.explain(a, b, out, c=out, **on_device(cp, options)).config
        assert config.split_k > 1 or getattr(config, "stream_k", 0)  # Hopper lacks these
    cupygemm.matmul(a, b, out, c=out, **on_device(cp, options))
    testing.assert_gemm_exact(out, x1, x2, c=before, **options)


# -- Refusals --------------------------------------------------------------------------------------

WRONG = [
    ({"alpha": "two"}, TypeError, "alpha is a str, not a number"),
    ({"alpha": 1j}, TypeError, "alpha or beta is complex, and this product is float16"),
    ({"beta": 2}, ValueError, "beta = 2 multiplies c, but c is missing"),
    ({"c": 3}, TypeError, r"c is an int, .* cupy\.asarray\(c\)"),
    ({"bias": np.ones(6)}, TypeError, r"bias is a numpy\.ndarray, .* cupy\.asarray\(bias\)"),
    ({"activation": "tanh"}, ValueError, "one of 'relu', .*got 'tanh'"),
    ({"scale_a": np.ones(4)}, TypeError, r"scale_a is a numpy\.ndarray"),
    ({"scale_out": 1j}, TypeError, "scale_out = 1j is complex"),
    ({"clamp": 3}, ValueError, r"clamp must be \(lowest, highest\), .*got 3"),
    ({"clamp": (1, -1)}, ValueError, "the first must not exceed the second"),
    ({"clamp": (np.nan, 1)}, ValueError, r"clamp = \(nan, 1"),
    ({"gamma": 3}, TypeError, r"matmul\(\) got an unexpected keyword argument 'gamma'"),
]
UNFIT = [
    ("c", (4, 5), r"c has shape \(4, 5\), .* \(4, 6\), the result's shape"),
    ("bias", (4,), r"bias has shape \(4,\), .* \(4, 6\)"),
    ("bias", (2, 4, 6), r"bias has shape \(2, 4, 6\)"),
    ("scale_a", (6,), r"scale_a has shape \(6,\), .* \(4, 1\); pass .* one for each row"),
    ("scale_a", (4, 6), r"scale_a has shape \(4, 6\)"),
    ("scale_a", (1, 4), r"scale_a has shape \(1, 4\)"),
    (
        "scale_b",
        (4,),
        r"scale_b has shape \(4,\), .* \(1, 6\); pass .* one for each column",
    ),
    ("scale_b", (4, 1), r"scale_b has shape \(4, 1\)"),
    ("scale_out", (4, 6), r"scale_out has shape \(4, 6\), .* a single number"),
]


@pytest.mark.parametrize(("options", "error", "text"), WRONG)
def test_wrong_options(cp, options, error, text):
    a, b, out = cp.ones((4, 5), F16), cp.ones((5, 6), F16), cp.full((4, 6), 9, F16)
    for function in (cupygemm.matmul, cupygemm.explain):
        with pytest.raises(error, match=text):
            function(a, b, out, **options)
    assert (out.get() == 9).all()


@pytest.mark.parametrize(("name", "shape", "text"), UNFIT)
def test_shapes_that_do_not_fit(cp, name, shape, text):
    a, b, out = cp.ones((4, 5), F16), cp.ones((5, 6), F16), cp.full((4, 6), 9, F16)
    with pytest.raises(ValueError, match=text):
        cupygemm.matmul(a, b, out, **{name: cp.ones(shape, F32)})
    assert (out.get() == 9).all()


def test_what_has_no_epilogue(cp):
    a = cp.ones((4, 4), np.bool_)
    with pytest.raises(TypeError, match=r"product of booleans .* convert"):
        cupygemm.matmul(a, a, alpha=2)
    z, real = cp.ones((4, 4), np.complex64), cp.ones((4, 4), F16)
    for options in ({"activation": "relu"}, {"clamp": (0, 1)}, {"scale_out": 2}):
        with pytest.raises(TypeError, match=f"{next(iter(options))} is for real numbers"):
            cupygemm.matmul(z, z, **options)
    with pytest.raises(TypeError, match="c has dtype complex64, which a product of float16"):
        cupygemm.matmul(real, real, c=z)


def test_the_signature_shows_every_option():
    import inspect

    for function in (cupygemm.matmul, cupygemm.explain):
        parameters = inspect.signature(function).parameters
        assert list(parameters)[:5] == ["x1", "x2", "out", "dtype", "casting"]
        assert parameters["activation"].default is None
        assert parameters["alpha"].default is None
        assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())
