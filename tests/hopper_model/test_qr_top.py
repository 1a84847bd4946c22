"""The reflections of half a QR panel from its products, on the modelled GPU."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest
import scipy.linalg

from cupygemm._solvers.common import kernels
from tests.hopper_model.device import HostKernel, Model

ENTRY = 'extern "C" __global__ void __launch_bounds__({})\n    '  # the macro
N = 128


def launch(kind, dtype, threads, arguments, **constants):
    text = kernels.source(kind, dtype, {"threads": threads, **dict(sorted(constants.items()))})
    before = "CUPYGEMM_KERNEL(cupygemm::Config::threads)\n"
    assert before in text
    kernel = HostKernel(Model(), text.replace(before, ENTRY.format(threads)), kind.entry)
    places = [each.ctypes.data if isinstance(each, np.ndarray) else each for each in arguments]
    packed = struct.pack(kind.arguments, *places)
    argument = ctypes.create_string_buffer(packed, len(packed))
    kernel.launch((1, 1, 1), (threads, 1, 1), 0, ctypes.addressof(argument))


def reflected(a):
    """Return S R, V, T, tau and the flag; only the kernels' steps are not NumPy's."""
    dtype, pitch = a.dtype, N + 4
    gram = a.T @ a
    lower = np.linalg.cholesky(gram.astype("d")).astype(dtype)
    top, v = np.full((2, N, pitch), np.nan, dtype)
    top[:, :N] = a[:N]
    w, flag = np.full((N, N), np.nan, dtype), np.full(1, 7, "uint32")
    places = top, pitch, gram, N, lower, N, v, pitch, w, N, flag
    launch(kernels.QR_TOP, dtype.char, 512, places, groups=16, rows=4)
    if not flag[0]:
        assert (top[:, :N] == a[:N]).all()
        assert np.isnan(v).all()
        return None
    upper = np.triu(w)
    below = scipy.linalg.solve_triangular(upper, a[N:].T, trans="T").T
    v = np.vstack([v[:, :N], below.astype(dtype)])
    t, tau = np.zeros((N, N), dtype), np.zeros(N, dtype)
    products = v.T @ v
    places = products, N, 0, t, N, 0, flag, tau, N, 0
    launch(kernels.REFLECTOR, dtype.char, 256, places, most=4, width=32)
    assert not np.tril(top[:, :N], -1).any()
    return top[:, :N], v, t, tau


@pytest.mark.parametrize("dtype", "df")
@pytest.mark.parametrize("kind", ["random", "graded", "at an angle"])
def test_reflections_from_products(dtype, kind):
    a = np.random.default_rng(5).standard_normal((700, N))
    if kind == "graded":
        a *= np.geomspace(1, 1e-8, N)
    elif kind == "at an angle":
        a = scipy.linalg.qr(a, mode="economic")[0]
        a += 0.3 * a[:, :1]
    a = a.astype(dtype)
    r, v, t, tau = reflected(a)
    unit = float(np.finfo(dtype).eps) / 2
    assert (np.triu(v[:N]) == np.eye(N)).all()
    assert (tau == np.diag(t)).all()
    assert not np.tril(t, -1).any()
    exact = v.astype("d")
    q = np.eye(len(a)) - exact @ t @ exact.T
    assert abs(q.T @ q - np.eye(len(a))).max() <= N * unit
    error = np.linalg.norm(q[:, :N] @ r - a, axis=0) / np.linalg.norm(a.astype("d"), axis=0)
    assert error.max() <= N * unit
    of_lapack = scipy.linalg.qr(a.astype("d"), mode="r")[0][:N]
    np.testing.assert_array_equal(np.sign(np.diag(r)), np.sign(np.diag(of_lapack)))


@pytest.mark.parametrize("kind", ["triangular", "ill-conditioned", "tiny", "nan"])
def test_columns_for_which_products_are_inaccurate(monkeypatch, kind):
    """Nothing is stored but the flag and W."""
    a = np.random.default_rng(6).standard_normal((700, N))
    if kind == "triangular":
        a[N:] = 0
        a[:N] = np.triu(a[:N], 1) + 20 * np.eye(N)
    elif kind == "ill-conditioned":
        a[:, 77] = a[:, 3] + 1e-4 * a[:, 77]
    elif kind == "tiny":
        a[:, 9] *= 1e-150
    else:
        a[300, 5] = np.nan
        monkeypatch.setattr(np.linalg, "cholesky", np.tril)  # what the device's would have, NaN
    assert reflected(a) is None
