"""`accelerate`: CuPy's products are ours in the block and its thread, and CuPy's own after it."""

import threading

import numpy as np
import pytest

import cupygemm
from cupygemm._products import accelerate as module


@pytest.fixture
def calls(monkeypatch):
    """Record the calls of our functions, by name."""
    seen = []

    def recording(name, function):
        def call(*args, **options):
            seen.append(name)
            return function(*args, **options)

        return call

    functions = {
        name: (recording(name, function), keywords)
        for name, (function, keywords) in module.FUNCTIONS.items()
    }
    monkeypatch.setattr(module, "FUNCTIONS", functions)
    monkeypatch.setattr(module, "matmul", recording("@", module.matmul))
    return seen


def names_of(cp):
    """Return what a block replaces."""
    return [*(getattr(cp, name) for name in module.FUNCTIONS), vars(cp.ndarray).get("__matmul__")]


def test_products_are_ours_inside_the_block(cp, calls):
    before = names_of(cp)
    a = cp.ones((4, 4), np.float32)
    with cupygemm.accelerate():
        results = [
            a @ a,
            cp.matmul(a, a),
            cp.dot(a, a),
            cp.tensordot(a, a, axes=1),
            cp.einsum("ij,jk->ik", a, a),
        ]
        b = a.copy()
        b @= a
    assert calls == ["@", "matmul", "dot", "tensordot", "einsum", "@"]
    for result in (*results, b):
        np.testing.assert_array_equal(cp.asnumpy(result), np.full((4, 4), 4, np.float32))
    assert names_of(cp) == before
    calls.clear()
    cp.matmul(cp.ones((4, 4), np.int32), cp.ones((4, 4), np.int32))
    assert calls == []


def test_blocks_nest_and_end_with_an_exception(cp, calls):
    before = names_of(cp)
    a = cp.ones((4, 4), np.float32)

    def fail():
        with cupygemm.accelerate():
            with cupygemm.accelerate():
                cp.dot(a, a)
            cp.dot(a, a)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert calls == ["dot", "dot"]
    assert names_of(cp) == before


def test_other_threads_are_not_affected(cp, calls):
    a = cp.ones((4, 4), np.int32)
    inside, done = threading.Event(), threading.Event()

    def hold():
        with cupygemm.accelerate():
            inside.set()
            assert done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(60)
    result = cp.dot(a, a)
    np.testing.assert_array_equal(cp.asnumpy(a @ a), cp.asnumpy(result))
    done.set()
    thread.join()
    assert calls == []


def test_blocks_of_many_threads_end_in_any_order(cp):
    before = names_of(cp)
    a = cp.ones((4, 4), np.float32)
    start = threading.Barrier(6)
    wrong = []

    def work(index):
        start.wait()
        for _ in range(3 + index):
            with cupygemm.accelerate():
                if not (cp.asnumpy(a @ a) == 4).all():
                    wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert names_of(cp) == before


def test_what_is_not_ours_goes_to_cupy(cp, calls):
    a = cp.ones((4, 4), np.float32)
    with cupygemm.accelerate():
        with pytest.raises(TypeError, match="incorrect type"):
            cp.matmul(np.ones((4, 4)), a)
        out = cp.empty((4, 4), np.int64)
        cp.matmul(a.astype(np.int32), a.astype(np.int32), out=out, order="C")
        assert calls == []
        with pytest.raises(TypeError, match="incorrect type"):  # CuPy's own words
            a @ 3
    assert (cp.asnumpy(out) == 4).all()
