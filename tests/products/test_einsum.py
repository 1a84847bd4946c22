"""`einsum` on the device against NumPy's, to the bit; its paths, views and refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cupygemm
from cupygemm._products.paths import plan_path
from cupygemm._products.subscripts import parse

RNG = np.random.default_rng(0)
SIZES = dict(zip("abcdefghijkl", (3, 4, 5, 2, 6, 3, 2, 4, 5, 3, 4, 2), strict=True))


def operands_of(subscripts, dtype=np.float32):
    """Return small integers for the terms of subscripts."""
    terms = subscripts.replace(" ", "").partition("->")[0].split(",")
    low = 0 if np.dtype(dtype).kind in "bu" else -2
    return [
        RNG.integers(low, 3, [SIZES[letter] for letter in term.replace("...", "ed")]).astype(dtype)
        for term in terms
    ]


def check(cp, subscripts, *operands, **options):
    """Compare with NumPy on the same values, and return the result."""
    expected = np.asarray(np.einsum(subscripts, *operands, **options))
    result = cupygemm.einsum(subscripts, *(cp.asarray(x) for x in operands), **options)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(cp.asnumpy(result), expected)
    return result


SUBSCRIPTS = [
    "ij,jk",
    "ij,jk->ki",
    "ba,cb",
    "ij,ij",
    "ij,ij->",
    "ij,ij->i",
    "ij,ij->ij",
    "i,j",
    "i,i",
    ",ij",
    "ii",
    "ii->i",
    "iij->j",
    "ij->ji",
    "ij->",
    "ij->j",
    "abcd->dbca",
    "abcd->bd",
    "abij,abjk->abik",
    "abi,cbi->ac",
    "abcd,cbef->adef",
    "abc,cbd->ad",
    "aab,bcc->ac",
    "aab,bcc->",
    "ea,fb,abcd,gc,hd->efgh",
    "ab,bc,cd,de",
    "a,b,c->cab",
    "ab,ab,ab->a",
    "ab,cd,ef->",
    "a,ab,abc->abc",
    "...i,...i",
    "i...,i...->...",
    "...ij,jk->...ik",
    "i...j,j...->...i",
    "...,...",
    "...a->a...",
    " i j , j k -> i k ",
]


@pytest.mark.parametrize("subscripts", SUBSCRIPTS)
def test_einsum(cp, subscripts):
    check(cp, subscripts, *operands_of(subscripts))


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        (np.int8, {}),
        (np.bool_, {}),
        (np.int8, {"dtype": np.int32}),
        (np.float16, {"dtype": np.float32}),
        (np.float64, {"dtype": np.float32, "casting": "same_kind"}),
    ],
)
def test_types(cp, dtype, options):
    for subscripts in ("abc,cbd->ad", "ab->b") if dtype == np.int8 else ("ab,bc,cd->da",):
        check(cp, subscripts, *operands_of(subscripts, dtype), **options)


def test_a_square_result_that_lies_in_the_other_order(cp):
    a, b = RNG.integers(-3, 4, (5, 4)), RNG.integers(-3, 4, (4, 3, 5, 3))
    result = check(cp, "dc,cfdb->bf", a.astype(np.float32), b.astype(np.float32))
    assert result.flags.f_contiguous  # the order of b's axes


def test_mixed_types_promote_as_numpy(cp):
    a, b, c = operands_of("ab,bc,cd")
    check(cp, "ab,bc,cd", a.astype(np.int8), b.astype(np.int8), c.astype(np.float64))
    check(cp, "ab,bc", a.astype(np.int16), b)
    result = cupygemm.einsum(",ab", 2, cp.asarray(a))
    np.testing.assert_array_equal(cp.asnumpy(result), np.einsum(",ab", 2, a))


def test_extents_of_one_are_broadcast(cp):
    a, b = RNG.integers(-3, 4, (3, 1)).astype("f4"), RNG.integers(-3, 4, (5, 4)).astype("f4")
    for subscripts in ("ij,jk", "ij,jk->ik", "ij,jk->ijk", "ij,jk->j", "ij,jk->"):
        check(cp, subscripts, a, b)
    check(cp, "...j,...j->...", a, b[:1, :1])


def test_empty_operands(cp):
    a, b = np.ones((3, 0), np.float32), np.ones((0, 4), np.float32)
    for subscripts in ("ij,jk", "ij,jk->", "ij,jk->j"):
        check(cp, subscripts, a, b)
    check(cp, "ij->i", a)


def test_interleaved_form(cp):
    a, b = operands_of("ij,jk")
    x, y = cp.asarray(a), cp.asarray(b)
    for labels in (((0, 1), (1, 2)), ((7, 90), (90, 2), (2, 7)), ((..., 1), [1, 2], [2, ...])):
        interleaved = [x, labels[0], y, labels[1], *labels[2:]]
        if 90 in labels[0]:  # NumPy has letters for 52 labels
            expected = (a @ b).T
        else:
            expected = np.einsum(a, labels[0], b, labels[1], *labels[2:])
        np.testing.assert_array_equal(cp.asnumpy(cupygemm.einsum(*interleaved)), expected)


def test_a_lone_operand_without_a_sum_is_a_view(cp):
    x = cp.asarray(operands_of("aab")[0])
    for subscripts, shape in (("aab->ab", (3, 4)), ("...b->b...", (4, 3, 3)), ("aab->ba", (4, 3))):
        view = cupygemm.einsum(subscripts, x)
        assert view.shape == shape
        assert view.data.ptr == x.data.ptr
        assert view.base is x
        assert np.array_equal(cp.asnumpy(view), np.einsum(subscripts, cp.asnumpy(x)))
    (y,) = operands_of("abab")
    twice = cupygemm.einsum("abab->ba", cp.asarray(y))
    np.testing.assert_array_equal(cp.asnumpy(twice), np.einsum("abab->ba", y))
    as_it_is = cupygemm.einsum("aab->ab", x, dtype=np.float64, order="F")
    assert (as_it_is.dtype, as_it_is.strides) == (
        x.dtype,
        (x.strides[0] + x.strides[1], x.itemsize),
    )
    diagonal = cupygemm.einsum("aab->ab", x)
    diagonal[...] = 7
    assert (cp.asnumpy(x)[np.arange(3), np.arange(3)] == 7).all()


@pytest.mark.parametrize("shape", [(0, 0, 0, 0), (0, 2, 0, 2), (2, 0, 2, 0)])
def test_diagonals_of_an_empty_operand_are_views(cp, shape):
    x = cp.zeros(shape, np.float32)
    view = cupygemm.einsum("ijij->ij", x)
    assert view.shape == shape[:2]
    assert view.base is x
    assert cupygemm.einsum("ijij->ji", x[...]).base is x


@pytest.mark.parametrize("order", ["C", "F", "A", "K"])
def test_order_of_the_result(cp, order):
    a, b = operands_of("abi,bic")
    for x, y in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
        result = cupygemm.einsum("abi,bic->ac", *map(cp.asarray, (x, y)), order=order)
        expected = np.einsum("abi,bic->ac", x, y, order=order)
        np.testing.assert_array_equal(cp.asnumpy(result), expected)
        if order != "K":
            assert result.flags.f_contiguous == expected.flags.f_contiguous
    for order_of_one, flag in (("C", "c_contiguous"), ("F", "f_contiguous")):
        lone = cupygemm.einsum("abi->ib", cp.asarray(a), order=order_of_one)
        assert getattr(lone.flags, flag)
        np.testing.assert_array_equal(cp.asnumpy(lone), np.einsum("abi->ib", a))


def test_out(cp):
    a, b = operands_of("ab,bc")
    memory = cp.full((3, 10), 9, np.float64)
    out = memory[:, ::2]
    assert cupygemm.einsum("ab,bc->ac", cp.asarray(a), cp.asarray(b), out=out) is out
    np.testing.assert_array_equal(cp.asnumpy(out), a @ b)
    assert (cp.asnumpy(memory[:, 1::2]) == 9).all()


def test_out_that_is_an_operand(cp):
    a = RNG.integers(-3, 4, (5, 5)).astype(np.float32)
    for subscripts, operands in (("ij,jk", 2), ("ij->ji", 1), ("ij,ji->ij", 2), ("ij,jk,kl", 3)):
        x = cp.asarray(a)
        cupygemm.einsum(subscripts, *[x] * operands, out=x)
        np.testing.assert_array_equal(cp.asnumpy(x), np.einsum(subscripts, *[a] * operands))


@pytest.mark.parametrize(
    "optimize",
    [
        True,
        False,
        None,
        "greedy",
        "optimal",
        "dp",
        ("greedy", 100),
        ["einsum_path", (0, 1), (0, 1), (0, 1)],
        [(0, 1, 2), (0, 1)],
        ["einsum_path", (0, 1, 2, 3)],
    ],
)
def test_any_path_gives_the_result(cp, optimize):
    operands = operands_of("ab,bc,cd,de")
    result = cupygemm.einsum("ab,bc,cd,de", *map(cp.asarray, operands), optimize=optimize)
    np.testing.assert_array_equal(cp.asnumpy(result), np.einsum("ab,bc,cd,de", *operands))


def test_the_path_avoids_the_large_intermediate(cp):
    """From left to right, ab,bc would have 64 times as many multiplications."""
    shapes = [(64, 1), (1, 64), (64, 1)]
    arrays = [cp.ones(shape, np.float32) for shape in shapes]
    path, account = cupygemm.einsum_path("ab,bc,cd", *arrays)
    assert path == ["einsum_path", (1, 2), (0, 1)]
    assert "64 multiplications" in account
    assert cupygemm.einsum_path("ab,bc,cd", *arrays, optimize=False)[0][1] == (0, 1)
    result = cupygemm.einsum("ab,bc,cd", *arrays, optimize=path)
    assert (cp.asnumpy(result) == 64).all()


def test_products_are_ours_and_copy_nothing(cp, monkeypatch):
    """A contraction whose axes nest is one product of views of the operands."""
    from cupygemm._products import pairs

    calls = []

    def matmul(x1, x2, out, **options):
        calls.append((x1, x2))
        return cupygemm.matmul(x1, x2, out, **options)

    monkeypatch.setattr(pairs, "matmul", matmul)
    a, b = cp.ones((2, 3, 40), np.float32), cp.ones((40, 5, 7), np.float32)
    cupygemm.einsum("abk,kcd->abcd", a, b)
    ((x1, x2),) = calls
    assert (x1.data.ptr, x2.data.ptr) == (a.data.ptr, b.data.ptr)
    assert (x1.shape, x2.shape) == ((6, 40), (40, 35))


@pytest.mark.parametrize(
    ("subscripts", "shapes", "options", "error", "text"),
    [
        ("ij,jk", [(2, 3)], {}, ValueError, "is 2, that of operands 1"),
        ("ij", [(2, 3), (3, 4)], {}, ValueError, "is 1, that of operands 2"),
        ("ij,jk", [(2, 3), (4, 5)], {}, ValueError, "'j' has extent 3 in operand 0 and 4 in"),
        ("ii", [(2, 3)], {}, ValueError, "'i' on axes of extents 2 and 3"),
        ("ijk", [(2, 3)], {}, ValueError, "operand 0 has 2 axes, .* 'ijk' name 3"),
        ("i", [(2, 3)], {}, ValueError, "operand 0 has 2 axes, .* 'i' name 1"),
        ("ij->ik", [(2, 3)], {}, ValueError, "'k' is in no operand"),
        ("ij->ii", [(2, 3)], {}, ValueError, "'i' more than once"),
        ("i%", [(2, 3)], {}, ValueError, "'%' in 'i%'"),
        ("ij->i,j", [(2, 3)], {}, ValueError, "has a comma"),
        ("i...j...", [(2, 3)], {}, ValueError, r"'\.' in"),
        ("...ij->ij", [(2, 2, 3)], {}, ValueError, r"1 axes in '\.\.\.', which the result"),
        ("ij", [(2, 3)], {"order": "Z"}, ValueError, "order must be .* 'Z'"),
        ("ij", [(2, 3)], {"casting": "no way"}, ValueError, "casting must be one of"),
        ("ij,jk,kl", [(2, 2)] * 3, {"optimize": "quickly"}, ValueError, "optimize='quickly'"),
        ("ij,jk,kl", [(2, 2)] * 3, {"optimize": [(0, 1)]}, ValueError, "leaves 2 of 3 operands"),
        ("ij,jk,kl", [(2, 2)] * 3, {"optimize": [(0, 3)]}, ValueError, "out of range; 3 operands"),
        ("ij,jk,kl", [(2, 2)] * 3, {"optimize": [(0, 0)]}, ValueError, "different operands"),
        ("ij->i", [(2, 3)], {"dtype": "i4"}, TypeError, "cannot cast operand 0 from .*float32"),
    ],
)
def test_refusals(cp, subscripts, shapes, options, error, text):
    arrays = [cp.ones(shape, np.float32) for shape in shapes]
    with pytest.raises(error, match=f"einsum: .*{text}"):
        cupygemm.einsum(subscripts, *arrays, **options)


def test_refusals_of_calls(cp):
    a, b = cp.ones((2, 3), np.float32), cp.ones((3, 4), np.float32)
    for operands, error, text in (
        ((), ValueError, "no arguments"),
        (("ij",), ValueError, "no arrays"),
        ((a,), ValueError, "needs a list of labels"),
        ((a, a), TypeError, r"a term is a cupy\.ndarray"),
        ((a, [..., 0], [..., ..., 0]), ValueError, r"the result has '\.\.\.' 2 times"),
        (
            ("ij,jk", a, np.ones((3, 4))),
            TypeError,
            r"operand 1 is a numpy\.ndarray, .* cupy\.asarray",
        ),
    ):
        with pytest.raises(error, match=f"einsum: .*{text}"):
            cupygemm.einsum(*operands)
    out = cp.full((4, 2), 9, np.float32)
    with pytest.raises(
        ValueError, match=r"out has shape \(4, 2\), but the result has shape \(2, 4\)"
    ):
        cupygemm.einsum("ij,jk", a, b, out=out)
    with pytest.raises(TypeError, match="cannot cast the result"):
        cupygemm.einsum("ij,jk->ki", a, b.astype(np.float64), out=out)
    assert (cp.asnumpy(out) == 9).all()


# -- Paths and subscripts alone: no device ---------------------------------------------------------


@st.composite
def networks(draw):
    """Draw the terms of several operands, and the result's, and extents."""
    letters = "abcdef"
    terms = draw(st.lists(st.lists(st.sampled_from(letters), max_size=4), min_size=1, max_size=5))
    used = sorted({letter for term in terms for letter in term})
    output = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
    extents = {letter: draw(st.sampled_from([1, 2, 3, 3, 0])) for letter in used}
    return ["".join(term) for term in terms], "".join(output), extents


