"""The launches of LU and QR panels are prepared once for all matrices of a shape."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import cupygemm
from cupygemm import linalg
from cupygemm._solvers.common import matrices
from cupygemm._solvers.lu import lu as _lu
from cupygemm._solvers.lu import panel
from cupygemm._solvers.qr import blocks
from tests.solvers.conftest import assert_like

N = 45
LIBRARY = Path(cupygemm.__file__).parent


@pytest.fixture
def nothing_prepared(monkeypatch):
    """Return a function after whose call preparing launches raises an error."""

    def forbid():
        for module in (panel, blocks):
            monkeypatch.setattr(module, "LaunchRows", None)

    for module in (panel, blocks):
        module._prepared.cache_clear()
    return forbid


def factored(a, function=linalg.lu_factor):
    return [each.get() for each in function(a)]


@pytest.mark.slow
@pytest.mark.parametrize("function", [linalg.lu_factor, linalg.qr])
@pytest.mark.parametrize("shape", [(N, N), (2, 20, 20)])
def test_a_matrix_elsewhere_is_factored_by_the_same_launches(
    cp, draw, nothing_prepared, shape, function
):
    first, second = draw(shape), draw(shape)
    expected = tuple(factored(cp.asarray(each), function) for each in (first, second))
    nothing_prepared()
    kept = []
    for given, wanted in zip((first, second), expected, strict=True):
        kept += [cp.asarray(given), cp.empty(1 << 16)]  # so that the next one has another address
        for got, one in zip(factored(kept[-2], function), wanted, strict=True):
            assert (got == one).all()


@pytest.mark.parametrize("shift", [1, 2, 31])
def test_matrices_that_begin_between_multiples_of_the_alignment(
    cp, device, draw, small_blocks, shift
):
    """Vector loads depend on the alignment of the matrix."""
    given, row = draw((21, 21)), 32
    expected = factored(cp.asarray(given))
    memory = cp.empty(shift + 21 * row)
    array = memory[shift:].reshape(1, 21, row)
    array[0, :, :21] = cp.asarray(given)
    found = _lu.factor(matrices.Matrices(array, 21))
    got = found.lu.view[0].get()
    if device.kind == "cuda" and shift % 2:  # kernels with mma.sync read 16 bytes
        assert_like(got, expected[0])
    else:
        assert (got == expected[0]).all()
    assert (found.pivots[0].get() == expected[1]).all()


@pytest.mark.slow
def test_threads_share_prepared_launches(cp, draw, small_blocks):
    given = [draw((N, N)) for _ in range(4)]
    arrays = [cp.asarray(each) for each in given]
    expected = [factored(each) for each in arrays]
    cp.cuda.get_current_stream().synchronize()

    def in_a_stream(a):
        with cp.cuda.Stream(non_blocking=True) as stream:
            found = linalg.lu_factor(a)
            stream.synchronize()
            return [each.get() for each in found]

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(in_a_stream, arrays))
    for found, wanted in zip(results, expected, strict=True):
        for got, one in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(got, one)


def steps(call):
    """Return the number of calls that code of solvers and backends makes, without the emulator."""
    folders, seen = tuple(str(LIBRARY / name) for name in ("_solvers", "_backends")), []

    def note(frame, event, argument):
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(folders):
            seen.append(argument or frame.f_code)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(seen)


def test_a_block_adds_few_steps(cp, draw, small_blocks):
    """Three launches of three steps each, and the events of two streams."""
    counts = []
    for n in (8, 12):  # two blocks, and three
        a = cp.asarray(draw((n, n)))
        linalg.lu_factor(a)
        counts.append(steps(lambda a=a: linalg.lu_factor(a)))
    assert counts[1] - counts[0] <= 30
