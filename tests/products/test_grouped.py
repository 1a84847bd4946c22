"""`grouped_matmul`: products of different shapes in one launch, on the device, to the bit."""

import collections
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm._backends.cdna import grouped as grouped_cdna
from cupygemm._backends.runners import SharedLaunch
from tests.problems import problem_of
from tests.tables import swept

RNG = np.random.default_rng(0)
SHAPES = [
    (1, 64, 64),
    (70, 64, 33),
    (0, 64, 64),
    (5, 3, 7),
    (33, 0, 4),
    (128, 40, 130),
    (17, 64, 1),
]


def operands(shapes, dtype=np.float32):
    """Return small integers for products of shapes (m, k, n)."""
    return (
        [RNG.integers(-3, 4, (m, k)).astype(dtype) for m, k, _ in shapes],
        [RNG.integers(-3, 4, (k, n)).astype(dtype) for _, k, n in shapes],
    )


@pytest.fixture
def launches(cp, monkeypatch):
    """Record the number of products of each launch of grouped products."""
    seen = []
    launch = SharedLaunch.__call__

    def counting(self, *args):
        seen.append(len(self.numbers))
        return launch(self, *args)

    monkeypatch.setattr(SharedLaunch, "__call__", counting)
    return seen


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, np.int8, *swept(np.dtype(ml_dtypes.bfloat16))]
)
def test_products_of_any_shapes(cp, dtype):
    a, b = operands(SHAPES, dtype)
    results = cupygemm.grouped_matmul(list(map(cp.asarray, a)), list(map(cp.asarray, b)))
    for x, y, result in zip(a, b, results, strict=True):
        assert (result.shape, result.dtype) == ((x.shape[0], y.shape[1]), x.dtype)
        expected = (x.astype(np.float64) @ y.astype(np.float64)).astype(x.dtype)
        np.testing.assert_array_equal(cp.asnumpy(result), expected)


def test_products_that_lie_alike_are_one_launch(cp, device, launches):
    shapes = [(m, 48, n) for m, n in ((1, 40), (40, 40), (100, 24), (7, 200))] * 5
    a, b = operands(shapes, np.float16)
    results = cupygemm.grouped_matmul(list(map(cp.asarray, a)), list(map(cp.asarray, b)))
    for x, y, result in zip(a, b, results, strict=True):
        np.testing.assert_array_equal(cp.asnumpy(result), x @ y)
    assert launches == ([20] if device.has_kernels else [])


def test_other_layouts_take_another_launch(cp, device, launches):
    a, b = operands([(20, 30, 40)] * 4, np.float16)
    ours = [cp.asarray(x) for x in a]
    ours[1:3] = [cp.asarray(np.asfortranarray(x)) for x in a[1:3]]
    results = cupygemm.grouped_matmul(ours, list(map(cp.asarray, b)))
    for x, y, result in zip(a, b, results, strict=True):
        np.testing.assert_array_equal(cp.asnumpy(result), x @ y)
    assert launches == ([2, 2] if device.has_kernels else [])


def test_alignment_is_that_of_the_least_aligned(cp):
    """One operand starts at an odd element, which vector loads must not be used for."""
    a, b = operands([(20, 31, 40), (30, 31, 50)], np.float16)
    block = cp.zeros((30, 33), np.float16)
    shifted = block[:, 1:32]
    shifted[...] = cp.asarray(a[1])
    results = cupygemm.grouped_matmul([cp.asarray(a[0]), shifted], list(map(cp.asarray, b)))
    for x, y, result in zip(a, b, results, strict=True):
        np.testing.assert_array_equal(cp.asnumpy(result), x @ y)


