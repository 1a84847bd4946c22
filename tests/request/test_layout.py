"""Strides of products: the kernel is told the right thing, and only what must be is copied.

The kernel is `fake_kernel.NumpyKernel`, which reads host memory as its arguments say; no device.
"""

import dataclasses

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupygemm._request.layout import Operand, contiguous, overlaps_itself
from cupygemm._request.placement import place
from cupygemm._request.request import make_request
from cupygemm.testing import integer_operands
from tests.fake_kernel import multiply, operand

F16 = np.dtype(np.float16)
BF16 = np.dtype(ml_dtypes.bfloat16)


def placed_of(*operands):
    return place(make_request(*operands))


def check(x1, x2, out=None, **options):
    """Multiply and compare with NumPy to the bit; return the placement."""
    expected = np.matmul(x1.astype(np.float64), x2.astype(np.float64))
    result, placed = multiply(x1, x2, out, **options)
    if out is None:
        assert result.shape == expected.shape
    else:
        assert result is out
        expected = np.broadcast_to(expected.reshape(expected.shape[-out.ndim :]), out.shape)
    np.testing.assert_array_equal(result.astype(np.float64), expected)
    return placed


def integers(x1_shape, x2_shape, dtype=F16):
    return integer_operands(x1_shape, x2_shape, dtype)


@pytest.mark.parametrize("a_order", "CF")
@pytest.mark.parametrize("b_order", "CF")
@pytest.mark.parametrize("out_order", ["C", "F", None])
def test_majors_are_used_in_place(a_order, b_order, out_order):
    x1, x2 = integers((5, 7), (7, 6))
    x1, x2 = np.asarray(x1, order=a_order), np.asarray(x2, order=b_order)
    out = None if out_order is None else np.zeros((5, 6), np.float32, order=out_order)
    placed = check(x1, x2, out)
    problem = placed.layout.problem
    a_major, b_major = {"C": "k", "F": "m"}[a_order], {"C": "n", "F": "k"}[b_order]
    if out_order == "F":
        assert placed.layout.swapped
        assert (problem.m, problem.n) == (6, 5)
        assert problem.a_major == {"n": "m", "k": "k"}[b_major]
        assert problem.b_major == {"m": "n", "k": "k"}[a_major]
    else:
        assert (problem.a_major, problem.b_major) == (a_major, b_major)
    assert placed.notes == ()


def test_submatrix_views_are_used_in_place():
    x1, x2 = integers((16, 32), (32, 24))
    out = np.zeros((20, 40), F16)
    placed = check(x1[2:9, 8:24], x2[:16, 3:8], out[1:8, 5:10])
    assert placed.notes == ()
    assert (placed.layout.lda, placed.layout.ldb, placed.layout.ldc) == (32, 24, 40)
    out[1:8, 5:10] = 0
    assert not out.any()


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (lambda x: x[::-1], "a negative stride"),
        (lambda x: x[:, ::-1], "a negative stride"),
        (lambda x: x[:, ::2], "no axis of adjacent elements"),
        (lambda x: x.T[::2, ::2], "no axis of adjacent elements"),
        (lambda x: np.broadcast_to(x[0], (8, 8)), "rows that overlap"),
        (
            lambda x: np.lib.stride_tricks.as_strided(x, (4, 4), (4, 2)),
            "rows that overlap",
        ),
        (lambda x: x.astype(np.int8), "converted from int8 to float16"),
    ],
)
@pytest.mark.parametrize("which", ["x1", "x2"])
def test_what_is_copied_and_why(view, reason, which):
    x = view(integers((8, 8), (8, 8))[0])
    if which == "x1":
        placed = check(x, integers((1, 1), (x.shape[1], 3))[1])
        assert placed.x2_copy is None
    else:
        placed = check(integers((3, x.shape[0]), (1, 1))[0], x)
        assert placed.x1_copy is None
    (note,) = placed.notes
    assert note.startswith(f"{which} is copied: ")
    assert reason in note


def test_strides_of_fractions_of_an_element_are_copied():
    memory = np.zeros(64, np.dtype([("x", F16), ("pad", np.uint8)]))
    memory["x"] = np.arange(64) % 5
    x1 = memory["x"].reshape(8, 8)
    placed = check(x1, integers((1, 8), (8, 3))[1])
    assert "are not whole elements" in placed.notes[0]


