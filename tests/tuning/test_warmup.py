"""`warmup`: afterwards, a product finds its kernel in the cache."""

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm._tuning.product import products_of


@pytest.mark.slow
def test_products_then_compile_nothing(run_python):
    code = """
import os
import cupygemm, cupy as cp, numpy as np
from cupygemm._backends.cdna import compile as _compile
_compile.OPTIONS += (f"-DCUPYGEMM_KERNELS_OF_PROCESS={os.getpid()}_{os.urandom(8).hex()}",)
made = cupygemm.warmup([(40, 50, 64)], "float16", layouts=["NN", "NT"])
assert made == 2, made
def refuse(*args): raise AssertionError("compiles")
_compile._build_with_clang = refuse
_compile.compile_source.cache_clear()
a, b = cp.ones((40, 64), "f2"), cp.ones((64, 50), "f2")
turned = cp.ones((50, 64), "f2").T
for x, y in ((a, b), (a, turned)):
    assert (cp.asnumpy(cupygemm.matmul(x, y)) == 64).all()
try:
    cupygemm.matmul(a.astype("f4"), b.astype("f4"))
except AssertionError as error:
    print(error)
"""
    assert run_python(code, target="gfx942") == "compiles\n"


def test_products_without_a_kernel_are_not_counted(cp):
    assert cupygemm.warmup([(4, 5, 6)], np.int32, progress=False) == 0
    assert cupygemm.warmup([], "float16") == 0


def test_every_combination():
    products = products_of(
        "warmup", [(2, 3, 4), (5, 2, 3, 4)], ["bfloat16", "f4"], None, ["NN", "TT"]
    )
    assert len(products) == 8
    assert {product.dtype for product in products} == {np.dtype(ml_dtypes.bfloat16), np.dtype("f4")}
    turned = next(p for p in products if p.layout == "TT" and len(p.shape) == 4)
    x1, x2 = turned.operands()
    assert (x1.shape, x2.shape) == ((5, 2, 4), (5, 4, 3))
    assert x1.strides[1] == turned.dtype.itemsize
    assert str(turned) == f"5x2x3x4 {turned.dtype} TT"


@pytest.mark.parametrize(
    ("dtype", "same"),
    [("bf16", ml_dtypes.bfloat16), ("fp16", "f2"), ("e4m3fn", ml_dtypes.float8_e4m3fn)],
)
def test_types_have_the_names_of_the_command_line(dtype, same):
    (product,) = products_of("warmup", [(2, 3, 4)], dtype, dtype, ["NN"])
    assert product.dtype == product.out_dtype == np.dtype(same)


@pytest.mark.parametrize(
    ("shapes", "options", "text"),
    [
        ([(4, 5)], {}, r"the shape \(4, 5\) is not \(m, n, k\)"),
        ("4x5", {}, "the shape 4 is not"),
        ([(4, 5, 6.5)], {}, r"the shape \(4, 5, 6.5\) is not"),
        ([(4, 0, 5)], {}, "the shape .* of 1 or more"),
        ([(4, 5, 6)], {"layouts": ["XY"]}, r"layout must be one of NN, NT, TN, TT \(got 'XY'\)"),
    ],
)
def test_refusals(cp, shapes, options, text):
    for function in (cupygemm.warmup, cupygemm.tune):
        with pytest.raises(ValueError, match=f"{function.__name__}: {text}"):
            function(shapes, **options)
    with pytest.raises(TypeError, match=r"layouts is 'NN'; pass a list, such as \['NN'\]"):
        cupygemm.warmup([(4, 5, 6)], layouts="NN")
    with pytest.raises(ValueError, match="warmup: workers is 0; it must be a positive integer"):
        cupygemm.warmup([(4, 5, 6)], workers=0)
    with pytest.raises(ValueError, match="tune: candidates is 0; it must be a positive integer"):
        cupygemm.tune([(4, 5, 6)], candidates=0)
