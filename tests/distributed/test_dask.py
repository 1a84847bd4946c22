"""Products of Dask arrays of CuPy chunks: NumPy's results, the types of sums, errors, clusters."""

import ml_dtypes
import numpy as np
import pytest

import cupygemm
import cupygemm.distributed
from tests.tables import swept

da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

INTEGERS = np.random.default_rng(1)


@pytest.fixture
def chunked(cp):
    """Return a function that makes a Dask array of CuPy chunks from a NumPy array."""

    def make(array, chunks):
        return da.from_array(cp.asarray(array), chunks=chunks, asarray=False)

    return make


def integers(*shape, dtype="float32", highest=4):
    return INTEGERS.integers(-highest, highest + 1, shape).astype(dtype)


def computed(array):
    return array.compute(scheduler="threads").get()


@pytest.mark.covering
@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "int8", *swept("complex64", "float64", "int32")]
)
@pytest.mark.parametrize("k_chunk", [16, 40])
def test_the_product_is_numpys(chunked, dtype, k_chunk):
    a, b = integers(33, 40, dtype=dtype), integers(40, 18, dtype=dtype)
    c = cupygemm.matmul(chunked(a, (16, k_chunk)), chunked(b, (k_chunk, 7)))
    assert c.chunks == ((16, 16, 1), (7, 7, 4))
    assert c.dtype == a.dtype
    np.testing.assert_array_equal(computed(c), a @ b)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape1", "shape2"),
    [
        ((40,), (40, 9)),
        ((40,), (40,)),
        ((3, 1, 5, 40), (2, 40, 6)),
        ((4, 0), (0, 3)),
        ((0, 4), (4, 3)),
        *swept(((9, 40), (40,)), ((5, 40), (2, 3, 40, 6)), width=2),
    ],
)
def test_shapes_broadcast(chunked, shape1, shape2):
    a, b = integers(*shape1), integers(*shape2)
    c = cupygemm.matmul(chunked(a, 3), chunked(b, 3))
    assert c.shape == (a @ b).shape
    np.testing.assert_array_equal(computed(c), a @ b)


def test_chunks_that_differ_are_aligned(chunked):
    a, b = integers(10, 24), integers(24, 10)
    c = cupygemm.matmul(chunked(a, (5, 9)), chunked(b, (7, 10)))
    np.testing.assert_array_equal(computed(c), a @ b)


def test_a_cupy_operand_is_one_chunk(cp, chunked):
    a, b = integers(10, 24), integers(24, 10)
    c = cupygemm.matmul(chunked(a, (5, 9)), cp.asarray(b))
    np.testing.assert_array_equal(computed(c), a @ b)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, *swept(np.float16)])
def test_sums_of_halves_are_rounded_once(cp, chunked, dtype):
    """2048 + 1 + 1 is 2048 if each partial sum is rounded to half precision, and 2050 in fact."""
    a = np.array([[2048, 1, 1, 0]], dtype)
    b = np.ones((4, 1), dtype)
    c = cupygemm.matmul(chunked(a, (1, 1)), chunked(b, (1, 1)))
    whole = cupygemm.matmul(cp.asarray(a), cp.asarray(b))
    assert computed(c).astype("float32") == whole.get().astype("float32")
    assert computed(cupygemm.matmul(chunked(a, (1, 1)), chunked(b, (1, 1)), dtype="f4")) == 2050


@pytest.mark.slow
def test_integers_wrap_and_saturate_as_in_one_product(cp, chunked):
    a, b = integers(6, 40, dtype="int8", highest=100), integers(40, 5, dtype="int8", highest=100)
    x, y = chunked(a, (4, 9)), chunked(b, (9, 5))
    np.testing.assert_array_equal(computed(cupygemm.matmul(x, y)), a @ b)
    wide = a.astype("int32") @ b.astype("int32")
    np.testing.assert_array_equal(computed(cupygemm.matmul(x, y, dtype="int32")), wide)
    np.testing.assert_array_equal(
        computed(cupygemm.matmul(x, y, alpha=1)), np.clip(wide, -128, 127).astype("int8")
    )
    truth = integers(6, 40, dtype="bool")
    np.testing.assert_array_equal(
        computed(cupygemm.matmul(chunked(truth, (4, 9)), chunked(truth.T, (9, 6)))), truth @ truth.T
    )


