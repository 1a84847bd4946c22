"""A failed comparison says which other product of the operands the wrong elements are from."""

import ml_dtypes
import numpy as np
import pytest

from cupygemm import testing
from tests.tables import swept

M, K, N = 48, 64, 80
TYPES = ["f2", ml_dtypes.bfloat16, "f4", "f8", "c8", "i1"]


def message(actual, x1, x2, *, exact=True):
    check = testing.assert_gemm_exact if exact else testing.assert_gemm_close
    with pytest.raises(AssertionError) as caught:
        check(actual, x1, x2)
    return str(caught.value)


def operands(dtype, *, exact, shapes=((M, K), (K, N))):
    make = testing.integer_operands if exact else testing.random_operands
    return make(*shapes, dtype)


@pytest.fixture(
    params=[
        ("f4", True),
        (ml_dtypes.bfloat16, False),
        *swept(
            *((dtype, True) for dtype in TYPES if dtype != "f4"),
            *((dtype, False) for dtype in ("f2", "f4", "f8", "c8")),
        ),
    ],
    ids=lambda each: f"{np.dtype(each[0]).name}-{'exact' if each[1] else 'close'}",
)
def case(request):
    """The operands, the right product, and a function from another product to the message."""
    dtype, exact = request.param
    x1, x2 = operands(dtype, exact=exact)
    wide = {"f2": "f4", ml_dtypes.bfloat16: "f4", "i1": "i4"}.get(dtype, dtype)
    result = np.dtype(wide if exact else dtype)
    right = testing.reference_matmul(x1, x2)
    return x1, x2, right, lambda other: message(other.astype(result), x1, x2, exact=exact)


@pytest.mark.slow
def test_an_operand_in_the_other_order_of_memory(case):
    x1, x2, _, said = case
    other1, other2 = x1.reshape(K, M).T, x2.reshape(N, K).T
    multiply = testing.reference_matmul
    order = "operand read in the other order of memory"
    assert f"first {order}" in said(multiply(other1, x2))
    assert f"second {order}" in said(multiply(x1, other2))
    assert "both operands read in the other order" in said(multiply(other1, other2))


def with_ld(matrix, ld):
    """Return the matrix that a kernel reads with another leading dimension, inside it."""
    flat = matrix.ravel()
    rows = np.arange(matrix.shape[0])[:, None]
    places = rows * ld + np.arange(matrix.shape[1])
    return flat[np.minimum(places, flat.size - 1)]


@pytest.mark.slow
def test_a_wrong_leading_dimension(case):
    x1, x2, _, said = case
    multiply = testing.reference_matmul
    text = said(multiply(x1, with_ld(x2, K)))
    assert "second operand read with rows 64 elements apart in memory, not 80" in text
    text = said(multiply(with_ld(x1, M), x2))
    assert "first operand read with rows 48 elements apart in memory, not 64" in text
    text = said(multiply(x1, with_ld(x2, N - 8)))
    assert "second operand read with rows 72 elements apart in memory, not 80" in text


def test_a_product_stored_with_a_wrong_leading_dimension(case):
    _, _, right, said = case
    stored = np.zeros(right.size, right.dtype)
    for row, values in enumerate(right):
        stored[row * K : row * K + N] = values
    text = said(stored.reshape(right.shape))
    assert "product is stored with rows 64 elements apart in memory, not 80" in text


def test_another_order_of_k(case):
    x1, x2, _, said = case
    place = np.arange(K)
    order = place // 16 * 16 + place % 4 * 4 + place % 16 // 4
    text = said(testing.reference_matmul(x1[:, order], x2))
    assert "along k, element 4*j + i of the first meets 4*i + j of the second, in each 16" in text
    text = said(testing.reference_matmul(x1[:, place ^ 1], x2))
    assert "along k, element i of the first meets i ^ 1 of the second" in text


