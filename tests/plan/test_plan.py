"""Plans: made once, found again, run on the current stream without synchronisation."""

from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._commands.detect import find_devices
from cupygemm._plan.table import PLANS
from cupygemm._products import matmul as _matmul

BF16, F16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)


@pytest.fixture
def made(cp, monkeypatch):
    """The plans that are made, starting from an empty table."""
    made = []
    make_plan = _matmul.make_plan
    PLANS.clear()
    monkeypatch.setattr(
        _matmul,
        "make_plan",
        lambda *args, **options: made.append(args) or make_plan(*args, **options),
    )
    return made


@pytest.fixture
def emulatable():
    """Whether this machine's CuPy can have an emulated device under it."""
    return next(found.usable for found in find_devices() if found.kind == "emulated")


def operands(cp, m=8, n=8, k=8, dtype=F16):
    x1, x2 = testing.integer_operands((m, k), (k, n), dtype)
    return cp.asarray(x1), cp.asarray(x2), x1, x2


def test_a_repeated_call_finds_its_plan(cp, made):
    a, b, x1, x2 = operands(cp)
    for _ in range(3):
        testing.assert_gemm_exact(cupygemm.matmul(a, b), x1, x2)
    assert len(made) == 1
    testing.assert_gemm_exact(cupygemm.matmul(cp.asarray(x1), cp.asarray(x2)), x1, x2)
    assert len(made) == 1, "a plan depends on no address beyond its alignment"


@pytest.mark.parametrize("options", [{}, {"alpha": 2}, {"reproducible": False}, {"stream": None}])
def test_a_repeated_call_is_not_validated(cp, monkeypatch, options):
    """Whether it has no options, some, or a stream."""
    a, b, x1, x2 = operands(cp)
    if options == {"stream": None}:
        options = {"stream": cp.cuda.Stream.null}
    cupygemm.matmul(a, b, **options)
    monkeypatch.setattr(_matmul, "check_call", None)
    epilogue = {name: value for name, value in options.items() if name == "alpha"}
    testing.assert_gemm_exact(cupygemm.matmul(a, b, **options), x1, x2, **epilogue)


@pytest.mark.slow
def test_what_a_plan_depends_on(cp, made):
    a, b, _, _ = operands(cp)
    out = cp.empty((8, 8), F16)
    calls = [
        ((a, b), {}),
        ((a.T, b), {}),
        ((a, b.T), {}),
        ((a[:7], b), {}),
        ((a, b, out), {}),
        ((a, b, out.T), {}),
        ((a, b), {"dtype": np.float32}),
        ((a, b), {"casting": "safe"}),
        ((a, b), {"reproducible": False}),
        ((a.view(BF16), b.view(BF16)), {}),
        ((cp.empty(65, F16)[1:].reshape(8, 8), b), {}),
    ]
    for _ in range(2):
        for args, options in calls:
            cupygemm.matmul(*args, **options)
    assert len(made) == len(calls)


def test_ways_to_name_a_dtype_share_a_plan(cp, made):
    a, b, _, _ = operands(cp)
    for dtype in ("float32", "f4", np.float32, np.dtype("f4")):
        assert cupygemm.matmul(a, b, dtype=dtype).dtype == np.float32
    assert len(made) == 1


def test_the_table_does_not_grow_without_end(cp, made, monkeypatch):
    monkeypatch.setattr(PLANS, "size", 8)
    for m in range(1, 12):
        a, b, x1, x2 = operands(cp, m=m)
        testing.assert_gemm_exact(cupygemm.matmul(a, b), x1, x2)
        assert len(PLANS) <= 8


def test_a_refused_call_leaves_no_plan(cp, made):
    a, b, _, _ = operands(cp)
    with pytest.raises(TypeError):
        cupygemm.matmul(a, b, dtype="int32")
    assert len(PLANS) == 0


@pytest.mark.filterwarnings("ignore:cupyx.allow_synchronize")
def test_no_call_synchronises(cp):
    import cupyx

    a, b, x1, x2 = operands(cp, 40, 30, 20)
    cupygemm.matmul(a, b)
    with cupyx.allow_synchronize(False):
        warm = cupygemm.matmul(a, b)
        cold = cupygemm.matmul(a.T, a)
    testing.assert_gemm_exact(warm, x1, x2)
    testing.assert_gemm_exact(cold, x1.T, x1)