def test_strided_vectors_need_no_copy():
    x1, x2 = integers((9,), (18, 4))
    assert check(x1, x2[::2]).x1_copy is None
    strided = integers((18,), (1, 1))[0][::2]
    placed = check(strided, x2[:9])
    assert placed.notes == ()
    assert placed.layout.problem.a_major == "m"
    assert check(x2[:9].T, strided).notes == ()


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (1, 5, 7), (5, 1, 7), (5, 7, 1), (1, 1, 7), (1, 7, 1), (7, 1, 1)]
)
@pytest.mark.parametrize("a_order", "CF")
@pytest.mark.parametrize("b_order", "CF")
def test_extents_of_one(m, n, k, a_order, b_order):
    x1, x2 = integers((m, k), (k, n))
    x1, x2 = np.asarray(x1, order=a_order), np.asarray(x2, order=b_order)
    assert check(x1, x2).notes == ()


def test_the_stride_of_an_axis_of_extent_one_means_nothing():
    x1, x2 = integers((1, 6), (6, 1))
    x1 = np.lib.stride_tricks.as_strided(x1, (1, 6), (-2, 2))
    x2 = np.lib.stride_tricks.as_strided(x2, (6, 1), (2, 1))
    placed = check(x1, x2)
    assert placed.notes == ()
    assert placed.layout.lda == 8  # a row of its own: nothing keeps vector loads from it
    assert placed.layout.problem.a_align in (2, 4, 8, 16)


def test_column_result_is_multiplied_as_a_row():
    problem = check(*integers((9, 4), (4, 1))).layout.problem
    assert (problem.m, problem.n) == (1, 9)


@pytest.mark.parametrize(
    ("x1", "x2", "batch"),
    [
        ((2, 3, 4, 5), (2, 3, 5, 6), (6,)),
        ((2, 3, 4, 5), (5, 6), (6,)),
        ((4, 5), (2, 3, 5, 6), (6,)),
        ((2, 3, 4, 5), (3, 5, 6), (2, 3)),
        ((2, 1, 4, 5), (3, 5, 6), (2, 3)),
        ((1, 1, 4, 5), (1, 5, 6), ()),
        ((2, 1, 3, 4, 5), (3, 1, 5, 6), (2, 3, 3)),
        ((7, 2, 3, 4, 5), (2, 3, 5, 6), (7, 6)),
        ((3, 4, 5), (2, 3, 5, 1), (2, 3)),
    ],
)
def test_batch_axes_are_merged(x1, x2, batch):
    placed = check(*integers(x1, x2))
    assert placed.notes == ()
    assert placed.layout.problem.batch == batch
    assert len(placed.layout.launches) == 1


def test_transposed_batches_are_used_in_place():
    x1, x2 = integers((4, 3, 5, 6), (4, 3, 6, 7))
    x1, x2 = x1.transpose(1, 0, 2, 3), x2.transpose(1, 0, 2, 3)
    assert check(x1, x2).layout.problem.batch == (3, 4)
    placed = check(x1, x2, np.zeros((4, 3, 5, 7), F16).transpose(1, 0, 2, 3))
    assert placed.layout.problem.batch == (12,)


def test_reversed_batches_are_used_in_place():
    x1, x2 = integers((4, 5, 6), (4, 6, 7))
    out = np.zeros((4, 5, 7), F16)
    placed = check(x1[::-1], x2[::2].repeat(2, 0), out[::-1])
    assert placed.notes == ()
    assert placed.layout.a_stride[2] == -30


def test_broadcast_views_are_not_materialised():
    x1, x2 = integers((5, 6), (6, 7))
    stacked = np.broadcast_to(x1[:, ::-1], (1000, 5, 6))
    placed = check(stacked, x2)
    assert placed.x1_copy.index == (slice(0, 1), slice(None), slice(None))
    assert placed.layout.a_stride == (0, 0, 0)