@pytest.mark.slow
@pytest.mark.parametrize("k_chunk", [9, 40])
def test_the_epilogue_follows_the_whole_sum(cp, chunked, k_chunk):
    a, b = integers(12, 40), integers(40, 10)
    scale, bias, addend = integers(12), integers(10), integers(12, 10)
    c = cupygemm.matmul(
        chunked(a, (5, k_chunk)),
        chunked(b, (k_chunk, 4)),
        alpha=0.5,
        scale_a=cp.asarray(scale),
        scale_b=chunked(np.full((1, 10), 2, "f"), -1),
        bias=chunked(bias, 3),
        c=cp.asarray(addend),
        beta=-1,
        activation="relu",
        clamp=(None, 50),
    )
    expected = np.clip(scale[:, None] * (a @ b) - addend + bias, 0, 50)
    np.testing.assert_array_equal(computed(c), expected)


def test_the_epilogue_of_a_vector(cp, chunked):
    a, b, bias = integers(12, 40), integers(40), integers(12)
    c = cupygemm.matmul(chunked(a, (5, 9)), chunked(b, 9), bias=chunked(bias, 7), alpha=2)
    np.testing.assert_array_equal(computed(c), 2 * (a @ b) + bias)
    c = cupygemm.matmul(chunked(b, 9), chunked(a.T, (9, 5)), bias=cp.asarray(bias), scale_a=2.0)
    np.testing.assert_array_equal(computed(c), 2 * (b @ a.T) + bias)


@pytest.mark.slow
def test_8_bit_floats(cp, chunked):
    dtype = ml_dtypes.float8_e4m3fnuz if cupygemm_target(cp) == "gfx942" else None
    if dtype is None:
        pytest.skip("the format depends on the device; gfx942's is tested")
    a, b = integers(12, 40).astype(dtype), integers(40, 10).astype(dtype)
    c = cupygemm.matmul(
        chunked(a.view("u1"), (5, 9)),
        chunked(b.view("u1"), (9, 4)),
        format_a="e4m3fnuz",
        format_b="e4m3fnuz",
    )
    assert c.dtype == np.float32
    np.testing.assert_array_equal(computed(c), a.astype("f") @ b.astype("f"))


def cupygemm_target(cp):
    properties = cp.cuda.runtime.getDeviceProperties(0)
    return properties.get("gcnArchName", b"").decode().partition(":")[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,kj,kl->il", [(4, 6), (5, 6), (5, 3)]),
        ("ii->", [(9, 9)]),
        ("...i,i", [(2, 4, 5), (5,)]),
        ("i,j", [(7,), (4,)]),
        *swept(
            ("ij,jk->ik", [(9, 14), (14, 5)]),
            ("ij,jk->ki", [(9, 14), (14, 5)]),
            ("bij,bkj->bik", [(3, 4, 9), (3, 5, 9)]),
            ("ii,ij->ij", [(9, 9), (9, 4)]),
            width=2,
        ),
    ],
)
def test_einsum(chunked, subscripts, shapes):
    arrays = [integers(*shape, dtype="float16") for shape in shapes]
    result = cupygemm.einsum(subscripts, *[chunked(x, 4) for x in arrays])
    expected = np.einsum(subscripts, *[x.astype("float32") for x in arrays])
    assert result.shape == expected.shape
    assert result.dtype == np.float16
    np.testing.assert_array_equal(computed(result), expected)


def test_einsum_with_lists_of_labels(chunked):
    a, b = integers(9, 14), integers(14, 5)
    result = cupygemm.einsum(chunked(a, 4), [0, 1], chunked(b, 4), [1, 2], [2, 0])
    np.testing.assert_array_equal(computed(result), (a @ b).T)


@pytest.mark.slow
@pytest.mark.parametrize("axes", [0, 1, ([1, 0], [0, 1]), *swept(2, ((-1,), (0,)))])
def test_tensordot(chunked, axes):
    a = integers(3, 4, 5)
    b = integers(4, 5, 3) if axes == 2 else integers(5, 4) if axes in (1, ((-1,), (0,))) else None
    b = integers(4, 3) if b is None else b
    result = cupygemm.tensordot(chunked(a, 2), chunked(b, 2), axes)
    np.testing.assert_array_equal(computed(result), np.tensordot(a, b, axes))