def test_the_current_stream_is_used(cp, device, monkeypatch):
    a, b, x1, x2 = operands(cp)
    seen = []
    real = cp.RawModule

    class Module:
        def __init__(self, path):
            self.module = real(path=path)

        def get_function(self, name):
            kernel = self.module.get_function(name)

            def launch(*args):
                seen.append(cp.cuda.get_current_stream().ptr)
                kernel(*args)

            return launch

    if device.kind != "cuda":  # there, the driver's own launch is called
        monkeypatch.setattr(cp, "RawModule", Module)
    PLANS.clear()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        result = cupygemm.matmul(a, b)
    stream.synchronize()
    testing.assert_gemm_exact(result, x1, x2)
    assert seen == ([] if device.kind == "cuda" else [stream.ptr])


def test_many_threads(cp):
    arrays = [operands(cp, m=4 + index % 3, n=5, k=6) for index in range(12)]

    def work(a, b, x1, x2):
        for _ in range(3):
            testing.assert_gemm_exact(cupygemm.matmul(a, b), x1, x2)

    with ThreadPoolExecutor(len(arrays)) as pool:
        for future in [pool.submit(work, *array) for array in arrays]:
            future.result()


def test_explanation(cp, device):
    a, b, _, _ = operands(cp, 100, 90, 70, BF16)
    explanation = cupygemm.explain(a, b.T.copy().T, dtype="float32")
    text = str(explanation)
    if not device.has_kernels:
        assert explanation.backend == "cupy.matmul"
        return
    assert explanation.backend == "cupygemm"
    if device.kind == "cuda":  # its own tests hold the rest
        assert explanation.resources.local_bytes == 0
        assert "A bf16 k-major, B bf16 k-major, C f32" in text
        return
    assert (explanation.problem.m, explanation.problem.n, explanation.problem.k) == (100, 90, 70)
    assert explanation.problem.out_dtype == "f32"
    assert explanation.resources.scratch_bytes == 0
    assert explanation.num_launches == 1
    tile = f"{explanation.config.tile_m}x{explanation.config.tile_n}x{explanation.config.tile_k}"
    for part in (
        "matmul: bfloat16 (100, 70) @ bfloat16 (70, 90) -> float32 (100, 90)",
        device.target,
        "A bf16 k-major, B bf16 k-major, C f32",
        f"tile {tile}",
        "VGPRs",
        "copies     none",
    ):
        assert part in text
    assert repr(explanation).startswith("Explanation(call='matmul: ")


def test_explaining_computes_nothing(cp, device):
    a, b, _, _ = operands(cp)
    out = cp.asarray(np.full((8, 8), 9, F16))
    cupygemm.explain(a, b, out)
    assert (cp.asnumpy(out) == 9).all()


@pytest.mark.sweep  # test_epilogue_calls.py multiplies on the other targets, too
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_every_emulated_target(run_python, emulatable, target):
    code = """
import cupygemm, cupy, ml_dtypes
from cupygemm import testing
for dtype in ("float16", ml_dtypes.bfloat16):
    x1, x2 = testing.integer_operands((2, 70, 150), (150, 65), dtype)
    a, b = cupy.asarray(x1), cupy.asarray(x2)
    testing.assert_gemm_exact(cupygemm.matmul(a, b, dtype="float32"), x1, x2)
    testing.assert_gemm_exact(cupygemm.matmul(a, b), x1, x2)
print(cupygemm.explain(a, b).device)
"""
    if emulatable:
        assert run_python(code, target=target).strip() == f"{target} (emulated)"
    else:
        assert "EmulatorSetupError" in run_python(code, target=target, check=False).stderr


def test_importing_touches_no_device(run_python):
    code = """
import sys, cupygemm, cupygemm.testing
loaded = [name for name in ("cupy", "cupy_backends", "tinygrad", "typer") if name in sys.modules]
print(loaded)
try:
    cupygemm.matmul([1.0], [2.0])
except TypeError as err:
    print(err, "cupy" in sys.modules)
"""
    lines = run_python(code).splitlines()
    assert lines[0] == "[]"
    assert lines[1].endswith("cupy.asarray(x1) False")


@pytest.mark.slow
def test_the_environment_enables_the_emulator(run_python, emulatable):
    code = "import cupygemm; from cupygemm import emulator; print(emulator.target())"
    if emulatable:
        assert run_python(code, target="gfx950").strip() == "gfx950"
    assert run_python(code).strip() == "None"
    failed = run_python(code, target="gfx1100", check=False)
    assert failed.returncode
    assert "gfx1100" in failed.stderr
