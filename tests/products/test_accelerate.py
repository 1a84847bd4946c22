"""`accelerate`: CuPy's products are ours in the block and its thread, and CuPy's own after it."""

import contextvars
import dataclasses
import importlib
import pkgutil
import threading

import numpy as np
import pytest

import cupygemm
from cupygemm._products import accelerate as module


def recorded_calls(monkeypatch):
    """Record the calls of our functions, by the name of CuPy's."""
    seen = []

    def recording(product):
        def call(*args, **options):
            seen.append(product.name)
            return product.ours(*args, **options)

        return dataclasses.replace(product, ours=call)

    rows = tuple(map(recording, module.replaced_functions()))
    monkeypatch.setattr(module, "replaced_functions", lambda: rows)
    return seen


@pytest.fixture
def calls(monkeypatch):
    return recorded_calls(monkeypatch)


def names_of(cp):
    """Return the names of the functions that a block replaces."""
    importlib.import_module("cupyx.scipy.linalg")  # which some products import, at any time
    rows = [row for row in module.replaced_functions() if row.is_loaded]
    return [vars(pkgutil.resolve_name(row.owner)).get(row.name) for row in rows]


def test_products_are_ours_inside_the_block(cp, calls):
    before = names_of(cp)
    a = cp.ones((4, 4), np.float32)
    with cupygemm.accelerate():
        results = [
            a @ a,
            a.dot(a),
            a.dot(b=a, out=cp.empty_like(a)),
            cp.matmul(a, a),
            cp.linalg.matmul(a, a),
            cp.dot(a, a),
            cp.dot(a=a, b=a),
            cp.inner(a, a),
            cp.inner(a, b=a),
            cp.tensordot(a, a, axes=1),
            cp.einsum("ij,jk->ik", a, a),
            cp.vdot(a, a) / 4,
        ]
        b = a.copy()
        b @= a
    assert calls == [
        *("__matmul__", "dot", "dot", "matmul", "matmul", "dot", "dot", "inner", "inner"),
        *("tensordot", "einsum", "vdot", "__matmul__"),
    ]
    for result in (*results, b):
        expected = np.full(result.shape, 4, np.float32)
        np.testing.assert_array_equal(cp.asnumpy(result), expected)
    assert names_of(cp) == before
    calls.clear()
    cp.matmul(cp.ones((4, 4), np.int32), cp.ones((4, 4), np.int32))
    assert calls == []


@pytest.mark.parametrize(
    ("shape1", "shape2", "options"),
    [
        ((3, 4, 2), (4, 2, 5), {"axes": [(0, 1), (0, 2), (0, 1)]}),
        ((3, 4), (4, 5), {"order": "F"}),
        ((3, 4), (4, 5), {"order": "A"}),
        ((4, 3), (4, 5), {"axes": [(1, 0), (0, 1), (1, 0)]}),
    ],
)
def test_matmul_forwards_axes_and_order(cp, calls, shape1, shape2, options):
    rng = np.random.default_rng(0)
    x1, x2 = (
        np.asarray(rng.integers(-3, 4, shape), np.float64, order="F") for shape in (shape1, shape2)
    )
    expected = np.matmul(x1, x2, **options)
    with cupygemm.accelerate():
        result = cp.matmul(cp.asarray(x1), cp.asarray(x2), **options)
    assert calls == ["matmul"]
    np.testing.assert_array_equal(cp.asnumpy(result), expected)
    if "order" in options:
        assert result.flags.f_contiguous == expected.flags.f_contiguous


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_that_call_products_are_accelerated(cp, calls, dtype):
    """`calls` shows that this library's functions computed the products, not the BLAS library's."""
    x = np.random.default_rng(0).standard_normal((4, 9)).astype(dtype)
    square = x[:, :4]
    ours, matrix = cp.asarray(x), cp.asarray(square)
    with cupygemm.accelerate():
        results = {
            "cov": (cp.cov(ours), np.cov(x)),
            "corrcoef": (cp.corrcoef(ours), np.corrcoef(x)),
            "matrix_power": (
                cp.linalg.matrix_power(matrix, 5),
                np.linalg.matrix_power(square, 5),
            ),
            "np.inner": (np.inner(ours, ours), np.inner(x, x)),
        }
    assert calls == ["dot", "dot", "matmul", "matmul", "matmul", "inner"]
    for name, (result, expected) in results.items():
        np.testing.assert_allclose(cp.asnumpy(result), expected, 1e-4, 1e-5, err_msg=name)


@pytest.mark.slow
def test_products_in_cupyx_scipy_are_accelerated(cp, calls):
    """`expm` of a nilpotent matrix."""
    from cupyx.scipy.linalg import expm

    with cupygemm.accelerate():
        result = expm(cp.asarray([[0.0, 1.0], [0.0, 0.0]]))
    np.testing.assert_allclose(cp.asnumpy(result), [[1, 1], [0, 1]], rtol=1e-12, atol=1e-12)
    assert set(calls) == {"__matmul__", "solve"}


def test_functions_of_other_versions_of_cupy(cp, calls, monkeypatch):
    """`multi_dot`, `vecdot` and others are replaced where CuPy has them, and only there."""

    def theirs(*_):
        raise AssertionError

    for owner, name in ((cp.linalg, "multi_dot"), (cp, "vecdot"), (cp, "matvec")):
        monkeypatch.setattr(owner, name, theirs, raising=False)
    a, v = cp.ones((4, 4), np.float32), cp.ones(4, np.float32)
    with cupygemm.accelerate():
        results = cp.linalg.multi_dot([a, a]), cp.vecdot(a, v, axis=-1), cp.matvec(a, v)
    assert calls == ["multi_dot", "vecdot", "matvec"]
    for result in results:
        assert (cp.asnumpy(result) == 4).all()
    assert cp.linalg.multi_dot is theirs


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
            assert done.wait(600)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(600)
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


def test_a_generator_may_end_its_block_in_another_context(cp, calls):
    """Asynchronous fixtures of pytest do this: their two halves run in two tasks."""

    def block():
        with cupygemm.accelerate():
            yield

    original, a = cp.matmul, cp.ones((2, 2))
    generator = block()
    contextvars.copy_context().run(next, generator)
    assert cp.matmul is not original
    cp.matmul(a, a)
    assert list(contextvars.copy_context().run(list, generator)) == []
    assert cp.matmul is original
    assert calls == []


def test_what_is_not_ours_goes_to_cupy(cp, calls):
    a = cp.ones((4, 4), np.float32)
    with cupygemm.accelerate():
        with pytest.raises(TypeError, match="incorrect type"):
            cp.matmul(np.ones((4, 4)), a)
        out = cp.empty((4, 4), np.int64)
        cp.matmul(a.astype(np.int32), a.astype(np.int32), out=out, keepdims=False)
        assert calls == []
        with pytest.raises(TypeError, match="incorrect type"):  # CuPy's own words
            a @ 3
    assert (cp.asnumpy(out) == 4).all()


def test_calls_that_ours_refuses_go_to_cupy(cp):
    """CuPy's `dot` accepts an ``out`` of another shape with the same number of elements."""
    a, out = cp.ones((4, 4), np.int32), cp.zeros(16, np.int32)
    with cupygemm.accelerate():
        cp.dot(a, a, out)
        with pytest.raises(IndexError):  # CuPy's own error
            cp.tensordot(a, a, 3)
    assert (cp.asnumpy(out) == 4).all()