def test_accelerate_covers_dasks_products(chunked):
    a = integers(10, 12)
    x = chunked(a, 5)
    with cupygemm.accelerate():
        products = [x @ x.T, da.matmul(x, x.T), da.dot(x, x.T), da.tensordot(x, x.T, axes=1)]
        einsum = da.einsum("ij,kj->ik", x, x)
        of_the_host = da.ones((4, 4)) @ da.ones((4, 4))
    for product in (*products, einsum):
        np.testing.assert_array_equal(computed(product), a @ a.T)
    names = [any("cupygemm" in name for name in p.__dask_graph__().layers) for p in products[:2]]
    assert names == [True, True]
    np.testing.assert_array_equal(of_the_host.compute(), np.full((4, 4), 4.0))
    assert not any("cupygemm" in name for name in (x @ x.T).__dask_graph__().layers)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: cupygemm.matmul(x, x), ValueError, "inner extents differ"),
        (lambda x: cupygemm.matmul(x, np.ones((6, 2))), TypeError, "x2 is a numpy.ndarray, next"),
        (lambda x: cupygemm.matmul(x, da.ones((6, 2))), TypeError, r"x2.map_blocks\(cupy.asarray"),
        (lambda x: cupygemm.matmul(x, x.T, out=x), TypeError, "takes no out: assign the result"),
        (lambda x: cupygemm.matmul(x, x.T, bias=x[0]), ValueError, "bias has shape"),
        (lambda x: cupygemm.matmul(x[x.sum(1) > 0], x.T), ValueError, "compute_chunk_sizes"),
        (lambda x: cupygemm.matmul(x, x.T, turbo=1), TypeError, "unexpected keyword .*'turbo'"),
        (lambda x: cupygemm.matmul(x, x.T, activation="tanh"), ValueError, "activation must be"),
        (lambda x: cupygemm.matmul(x, x.T, alpha="2"), TypeError, "alpha is a str, not a number"),
        (lambda x: cupygemm.matmul(x, x.T, beta=2), ValueError, "c is missing"),
        (lambda x: cupygemm.dot(x, x.T), TypeError, "only be operands of matmul, tensordot and e"),
        (lambda x: cupygemm.distributed.Warmup([(4, 6)]), ValueError, "Warmup: the shape"),
        (lambda x: cupygemm.tensordot(x, x, 1), ValueError, "the extents differ: axis 1 of a"),
        (lambda x: cupygemm.einsum("ij,ik", x, x[1:]), ValueError, "extents of one index differ"),
    ],
)
def test_errors_come_with_the_call(chunked, call, error, message):
    with pytest.raises(error, match=message):
        call(chunked(integers(4, 6), 2))


def test_a_stream_is_refused(cp, chunked):
    x = chunked(integers(4, 6), 2)
    with pytest.raises(TypeError, match="takes no stream"):
        cupygemm.matmul(x, x.T, stream=cp.cuda.Stream())


@pytest.mark.slow
def test_a_cluster_of_processes(cp, device, monkeypatch, tmp_path):
    """Chunks are made on the workers and travel between them; the result returns to the client."""
    if device.emulated:
        monkeypatch.setenv("CUPYGEMM_EMULATE", device.target)
    a = integers(30, 24, dtype="float16")
    x = da.from_array(a, chunks=(10, 9)).map_blocks(cp.asarray)
    plugin = cupygemm.distributed.Warmup([(10, 10, 9)], "float16", dtype="float32")
    limit = "600s"  # ends a hang
    limits = {"distributed.comm.timeouts.connect": limit, "distributed.comm.timeouts.tcp": limit}
    with (
        dask.config.set(limits),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=tmp_path
        ) as cluster,
        distributed.Client(cluster, timeout=limit) as client,
    ):
        client.register_plugin(plugin)
        result = cupygemm.matmul(x, x.T).compute()
    assert isinstance(result, cp.ndarray)
    np.testing.assert_array_equal(result.get(), a.astype("float32") @ a.T.astype("float32"))


def test_repeated_runs_give_the_same_bits(chunked):
    a = np.random.default_rng(2).standard_normal((20, 60)).astype("float32")
    c = cupygemm.matmul(chunked(a, (8, 7)), chunked(a.T, (7, 8)))
    first, second = computed(c), c.compute(scheduler="sync").get()
    np.testing.assert_array_equal(first.view("u4"), second.view("u4"))
