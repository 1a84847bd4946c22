"""Work that is recorded as a graph and repeated, in one block of memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cupygemm import linalg
from cupygemm._solvers.common import blocks, recorded
from tests.solvers.conftest import assert_like
from tests.tables import swept


@pytest.fixture
def cases(monkeypatch, small_blocks):
    """Start without recorded cases, and record factorisations of 16 columns or more."""
    monkeypatch.setattr(blocks, "LIMITS", replace(blocks.LIMITS, recorded=16))
    fresh = recorded._OfThread()
    monkeypatch.setattr(recorded, "_of_thread", fresh)
    return fresh.cases


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["raw", "complete", *swept("reduced", "r")])
def test_repeated_factorisations(cp, draw, cases, mode):
    values = [draw((45, 33)) for _ in range(4)]
    found = [linalg.qr(cp.asarray(each), mode) for each in values]
    (case,) = cases.values()
    assert not case.fails
    assert case.graphs
    for got, each in zip(found, values, strict=True):  # later calls did not change earlier results
        expected = np.linalg.qr(each, mode)
        pairs = [(got, expected)] if mode == "r" else zip(got, expected, strict=True)
        for ours, numpys in pairs:
            assert_like(ours, numpys, factor=2000)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [None, 3])
def test_repeated_systems(cp, draw, cases, columns):
    values = [(draw((33, 33)), draw((33, columns) if columns else 33)) for _ in range(4)]
    found = [linalg.solve(cp.asarray(a), cp.asarray(b)) for a, b in values]
    (case,) = cases.values()
    assert case.graphs
    assert all(each.beginning for each in case.graphs.values())
    for x, (a, b) in zip(found, values, strict=True):
        assert_like(x, np.linalg.solve(a, b), factor=20000)
    _, b = values[0]
    with pytest.raises(np.linalg.LinAlgError, match="pivot 0 is zero"):
        linalg.solve(cp.zeros((33, 33)), cp.asarray(b))


def test_repeated_inverses(cp, draw, cases):
    values = [draw((33, 33)) for _ in range(4)]
    found = [linalg.inv(cp.asarray(each)) for each in values]
    (case,) = cases.values()
    assert case.graphs
    for inverse, each in zip(found, values, strict=True):
        assert_like(inverse, np.linalg.inv(each), factor=20000)


@pytest.mark.sweep
def test_repeated_refinements(cp, draw, cases, monkeypatch):
    monkeypatch.setattr(blocks, "LIMITS", replace(blocks.Limits(), windowed=1))
    for _ in range(3):
        a, b = draw((200, 200)), draw(200)
        x, info = linalg.solve(cp.asarray(a), cp.asarray(b), precision="tf32x3", full_output=True)
        assert info.path == "refined"
        assert_like(x, np.linalg.solve(a, b), factor=20000)
    (case,) = (case for key, case in cases.items() if key[0] == "windowed_lu")
    assert case.graphs


def test_stacks_that_no_workgroup_factors_whole(cp, draw, cases, monkeypatch):
    monkeypatch.setattr(blocks, "LIMITS", replace(blocks.LIMITS, whole=16))
    for _ in range(3):
        a, b = draw((2, 40, 40)), draw((2, 40, 1))
        x = linalg.solve(cp.asarray(a), cp.asarray(b))
        assert_like(x, np.linalg.solve(a, b), factor=20000)
    (case,) = cases.values()
    assert case.graphs
    a[1, :, 7] = 0
    with pytest.raises(np.linalg.LinAlgError, match="number 1 of the stack"):
        linalg.solve(cp.asarray(a), cp.asarray(b))


def test_a_graph_is_for_one_address(cp, draw, cases):
    a = cp.asarray(draw((40, 32)))
    expected = np.linalg.qr(a.get())[1]
    linalg.qr(a)
    (case,) = cases.values()
    held, pool = [], cp.cuda.MemoryPool()  # the emulated device's own passes over dropped blocks
    with cp.cuda.using_allocator(pool.malloc):
        for number in range(1, 5):  # each block is taken from the pool before the next call
            assert_like(linalg.qr(a)[1], expected, factor=2000)
            assert len(case.graphs) == min(number, recorded._MOST_GRAPHS)
            held.append(cp.cuda.alloc(case.size))
    assert len({each.ptr for each in held}) == len(held)


def test_work_that_takes_more_memory_is_not_recorded(cp, draw, cases):
    a = cp.asarray(draw((40, 32)))
    linalg.qr(a)
    (case,) = cases.values()
    case.size = 512
    assert_like(linalg.qr(a)[1], np.linalg.qr(a.get())[1], factor=2000)
    assert case.fails
    assert not case.graphs


def test_memory_without_room_for_one_block(cp, draw, cases):
    a = cp.asarray(draw((40, 32)))
    linalg.qr(a)
    (case,) = cases.values()
    pool = cp.cuda.MemoryPool()
    pool.set_limit(case.size - 1)
    with cp.cuda.using_allocator(pool.malloc):
        r = linalg.qr(a)[1]
    assert_like(r, np.linalg.qr(a.get())[1], factor=2000)
    assert not case.graphs


def test_a_call_that_is_recorded_by_its_user(cp, draw, cases):
    stream, pool = cp.cuda.Stream(non_blocking=True), cp.cuda.MemoryPool()
    a = cp.asarray(draw((40, 32)))
    cp.cuda.get_current_stream().synchronize()
    with cp.cuda.using_allocator(pool.malloc), stream:
        linalg.qr(a)
        stream.synchronize()
        stream.begin_capture()
        try:
            r = linalg.qr(a)[1]
        finally:
            graph = stream.end_capture()
        graph.launch()
        stream.synchronize()
    assert_like(r, np.linalg.qr(a.get())[1], factor=2000)
    (case,) = cases.values()
    assert not case.graphs


def test_parts_of_a_block():
    places = recorded._Places()
    assert [places.take(size, 1) for size in (4, 2, 3)] == [0, 4, 6]
    places.give_back(4, 2, 1)
    assert places.take(2, 2) == 9  # another stream does not reuse memory that this one freed
    assert places.take(1, 1) == 4
    places.give_back(4, 1, 1)
    places.give_back(0, 4, 1)
    assert places.take(6, 1) == 0  # adjacent parts are one again
    assert places.size == 11