def test_out_and_dtype(cp):
    a, b = operands([(20, 30, 40), (3, 5, 2)], np.float16)
    wide = [cp.full((x.shape[0], 2 * y.shape[1]), 9, np.float32) for x, y in zip(a, b, strict=True)]
    outs = [w[:, ::2] if index else w[:, : w.shape[1] // 2] for index, w in enumerate(wide)]
    moved = list(map(cp.asarray, a)), list(map(cp.asarray, b))
    results = cupygemm.grouped_matmul(*moved, outs, dtype=np.float32)
    assert all(result is out for result, out in zip(results, outs, strict=True))
    for x, y, out in zip(a, b, outs, strict=True):
        np.testing.assert_array_equal(cp.asnumpy(out), x.astype("f4") @ y.astype("f4"))
    assert (cp.asnumpy(wide[0][:, 40:]) == 9).all()
    assert (cp.asnumpy(wide[1][:, 1::2]) == 9).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_out_that_overlaps_an_operand_of_another_product(cp, dtype):
    """Nothing is written before everything is read, by several launches or no shared one."""
    a, b = operands([(20, 20, 20)] * 3, dtype)
    b[1] = np.asfortranarray(b[1])
    ours_a, ours_b = list(map(cp.asarray, a)), list(map(cp.asarray, b))
    outs = [ours_a[1], ours_b[2], ours_a[0]]
    cupygemm.grouped_matmul(ours_a, ours_b, outs)
    for x, y, out in zip(a, b, outs, strict=True):
        np.testing.assert_array_equal(cp.asnumpy(out), x @ y)


def test_repeated_calls_upload_no_table(cp, device, monkeypatch):
    if not device.runs_cdna:
        pytest.skip("parameters, not tables, hold the addresses")
    a, b = operands([(20, 30, 40), (3, 5, 2)])
    moved = list(map(cp.asarray, a)), list(map(cp.asarray, b))
    outs = [cp.zeros((20, 40), np.float32), cp.zeros((3, 2), np.float32)]
    cupygemm.grouped_matmul(*moved, outs)
    monkeypatch.setattr(cp, "asarray", None)
    cupygemm.grouped_matmul(*moved, outs)
    with cp.cuda.Stream(), pytest.raises(TypeError):  # work of another stream might overtake it
        cupygemm.grouped_matmul(*moved, outs)
    monkeypatch.undo()
    np.testing.assert_array_equal(cp.asnumpy(outs[0]), a[0] @ b[0])


def test_many_tables_are_not_kept(cp, device, monkeypatch):
    if not device.runs_cdna:
        pytest.skip("parameters, not tables, hold the addresses")
    monkeypatch.setattr(grouped_cdna, "MAX_TABLES", 2)
    monkeypatch.setattr(grouped_cdna, "_tables", collections.OrderedDict())
    a, b = operands([(3, 5, 2)])
    for _ in range(5):
        moved = list(map(cp.asarray, a)), list(map(cp.asarray, b))
        (result,) = cupygemm.grouped_matmul(*moved)
        np.testing.assert_array_equal(cp.asnumpy(result), a[0] @ b[0])
    assert len(grouped_cdna._tables) == 2


def test_a_graph_keeps_the_table_that_it_reads(cp, device, monkeypatch):
    if not device.runs_cdna:
        pytest.skip("parameters, not tables, hold the addresses")
    monkeypatch.setattr(grouped_cdna, "MAX_TABLES", 1)
    monkeypatch.setattr(grouped_cdna, "_recorded", {})
    a, b = operands([(20, 30, 40), (3, 5, 2)])
    moved = list(map(cp.asarray, a)), list(map(cp.asarray, b))
    outs = [cp.zeros((20, 40), np.float32), cp.zeros((3, 2), np.float32)]
    stream = cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.get_current_stream().record())
    with stream:
        cupygemm.grouped_matmul(*moved, outs)
        stream.begin_capture()
        cupygemm.grouped_matmul(*moved, outs)
        with pytest.raises(RuntimeError, match=r"a capture cannot upload .* the same out="):
            cupygemm.grouped_matmul(moved[0][:1], moved[1][:1], outs[:1])
        graph = stream.end_capture()
        (other,) = cupygemm.grouped_matmul(moved[0][1:], moved[1][1:])  # uses the table's memory
        cp.full(64, -1, np.int64)  # and the memory that it would free
        for out in outs:
            out[...] = 0
    graph.launch(stream)
    stream.synchronize()
    for x, y, out in zip(a, b, outs, strict=True):
        np.testing.assert_array_equal(cp.asnumpy(out), x @ y)
    np.testing.assert_array_equal(cp.asnumpy(other), a[1] @ b[1])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda f: (([f(2, 3)], []), {}), ValueError, "1 in a, 0 in b"),
        (lambda f: (([f(2, 3)], [f(3, 4)], []), {}), ValueError, "and 0 in out"),
        (
            lambda f: ((iter([f(2, 3)]), [f(3, 4)]), {}),
            TypeError,
            "a is a list_iterator, not a list",
        ),
        (lambda f: (([f(2, 3)], [f(3)]), {}), ValueError, r"b\[0\] has shape \(3,\)"),
        (lambda f: (([f(2, 3)], [f(4, 3)]), {}), ValueError, "product 0: .*inner extents"),
        (lambda f: (([np.ones((2, 3))], [f(3, 4)]), {}), TypeError, r"a\[0\] is a numpy"),
        (lambda f: (([f(2, 3)], [f(3, 4)]), {"dtype": "i4"}), TypeError, "product 0: .*cannot"),
    ],
)
def test_refusals(cp, call, error, text):
    arguments, options = call(lambda *shape: cp.ones(shape, np.float32))
    with pytest.raises(error, match=f"grouped_matmul: .*{text}"):
        cupygemm.grouped_matmul(*arguments, **options)


def test_no_products_are_no_products():
    assert cupygemm.grouped_matmul([], []) == []


@pytest.mark.slow
def test_the_configuration_suits_the_sum_of_the_tiles():
    from cupygemm._backends.cdna.arch import ARCHS

    arch = ARCHS["gfx942"]
    alone = problem_of(64, 64, 512, "f16")
    few, many = (grouped_cdna.choose([alone] * count, arch).config for count in (1, 4000))
    large = replace(alone, m=4096, n=4096)
    assert few.tile_m * few.tile_n <= many.tile_m * many.tile_n
    assert (
        grouped_cdna.choose([large] * 8, arch).config.tile_m
        * grouped_cdna.choose([large] * 8, arch).config.tile_n
        >= 2**14
    )
