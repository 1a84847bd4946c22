"""A panel that is factored beside an update: both orders give the same bits."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from cupygemm import linalg
from cupygemm._solvers import ahead, cholesky, lu
from tests.solvers.test_systems import definite

N = 45


@contextmanager
def behind(work, units):
    """Do the work of the side stream last."""
    yield
    work()


@pytest.mark.parametrize(
    ("module", "function", "dtype"), [(lu, linalg.lu_factor, "d"), (cholesky, None, "D")]
)
def test_the_two_streams_share_nothing(
    cp, draw, small_blocks, monkeypatch, module, function, dtype
):
    """Hopper factors real positive definite matrices in one launch, which needs no other stream."""
    a = cp.asarray(definite(draw, (N, N), dtype))
    forks = []

    @contextmanager
    def counted(work, units):
        forks.append(work)
        with ahead.beside(work, units):
            yield

    def factored():
        return [each.get() for each in function(a)] if function else [linalg.cholesky(a).get()]

    monkeypatch.setattr(module, "beside", counted)
    expected = factored()
    monkeypatch.setattr(module, "beside", behind)
    for got, one in zip(factored(), expected, strict=True):
        assert (got == one).all()
    assert len(forks) == 1
    if not function:
        np.testing.assert_allclose(expected[0], np.linalg.cholesky(a.get()), rtol=0, atol=1e-10)


def test_the_current_stream_waits_for_the_side_stream(cp):
    """Also if the block fails."""
    stream = cp.cuda.Stream(non_blocking=True)
    a = cp.zeros(8)
    cp.cuda.get_current_stream().synchronize()
    with stream:
        cp.add(a, 1, out=a)
        stream.begin_capture()
        with pytest.raises(ZeroDivisionError), ahead.beside(lambda: cp.add(a, 1, out=a)):
            raise ZeroDivisionError
        cp.add(a, a, out=a)
        graph = stream.end_capture()  # an error if the side stream had not been joined
    graph.launch(stream)
    stream.synchronize()
    assert a.get().tolist() == [4.0] * 8
