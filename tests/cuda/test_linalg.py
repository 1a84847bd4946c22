"""Linear algebra on a GPU: warm calls are captured into graphs, and wait for nothing."""

import numpy as np
import pytest

import cupygemm


@pytest.fixture
def arrays(cp):
    """Return operands and results, float16, whose sums are exact."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((96, 128), (128, 160)))
    return cp.asarray(a), cp.asarray(b), cp.zeros((96, 160), np.float16)


CALLS = {
    "matmul": cupygemm.matmul,
    "dot": cupygemm.dot,
    "einsum": lambda a, b, out: cupygemm.einsum("ij,jk->ik", a, b, out=out),
    "grouped_matmul": lambda a, b, out: cupygemm.grouped_matmul([a], [b], [out]),
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
    given = cp.asnumpy(out)
    columns = slice(0, 1) if name == "matvec" else slice(None)
    np.testing.assert_array_equal(given[:, columns], expected[:, columns].astype(np.float16))