@pytest.mark.slow
def test_rows_and_columns_in_another_order(case):
    _, _, right, said = case
    place = np.arange(M)
    text = said(right[place // 16 * 16 + place % 8 * 2 + place % 16 // 8])
    assert "rows are in another order, in each 16: row 8*i + j holds what belongs to 2*j" in text
    place = np.arange(N)
    text = said(right[:, place ^ 3])
    assert "columns are in another order, in each 4: column 0 holds what belongs to 3, 1" in text


@pytest.mark.slow
def test_parts_of_k(case):
    x1, x2, right, said = case
    multiply = testing.reference_matmul
    assert "k from 48 to 63, of 64, are missing" in said(multiply(x1[:, :48], x2[:48]))
    wrong = right.copy()
    wrong[:32] = multiply(x1[:32, 16:], x2[16:])
    assert "k from 0 to 15, of 64, are missing" in said(wrong)
    wrong = right.copy()
    wrong[16:48, :32] += multiply(x1[16:48, 32:40], x2[32:40, :32])
    assert "k from 32 to 39, of 64, are added twice" in said(wrong)


@pytest.mark.slow
def test_factors(case):
    _, _, right, said = case
    assert "the wrong elements are 2 times what they should be" in said(2 * right)
    assert "the wrong elements are -1 times what they should be" in said(-right)
    half = right.copy()
    half[:, 32:48] *= 4
    assert "the wrong elements are 4 times what they should be" in said(half)


@pytest.mark.slow
def test_an_offset(case):
    _, _, right, said = case
    assert "the wrong elements are 7 more than they should be" in said(right + 7)
    assert "the wrong elements are 3 less than they should be" in said(right - 3)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", ["f2", ml_dtypes.bfloat16])
def test_sums_in_the_type_of_the_operands(dtype, fused):
    x1, x2 = operands(dtype, exact=False, shapes=((32, 512), (512, 32)))
    sums = np.zeros((32, 32), dtype)
    for a, b in zip(x1.T, x2, strict=True):
        term = np.outer(a.astype("f8"), b.astype("f8"))
        sums = (sums.astype("f8") + (term if fused else term.astype(dtype))).astype(dtype)
    text = message(sums, x1, x2, exact=False)
    assert f"are sums that were rounded to {np.dtype(dtype).name} at each step" in text


def test_truncation():
    x1, x2 = operands(ml_dtypes.bfloat16, exact=False)
    right = testing.reference_matmul(x1, x2).astype("f4")
    cut = (right.view("u4") >> 16).astype("u2").view(ml_dtypes.bfloat16)
    assert "are truncated to bfloat16, not rounded" in message(cut, x1, x2, exact=False)
    away = ((right.view("u4") >> 16) + 1).astype("u2").view(ml_dtypes.bfloat16)
    assert "truncated" not in message(away, x1, x2, exact=False)


def test_narrow_operands():
    x1, x2 = operands("f4", exact=False)
    for dtype in ("f2", ml_dtypes.bfloat16):
        wrong = testing.reference_matmul(*(x.astype(dtype).astype("f4") for x in (x1, x2)))
        text = message(wrong.astype("f4"), x1, x2, exact=False)
        assert f"with the operands rounded to {np.dtype(dtype).name}" in text
    cut = ((x.view("u4") & 0xFFFF0000).view("f4") for x in (x1, x2))
    text = message(testing.reference_matmul(*cut).astype("f4"), x1, x2, exact=False)
    assert "with the operands truncated to bfloat16" in text


@pytest.mark.slow
def test_no_cause_is_named_without_one(case):
    _, _, right, said = case
    noise = np.random.default_rng(1).integers(-30, 30, right.shape)
    several = np.where(np.arange(N) % 2, 2 * right, -right)
    offset = np.where(noise > 20, right + 9, right)
    for wrong in (right + noise, several, offset):
        text = said(wrong)
        assert "another product" not in text
        assert "products of k" not in text
        assert "times what" not in text
        assert "another order" not in text
        assert ("9 more than they should be" in text) == (wrong is offset)
        assert "rounded" not in text


@pytest.mark.parametrize("exact", [True, False])
def test_conjugates(exact):
    x1, x2 = operands("c8", exact=exact)
    multiply = testing.reference_matmul
    for text, other in (
        ("first operand conjugated", multiply(x1.conj(), x2)),
        ("second operand conjugated", multiply(x1, x2.conj())),
        ("both operands conjugated", multiply(x1, x2).conj()),
    ):
        assert text in message(other.astype("c8"), x1, x2, exact=exact)


def test_an_epilogue_without_a_step():
    x1, x2 = operands("f2", exact=False)
    options = {"alpha": 2.0, "bias": np.linspace(1, 2, N), "activation": "relu"}
    for name in options:
        rest = {other: value for other, value in options.items() if other != name}
        wrong = testing.reference_matmul(x1, x2, **rest).astype("f2")
        with pytest.raises(AssertionError, match=f"right for an epilogue without {name}="):
            testing.assert_gemm_close(wrong, x1, x2, **options)
    with pytest.raises(AssertionError) as caught:
        testing.assert_gemm_close(wrong + 1, x1, x2, **options)
    assert "epilogue" not in str(caught.value)


def test_long_k_and_equal_products():
    x1, x2 = operands("f2", exact=False, shapes=((64, 8192), (8192, 64)))
    wrong = testing.reference_matmul(x1[:, :7168], x2[:7168]).astype("f2")
    assert "k from 7168 to 8191, of 8192, are missing" in message(wrong, x1, x2, exact=False)
    x1, x2 = np.ones((64, 128), "f2"), np.ones((128, 64), "f2")
    text = message(x1[:, 32:] @ x2[32:], x1, x2)
    assert "as many as 32 of the 128 products along k are missing" in text


def test_batches_vectors_and_operands_in_columns():
    x1, x2 = operands("f4", exact=True, shapes=((3, 1, 32, 64), (2, 64, 48)))
    right = testing.reference_matmul(x1, x2)
    wrong = right.copy()
    wrong[1, 1] = testing.reference_matmul(x1[1, 0, :, :48], x2[1, :48])
    assert "k from 48 to 63, of 64, are missing" in message(wrong.astype("f4"), x1, x2)

    x1, x2 = operands("f4", exact=True, shapes=((32, 64), (64,)))
    wrong = testing.reference_matmul(x1[:, 8:], x2[8:])
    assert "k from 0 to 7, of 64, are missing" in message(wrong.astype("f4"), x1, x2)

    x1, x2 = operands("f4", exact=True)
    columns = np.asfortranarray(x2)
    wrong = testing.reference_matmul(x1, columns.T.reshape(K, N))
    assert "second operand read in the other order" in message(wrong.astype("f4"), x1, columns)


def test_few_wrong_elements_say_nothing():
    x1, x2 = operands("f4", exact=True)
    wrong = testing.reference_matmul(x1, x2)
    wrong[0, :6] *= 2
    assert "times what" not in message(wrong.astype("f4"), x1, x2)