def test_many_batch_axes_become_several_launches():
    x1, x2 = integers((2, 1, 3, 1, 4, 2, 3), (5, 1, 2, 1, 3, 2))
    x1 = x1[..., None, :, :]
    placed = check(x1[:, :, :, :, :, 0], x2)
    assert len(placed.layout.problem.batch) == 3
    assert len(placed.layout.launches) == 2 * 2
    assert placed.notes == ()


@pytest.mark.parametrize("shape", [(70000,), (3, 40000), (40000, 3), (300, 2, 300)])
def test_more_matrices_than_an_axis_of_a_grid_holds(shape):
    x1, x2 = integers((*shape, 1, 1), (*shape[1:], 1, 2))
    placed = check(x1, x2)
    assert len(placed.layout.launches) == 1


def test_out_without_a_leading_axis_of_one():
    x1, x2 = integers((1, 4, 5), (5, 6))
    assert check(x1, x2, np.zeros((4, 6), F16)).notes == ()
    x1, x2 = integers((1, 1, 4, 5), (3, 5, 6))
    out = np.zeros((3, 4, 6), F16)
    result, _ = multiply(x1, x2, out)
    np.testing.assert_array_equal(result, np.matmul(x1, x2)[0])


def test_out_with_more_leading_axes():
    x1, x2 = integers((4, 5), (5, 6))
    check(x1, x2, np.zeros((3, 4, 6), F16))


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (lambda x: x[:, ::2], "no axis of adjacent elements"),
        (lambda x: x[:, :4][:, ::-1], "a negative stride"),
        (lambda x: x[::-1, :4], "a negative stride"),
    ],
)
def test_out_that_needs_a_temporary(view, reason):
    x1, x2 = integers((8, 5), (5, 4))
    memory = np.zeros((8, 8), F16)
    placed = check(x1, x2, view(memory))
    assert reason in placed.temporary
    assert placed.notes == (
        f"the product is written to a temporary, then to out: {placed.temporary}",
    )
    assert np.count_nonzero(memory) <= 32


def test_out_of_a_wider_type_gets_one_rounding():
    x1, x2 = integers((8, 5), (5, 4), BF16)
    assert check(x1, x2, np.zeros((8, 4), np.float32)).notes == ()
    placed = check(x1, x2, np.zeros((8, 4), np.float64))
    assert placed.layout.problem.out_dtype == "f32"
    assert placed.temporary.startswith("the product is rounded to float32 first")


def test_rows_beyond_the_reach_of_a_tile_are_copied():
    """Offsets within a tile have 31 bits; a copy helps only where it brings the rows nearer."""
    near, far = 1 << 20, 1 << 27  # bytes between rows

    def copies(row_bytes, columns=16):
        far_apart = Operand((20, columns), (row_bytes, 2), F16)
        return placed_of(far_apart, contiguous((columns, 24), F16)).notes

    assert copies(near) == ()
    (note,) = copies(far)
    assert note.startswith("x1 is copied: its matrices have rows too far apart")
    assert copies(far, far // 2) == ()
    assert copies(far, far // 8) != ()
    transposed = Operand((16, 20), (2, far), F16)
    assert placed_of(contiguous((24, 16), F16), transposed).notes[0].startswith("x2 is copied")
    out = Operand((20, 24), (far, 2), F16)
    placed = placed_of(contiguous((20, 16), F16), contiguous((16, 24), F16), out)
    assert "rows too far apart" in placed.temporary


def test_alignment_is_what_divides_everything():
    memory = np.zeros(4096, np.uint8)
    start = -memory.__array_interface__["data"][0] % 16
    base = memory[start:].view(F16)[:1024].reshape(32, 32)
    x2 = np.zeros((8, 8), F16)

    def align(view):
        return placed_of(operand(view), operand(x2)).layout.problem.a_align

    assert align(base[:, :8]) == 16
    assert align(base[:, 4:12]) == 8
    assert align(base[:, 1:9]) == 2
    assert align(base.reshape(-1)[:900].reshape(30, 30)[:, :8]) == 4  # the pitch of 60 bytes
    assert align(base.reshape(-1)[:900].reshape(30, 30)[:1, :8]) == 16  # no second row, no pitch
    assert align(base.reshape(4, 8, 32)[:, :, :8]) == 16
    stacked = np.lib.stride_tricks.as_strided(base, (2, 2, 8), (20, 64, 2))
    assert align(stacked) == 4


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((3, 4), (8, 2), False),
        ((3, 4), (2, 6), False),
        ((3, 4), (6, 2), True),
        ((3, 4), (0, 2), True),
        ((1, 4), (0, 2), False),
        ((0, 4), (0, 2), False),
        ((3, 4), (-8, -2), False),
        ((3, 4), (1, 3), True),
        ((3, 2), (4, 6), False),  # 0 4 8, 6 10 14: interleaved, and apart
        ((4, 2), (4, 8), True),
        ((2, 2, 2), (2, 4, 6), True),
        ((), (), False),
    ],
)
def test_elements_that_share_memory(shape, strides, expected):
    assert overlaps_itself(Operand(shape, strides, F16)) == expected


