"""Half a QR panel that is factored at once, on the modelled GPU; NumPy multiplies."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import scipy.linalg

from cupygemm._solvers.common import blocks, kernels, tiles
from cupygemm._solvers.common.matrices import copied
from cupygemm._solvers.qr import halves as qr_halves
from cupygemm._solvers.qr.reflectors import Reflector
from tests.hopper_model.device import HostKernel

ENTRY = 'extern "C" __global__ void __launch_bounds__(512)\n    '  # the macro
UNITS = 3
N = 128


@pytest.fixture
def solvers(cp, model, monkeypatch):
    """Let the solvers launch their kernels on the modelled GPU."""

    def load(kind, dtype, threads, **config):
        constants = {"threads": threads, **dict(sorted(config.items()))}
        text = kernels.source(kind, dtype.char, constants)
        text = text.replace("CUPYGEMM_KERNEL(cupygemm::Config::threads)\n", ENTRY)
        kernel = HostKernel(model, text, kind.entry)
        shared_bytes = kernel.max_dynamic_shared_size_bytes = config.get("shared_bytes", 0)

        def launch(grid, *arguments):
            packed = kind.pack(*arguments)
            argument = ctypes.create_string_buffer(packed, len(packed))
            kernel.launch((*grid, 1), (threads, 1, 1), shared_bytes, ctypes.addressof(argument))

        return launch

    tiles._kernel.cache_clear()
    for module in (tiles, qr_halves):
        monkeypatch.setattr(module, "load", load)
    monkeypatch.setattr(qr_halves, "matmul", np.matmul)
    monkeypatch.setattr(tiles, "current_device", lambda: 0)
    monkeypatch.setattr(blocks, "current_limits", lambda: (16, UNITS))
    monkeypatch.setattr(blocks, "has_tile_kernels", lambda dtype: True)
    yield cp
    tiles._kernel.cache_clear()


def factored(cp, whole, half, first):
    """Return the matrix and V, both as they are then, and the flag."""
    a = copied(cp.asarray(whole)[None], whole.dtype)
    reflector = Reflector.of(range(first, half.stop), a)
    halves = qr_halves.Halves(a, whole.shape[1])
    assert halves.suits(half)
    flag = ctypes.c_uint32.from_address(halves.factor(reflector, half)).value
    return a.view[0].get(), reflector.v.view[0].get(), flag


@pytest.mark.slow
@pytest.mark.parametrize("dtype", "df")
def test_a_half_behind_another(solvers, dtype):
    whole = np.random.default_rng(2).standard_normal((900, 300)).astype(dtype)
    half = range(N, 2 * N)
    found, v, flag = factored(solvers, whole, half, 0)
    assert flag == 1
    own, of_half = whole[N:, N : 2 * N].astype("d"), v[N:, N:].astype("d")
    assert not v[:N].any()
    assert (np.triu(of_half[:N]) == np.eye(N)).all()
    products = of_half.T @ of_half
    t = np.linalg.inv(np.triu(products, 1) + np.diag(np.diag(products)) / 2)
    q = (np.eye(len(own)) - of_half @ t @ of_half.T)[:, :N]
    unit = float(np.finfo(dtype).eps) / 2
    r = found[N : 2 * N, N : 2 * N]
    assert abs(q @ r - own).max() <= 10 * N * unit * np.linalg.norm(own, axis=0).max()
    expected = scipy.linalg.qr(own, mode="r")[0][:N]
    np.testing.assert_allclose(r, expected, rtol=0, atol=10 * N * unit * abs(expected).max())
    others = np.ones(whole.shape, bool)
    others[N : 2 * N, N : 2 * N] = False
    assert (found[others] == whole[others]).all()


def test_a_half_that_is_not_factored_so(solvers):
    whole = np.random.default_rng(3).standard_normal((600, N))
    whole[:, 77] = whole[:, 3]
    found, v, flag = factored(solvers, whole, range(N), 0)
    assert flag == 0
    assert (found == whole).all()
    assert not v[:N].any()
