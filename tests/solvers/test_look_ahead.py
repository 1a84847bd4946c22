"""A panel that is factored concurrently with an update: both orders give the same bits."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import pytest

from cupygemm import emulator, linalg
from cupygemm._solvers.common import ahead, blocks
from cupygemm._solvers.common.matrices import copied
from cupygemm._solvers.common.panel_steps import Update
from cupygemm._solvers.lu import lu, panel, steps
from cupygemm._solvers.qr import qr
from cupygemm._solvers.triangles import cholesky
from tests.solvers.test_systems import definite

N = 45


@contextmanager
def behind(work, *units, **options):
    """Run the work of the side stream last."""
    yield
    work()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "function", "dtype"), [(steps, linalg.lu_factor, "d"), (cholesky, None, "D")]
)
def test_the_two_streams_share_nothing(
    cp, draw, small_blocks, monkeypatch, module, function, dtype
):
    """Hopper factors real positive definite matrices in one launch, which needs no other stream."""
    a = cp.asarray(definite(draw, (N, N), dtype))
    forks = []

    @contextmanager
    def counted(work, *units):
        forks.append(work)
        with ahead.beside(work, *units):
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


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["d", pytest.param("F", marks=pytest.mark.sweep)])
def test_a_wide_panel_reads_no_column_beside_it(cp, device, draw, small_blocks, dtype):
    """The product between its two outer panels is narrower than a tile."""
    if not device.emulated:
        pytest.skip("only the emulated device tells which memory a kernel reads")
    a = draw((90, 90), dtype)
    on_device = cp.asarray(a)
    cp.cuda.Device().synchronize()
    with emulator.checks(stream_races="error"):
        found, pivots = (each.get() for each in linalg.lu_factor(on_device))
        q, r = (each.get() for each in linalg.qr(on_device))
    for i, pivot in enumerate(pivots):
        a[[i, pivot]] = a[[pivot, i]]
    lower, upper = np.tril(found, -1) + np.eye(90), np.triu(found)
    np.testing.assert_allclose(lower @ upper, a, rtol=0, atol=2e4 * np.finfo(dtype).eps)
    np.testing.assert_allclose(q @ r, on_device.get(), rtol=0, atol=2e4 * np.finfo(dtype).eps)


def early_parts(monkeypatch, beside_lu: int = 100_000) -> list[list[Update]]:
    """Enable early application of first parts of LU panels, and record the parts of each panel."""
    limits = replace(blocks.LIMITS, beside_lu_block=0, beside_lu=beside_lu, early=100_000)
    monkeypatch.setattr(blocks, "LIMITS", limits)
    monkeypatch.setattr(steps, "_launches_pay", lambda a: True)
    early, found = steps.Factorisation._early, []
    monkeypatch.setattr(
        steps.Factorisation, "_early", lambda *args: found.append(early(*args)) or found[-1]
    )
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "columns"), [((90, 90), None), ((90, 90), 80), ((97, 71), None)], ids=str
)
def test_first_parts_of_a_panel_are_applied_beside_its_last(
    cp, device, draw, small_blocks, monkeypatch, shape, columns
):
    """For wide panels and others; they read nothing that the panel still changes."""
    found = early_parts(monkeypatch)
    a = draw(shape, "d")
    system = copied(cp.asarray(a), np.dtype("d"))
    cp.cuda.Device().synchronize()
    with emulator.checks(stream_races="error") if device.emulated else nullcontext():
        factors = lu.factor(system, columns)
        got, pivots = system.view[0].get(), factors.pivots[0].get()
    assert {len(parts) for parts in found} == ({0, 2} if shape[1] == 90 else {0, 1})
    k = len(pivots)
    for i, pivot in enumerate(pivots):
        a[[i, pivot]] = a[[pivot, i]]
    lower, upper = np.tril(got[:, :k], -1) + np.eye(shape[0], k), np.triu(got[:k, :k])
    np.testing.assert_allclose(lower @ upper, a[:, :k], rtol=0, atol=1e-12)
    if columns is not None:
        behind = np.linalg.solve(lower[:k], a[:k, k:])
        np.testing.assert_allclose(got[:k, k:], behind, rtol=0, atol=1e-11)


def test_no_part_is_applied_before_an_update_that_waits_for_the_panel(
    cp, draw, small_blocks, monkeypatch
):
    """The products are short, but none is computed beside the panel."""
    found = early_parts(monkeypatch, beside_lu=0)
    a, b = draw((33, 33)), draw((33, 3))
    x = linalg.solve(cp.asarray(a), cp.asarray(b)).get()
    assert not any(found)
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_first_parts_are_applied_early_beside_an_identity(
    cp, device, draw, small_blocks, monkeypatch
):
    found = early_parts(monkeypatch)
    a = definite(draw, (80, 80), "d")
    on_device = cp.asarray(a)
    cp.cuda.Device().synchronize()
    with emulator.checks(stream_races="error") if device.emulated else nullcontext():
        inverse = linalg.inv(on_device).get()
    assert any(found)
    np.testing.assert_allclose(inverse, np.linalg.inv(a), rtol=0, atol=1e-11)


@pytest.mark.slow
def test_parts_of_many_blocks_are_factored_in_halves(cp, device, draw, small_blocks, monkeypatch):
    """Beside long products only; the halves read nothing that another stream changes."""
    monkeypatch.setattr(blocks, "LIMITS", replace(blocks.LIMITS, early=0))
    monkeypatch.setattr(steps, "_launches_pay", lambda a: True)
    widths, factor_panel = [], steps.factor_panel

    def counted(a, pivots, info, part, **options):
        widths.append(len(part))
        return factor_panel(a, pivots, info, part, **options)

    monkeypatch.setattr(steps, "factor_panel", counted)
    a = draw((90, 90), "d")
    on_device = cp.asarray(a)
    cp.cuda.Device().synchronize()
    with emulator.checks(stream_races="error") if device.emulated else nullcontext():
        found, pivots = (each.get() for each in linalg.lu_factor(on_device))
    assert widths[:2] == [16, 16]  # the first panel is alone
    assert widths[2:6] == [8, 8, 8, 8]
    for i, pivot in enumerate(pivots):
        a[[i, pivot]] = a[[pivot, i]]
    lower, upper = np.tril(found, -1) + np.eye(90), np.triu(found)
    np.testing.assert_allclose(lower @ upper, a, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", [(90, 90), (97, 71), (60, 64)], ids=str)
def test_columns_of_q_are_formed_beside_panels(cp, draw, small_blocks, monkeypatch, shape, mode):
    """In any order of the two streams; columns left at the end have no concurrent panel."""
    a = draw(shape, "d")
    on_device, steps = cp.asarray(a), []
    do = qr.ColumnsOfQ._do
    monkeypatch.setattr(qr.ColumnsOfQ, "_do", lambda q, step: (steps.append(step), do(q, step)))
    q, r = (each.get() for each in linalg.qr(on_device, mode=mode))
    assert steps
    assert q.shape == (shape[0], shape[0] if mode == "complete" else min(shape))
    np.testing.assert_allclose(q @ r, a, rtol=0, atol=1e-13)
    np.testing.assert_allclose(q.T @ q, np.eye(q.shape[1]), rtol=0, atol=1e-13)
    monkeypatch.setattr(qr, "beside", behind)
    for one, other in zip(linalg.qr(on_device, mode=mode), (q, r), strict=True):
        assert (one.get() == other).all()


@pytest.mark.slow
def test_columns_that_wait_for_two_panels(cp, device, draw, small_blocks, monkeypatch):
    """In a wide matrix, some columns are to the right of the last pair. No stream is too early."""
    monkeypatch.setattr(blocks, "LIMITS", replace(blocks.LIMITS, outer=8, paired=16))
    apply_part, parts = qr.Reflector.apply_part, []

    def counted(own, part, c, columns, **options):
        if c.n == 90:
            parts.append(len(part))
        apply_part(own, part, c, columns, **options)

    monkeypatch.setattr(qr.Reflector, "apply_part", counted)
    a = draw((72, 90), "f")
    on_device = cp.asarray(a)
    cp.cuda.Device().synchronize()
    with emulator.checks(stream_races="error") if device.emulated else nullcontext():
        q, r = (each.get() for each in linalg.qr(on_device))
    assert parts.count(16) >= 4
    np.testing.assert_allclose(q @ r, a, rtol=0, atol=1e-4)
    np.testing.assert_allclose(q.T @ q, np.eye(72), rtol=0, atol=1e-5)


def test_the_current_stream_waits_for_the_side_stream(cp):
    """This holds even if the block fails."""
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


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 3, 4])
def test_blocks_of_a_panel_need_not_wait_for_the_updates_behind(
    cp, draw, small_blocks, monkeypatch, k
):
    """Updates of the last panel include few right-hand sides, in any order that the waits allow."""
    a, b = cp.asarray(draw((29, 29))), cp.asarray(draw((29, k)))
    expected = linalg.solve(a, b).get()
    lu_expected = [each.get() for each in linalg.lu_factor(a)]
    np.testing.assert_allclose(expected, np.linalg.solve(a.get(), b.get()), rtol=0, atol=1e-12)

    monkeypatch.setattr(panel, "forked", ahead.in_order)
    assert (linalg.solve(a, b).get() == expected).all()
    for got, one in zip(linalg.lu_factor(a), lu_expected, strict=True):
        assert (got.get() == one).all()


def test_marks_on_the_side_stream(cp):
    """A mark covers its work even if more is enqueued later; the end waits for all."""
    current = cp.cuda.Stream(non_blocking=True)
    cp.cuda.get_current_stream().synchronize()
    with current:
        a, b = cp.zeros(8), cp.zeros(8)
        with ahead.forked() as streams:
            streams.enqueue(lambda: cp.add(a, 1, out=a))
            mark = streams.mark()
            streams.enqueue(lambda: cp.add(b, 1, out=b))
            mark_of_next = streams.mark()
            streams.join(mark)
            cp.add(a, a, out=a)
            streams.join(mark_of_next)
            cp.add(b, a, out=b)
            streams.enqueue(lambda: cp.add(b, b, out=b))
        cp.add(a, b, out=a)
    current.synchronize()
    assert a.get().tolist() == [8.0] * 8


def test_work_on_a_side_stream_gets_another(cp):
    seen = []
    with ahead.beside(lambda: seen.append(cp.cuda.get_current_stream().ptr)):
        pass

    def nested():
        with ahead.beside(lambda: seen.append(cp.cuda.get_current_stream().ptr)):
            pass

    with ahead.beside(nested):
        pass
    assert seen[0] != seen[1]
    assert cp.cuda.get_current_stream().ptr not in seen