def test_out_that_overlaps_itself_is_refused():
    x1, x2 = integers((3, 4), (4, 5))
    out = np.lib.stride_tricks.as_strided(np.zeros(5, F16), (3, 5), (0, 2))
    with pytest.raises(ValueError, match=r"out, shape \(3, 5\) and strides \(0, 2\).* an address"):
        multiply(x1, x2, out)


@pytest.mark.parametrize(
    ("x1", "x2", "work"),
    [
        ((0, 3), (3, 4), "empty"),
        ((0, 3), (3, 0), "empty"),
        ((0, 2, 3), (3, 4), "empty"),
        ((2, 0), (0, 4), "zeros"),
        ((0,), (0,), "zeros"),
        ((3, 2, 0), (0, 4), "zeros"),
        ((2, 3), (3, 4), "product"),
    ],
)
def test_products_without_work(x1, x2, work):
    assert make_request(contiguous(x1, F16), contiguous(x2, F16)).work == work


def test_rows_of_bytes_start_at_dwords():
    odd, even = (contiguous((6, n), np.dtype("i1")) for n in (6, 8))
    placed = placed_of(odd, even)
    assert (placed.x1_copy is None, placed.x2_copy is None) == (False, True)
    assert (placed.layout.lda, placed.layout.problem.a_align) == (8, 8)
    assert place(make_request(odd, even), row_bytes=1).notes == ()


def test_records_are_plain_values():
    x = contiguous((4, 4), F16)
    assert hash(make_request(x, x)) == hash(make_request(x, dataclasses.replace(x)))


@st.composite
def views(draw, batch, core):
    """Draw memory and a function that takes from it a view of shape batch + core."""
    shape = (*batch, *core)
    steps = [draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in shape]
    offsets = [draw(st.integers(0, 2)) for _ in shape]
    order = draw(st.permutations(range(len(shape))))
    extents = [n * abs(s) + o for n, s, o in zip(shape, steps, offsets, strict=True)]

    def view(memory):
        whole = memory.transpose(np.argsort(order))
        for axis, (step, offset) in enumerate(zip(steps, offsets, strict=True)):
            whole = np.moveaxis(np.moveaxis(whole, axis, 0)[offset:][::step], 0, axis)
        return whole

    memory = np.empty([extents[axis] for axis in order], F16)
    memory[...] = (np.arange(memory.size) % 7 - 3).reshape(memory.shape)
    return memory, view


@st.composite
def products(draw):
    extents = st.sampled_from([1, 2, 3, 5, 8])
    m, n, k = draw(extents), draw(extents), draw(extents)
    batch = draw(st.lists(st.sampled_from([1, 2, 3]), max_size=4))
    operands = []
    for core in ((m, k), (k, n)):
        leading = batch[draw(st.integers(0, len(batch))) :]
        leading = [draw(st.sampled_from([1, extent])) for extent in leading]
        memory, view = draw(views(leading, core))
        operands.append(view(memory))
    return *operands, *draw(views(batch, (m, n)))


@pytest.mark.slow
@settings(max_examples=400)
@given(products())
def test_any_views(product):
    x1, x2, memory, view = product
    written = np.zeros(memory.shape, bool)
    view(written)[...] = True
    before = memory.copy()
    check(x1, x2, view(memory))
    np.testing.assert_array_equal(memory[~written], before[~written])