@pytest.mark.slow
@settings(max_examples=80)
@given(networks(), st.sampled_from(["auto", False, "greedy"]), st.data())
def test_any_network(cp, network, optimize, data):
    terms, output, extents = network
    operands = []
    for term in terms:
        once = data.draw(st.sampled_from(["", *term])) if term else ""  # broadcast along this label
        shape = [1 if lb == once else extents[lb] for lb in term]
        operands.append(RNG.integers(-2, 3, shape).astype(np.float64))
    subscripts = f"{','.join(terms)}->{output}"
    expected = np.einsum(subscripts, *operands)
    result = cupygemm.einsum(subscripts, *map(cp.asarray, operands), optimize=optimize)
    np.testing.assert_array_equal(cp.asnumpy(result), expected)


def test_steps_of_several_operands_become_pairs():
    terms = [tuple(term) for term in ("ab", "bc", "cd", "de", "ef")]
    steps = plan_path(terms, ("a", "f"), dict.fromkeys("abcdef", 2), ((1, 2, 3), (0, 1, 2)))
    assert [step.positions for step in steps] == [(1, 2), (1, 3), (0, 1), (0, 1)]
    assert steps[1].out == ("e", "b") or steps[1].out == ("b", "e")
    assert steps[-1].out == ("a", "f")


def test_implicit_results_are_sorted_and_led_by_the_ellipsis():
    subscripts = parse("...ba,cb", (3, 2))
    assert [str(label) for label in subscripts.output] == ["...[-1]", "a", "c"]
