"""Linear algebra on a GPU: warm calls are captured into graphs, and wait for nothing."""

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm._plan import winners
from cupygemm._plan.table import NO_PLAN, PLANS


@pytest.fixture
def arrays(cp):
    """Return operands and results, float16, whose sums are exact."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((96, 128), (128, 160)))
    return cp.asarray(a), cp.asarray(b), cp.zeros((96, 160), np.float16)


CALLS = {
    "matmul": cupygemm.matmul,
    "dot": cupygemm.dot,
    "gemm": lambda a, b, out: cupygemm.gemm(1, a, b, out=out),
    "tensordot": lambda a, b, out: out.__setitem__(..., cupygemm.tensordot(a, b, 1)),
    "einsum": lambda a, b, out: cupygemm.einsum("ij,jk->ik", a, b, out=out),
    "linear": lambda a, b, out: cupygemm.linear(a, b.T, activation="relu", out=out),
    "scaled_matmul": lambda a, b, out: cupygemm.scaled_matmul(a, b, 1.0, 1.0, out=out),
    "grouped_matmul": lambda a, b, out: cupygemm.grouped_matmul(
        [a[:40], a[40:]], [b, b], [out[:40], out[40:]]
    ),
    "matvec": lambda a, b, out: cupygemm.matvec(a, b[:, 0], out[:, 0]),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_warm_calls_are_captured(cp, arrays, name):
    a, b, out = arrays
    call = CALLS[name]
    with cp.cuda.Stream(non_blocking=True) as stream:
        call(a, b, out)  # compiles, and loads the kernel
        stream.begin_capture()
        call(a, b, out)
        graph = stream.end_capture()
        a *= 2  # the graph reads the arrays when it runs
        out[...] = 0
        graph.launch()
        stream.synchronize()
    expected = cp.asnumpy(a).astype(np.float32) @ cp.asnumpy(b).astype(np.float32)
    if name == "linear":
        expected = np.maximum(expected, 0)
    given = cp.asnumpy(out)
    columns = slice(0, 1) if name == "matvec" else slice(None)
    np.testing.assert_array_equal(given[:, columns], expected[:, columns].astype(np.float16))


def test_one_triangle_is_captured_and_exact(cp):
    """Large enough that one triangle is computed and mirrored."""
    PLANS.clear()
    values = np.random.default_rng(0).integers(-3, 4, (3072, 2048)).astype(np.float16)
    a, out = cp.asarray(values), cp.zeros((3072, 3072), np.float32)
    with cp.cuda.Stream(non_blocking=True) as stream:
        cupygemm.syrk(1, a, out=out)
        stream.begin_capture()
        cupygemm.syrk(1, a, out=out)
        graph = stream.end_capture()
        out[...] = 0
        graph.launch()
        stream.synchronize()
    wide = values.astype(np.float32)
    np.testing.assert_array_equal(cp.asnumpy(out), wide @ wide.T)
    half = cupygemm.syrk(0.25, a)  # the kernel's epilogue, and 16-bit results
    np.testing.assert_array_equal(cp.asnumpy(half), (wide @ wide.T / 4).astype(np.float16))
    c = np.random.default_rng(1).integers(-3, 4, out.shape).astype(np.float32)
    added = cupygemm.syrk(2, a, -1, cp.asarray(c), dtype=np.float32)
    assert NO_PLAN not in PLANS.of("syrk")
    np.testing.assert_array_equal(cp.asnumpy(added), 2 * (wide @ wide.T) - c)


@pytest.mark.parametrize("columns", [4, 512])
def test_scales_for_blocks_of_k_are_captured_and_exact(cp, columns):
    """Return powers of two, so that every sum is exact."""
    rng = np.random.default_rng(0)
    values = [rng.integers(-3, 4, shape).astype(np.float32) for shape in ((300, 1024), (1024, 512))]
    scales = [2.0 ** rng.integers(-2, 3, shape) for shape in ((300, 8), (8, columns))]
    scales = [scale.astype(np.float32) for scale in scales]
    codes = [cp.asarray(x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)) for x in values]
    moved, out = [cp.asarray(scale) for scale in scales], cp.zeros((300, 512), np.float32)

    def call():
        cupygemm.scaled_matmul(*codes, *moved, format_a="e4m3fn", format_b="e4m3fn", out=out)

    with cp.cuda.Stream(non_blocking=True) as stream:
        call()
        stream.begin_capture()
        call()
        graph = stream.end_capture()
        out[...] = 0
        graph.launch()
        stream.synchronize()
    wide = [np.repeat(scales[0], 128, axis=1), np.repeat(scales[1], 128, axis=0)]
    wide[1] = np.repeat(wide[1], 512 // columns, axis=1)
    expected = (values[0] * wide[0]) @ (values[1] * wide[1])
    np.testing.assert_array_equal(cp.asnumpy(out), expected)


def test_a_tuned_product_is_explained_by_its_figures(cp, tmp_path, monkeypatch):
    monkeypatch.setattr(winners, "database", lambda: tmp_path / "tuned.sqlite3")
    (found,) = cupygemm.tune([(256, 320, 384)], "float16", candidates=3, progress=False)
    assert found.kind == "measured"
    a, b = cp.ones((256, 384), np.float16), cp.ones((384, 320), np.float16)
    explained = cupygemm.explain(a, b)
    assert explained.config == found.figures[0][0]
    assert "fastest of 3 measured on" in explained.why
    assert (cupygemm.matmul(a, b) == 384).all()
