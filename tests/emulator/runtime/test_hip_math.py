"""The math functions of the HIP headers on the emulated device, against long double and glibc."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import special

from tests.emulator.elementwise import Array, elementwise, elementwise_each

LONG = np.longdouble
RNG = np.random.default_rng(3)
REAL = RNG.standard_normal(200)

# Reference in long double or SciPy's, range of the arguments, error allowed in ulp of a double.
FUNCTIONS: dict[str, tuple[Callable[[Array], Array], tuple[float, float], float]] = {
    "exp": (np.exp, (-700, 700), 1),
    "exp2": (np.exp2, (-1000, 1000), 1),
    "exp10": (lambda x: np.power(LONG(10), x), (-300, 300), 1),
    "expm1": (np.expm1, (-2, 2), 2),
    "log": (np.log, (1e-3, 3), 1),
    "log2": (np.log2, (1e-3, 3), 1),
    "log10": (np.log10, (1e-3, 3), 1),
    "log1p": (np.log1p, (-0.9, 3), 1),
    "cbrt": (np.cbrt, (-100, 100), 1),
    "sin": (np.sin, (-1e5, 1e5), 1),
    "cos": (np.cos, (-1e5, 1e5), 1),
    "tan": (np.tan, (-10, 10), 3),
    "asin": (np.arcsin, (-1, 1), 3),
    "acos": (np.arccos, (-1, 1), 3),
    "atan": (np.arctan, (-5, 5), 2),
    "sinh": (np.sinh, (-50, 50), 3),
    "cosh": (np.cosh, (-50, 50), 3),
    "tanh": (np.tanh, (-3, 3), 3),
    "asinh": (np.arcsinh, (-50, 50), 3),
    "acosh": (np.arccosh, (1, 50), 3),
    "atanh": (np.arctanh, (-1, 1), 3),
    "erf": (np.vectorize(math.erf), (-5, 5), 5),
    "erfc": (np.vectorize(math.erfc), (-5, 9), 5),
    "erfinv": (special.erfinv, (-1, 1), 12),
    "erfcx": (special.erfcx, (-3, 60), 8),
    "normcdf": (special.ndtr, (-1, 8), 8),
    "lgamma": (special.gammaln, (2.5, 100), 5),
    "tgamma": (special.gamma, (0.5, 30), 20),
    "j0": (special.j0, (0.1, 2), 20),
    "y1": (special.y1, (0.1, 2), 20),
    "cyl_bessel_i0": (special.i0, (-40, 40), 30),
    "rsqrt": (lambda x: 1 / np.sqrt(x), (1e-3, 100), 2),
}

CASES = "\n".join(
    f"        case {number}: return {name}(x);" for number, name in enumerate(FUNCTIONS)
)
MATH = f"""
template <typename T>
__device__ T value(int which, T x) {{
    switch (which) {{
{CASES}
    }}
    return x;
}}
template <typename T>
__global__ void evaluate(int which, const T* x, T* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = value(which, x[i]);
}}
"""


@pytest.fixture(scope="module")
def evaluate(cp: ModuleType) -> Callable[[str, Array], Array]:
    names = {"float64": "evaluate<double>", "float32": "evaluate<float>"}
    module = cp.RawModule(code=MATH, name_expressions=list(names.values()))

    def run(name: str, x: Array) -> Array:
        which, device_x = list(FUNCTIONS).index(name), cp.asarray(x)
        y = cp.empty_like(device_x)
        kernel = module.get_function(names[x.dtype.name])
        kernel((-(-x.size // 256),), (256,), (np.int32(which), device_x, y, np.int32(x.size)))
        result: Array = y.get()
        return result

    return run


@pytest.mark.parametrize("name", FUNCTIONS)
def test_double_precision(evaluate: Callable[[str, Array], Array], name: str) -> None:
    reference, (low, high), allowed = FUNCTIONS[name]
    x = np.random.default_rng(1).uniform(low, high, 500)
    wide = isinstance(reference, np.ufunc) and reference.types[0].startswith(("e", "g", "?"))
    exact = reference(x.astype(LONG)) if wide or "lambda" in str(reference) else reference(x)
    errors = np.abs(evaluate(name, x) - exact) / np.spacing(np.abs(exact).astype(float))
    assert errors.max() <= allowed, f"{errors.max():.2f} ulp at {x[np.argmax(errors)]!r}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_single_precision(evaluate: Callable[[str, Array], Array], name: str) -> None:
    reference, (low, high), _ = FUNCTIONS[name]
    low, high = max(low, -30), min(high, 30)
    x = np.random.default_rng(2).uniform(low, high, 200).astype(np.float32)
    exact = reference(x.astype(float))
    errors = np.abs(evaluate(name, x) - exact) / np.spacing(np.abs(exact).astype(np.float32))
    assert errors.max() <= 4, f"{errors.max():.2f} ulp at {x[np.argmax(errors)]!r}"


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_huge_angles_are_reduced_exactly(
    evaluate: Callable[[str, Array], Array], name: str
) -> None:
    x = np.array([1e10, 2.0**60, 1e22, 1e300, -1e15])
    expected = np.array([getattr(math, name)(value) for value in x.tolist()])
    np.testing.assert_allclose(evaluate(name, x), expected, rtol=1e-15)


def test_the_double_nearest_to_a_multiple_of_half_pi(
    evaluate: Callable[[str, Array], Array],
) -> None:
    # Muller, Elementary Functions, 3rd edition, section 11.3: the worst case of the reduction.
    x = np.array([6381956970095103 * 2.0**797])
    np.testing.assert_allclose(evaluate("cos", x), -4.68716592425462761112e-19, rtol=4e-16)


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e308, 5e-324])


@pytest.mark.parametrize(
    "name", ["exp", "expm1", "log", "log2", "log1p", "sin", "tanh", "atan", "cbrt", "erf", "asinh"]
)
def test_special_values(evaluate: Callable[[str, Array], Array], name: str) -> None:
    reference = FUNCTIONS[name][0]
    with np.errstate(all="ignore"):
        expected = reference(SPECIAL)
    found = evaluate(name, SPECIAL)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    defined = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[defined], np.signbit(expected)[defined])


def test_pow(cp: ModuleType) -> None:
    x, y = np.exp(RNG.uniform(-8, 8, 300)), RNG.uniform(-30, 30, 300)
    exact = np.power(x.astype(LONG), y.astype(LONG))
    errors = np.abs(elementwise(cp, "out = pow(a, b)", "float64", x, y) - exact)
    assert (errors / np.spacing(exact.astype(float))).max() <= 1


def test_pow_of_special_values(cp: ModuleType) -> None:
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 0.5, -0.5, 3, -3])
    x, y = (part.ravel().copy() for part in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    found = elementwise(cp, "out = pow(a, b)", "float64", x, y)
    np.testing.assert_allclose(found, expected, rtol=2.3e-16)
    defined = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[defined], np.signbit(expected)[defined])


TWO_DOUBLES = REAL * 10, REAL[::-1].copy()
OF_TWO_DOUBLES: dict[str, Callable[..., Any]] = {
    "out = atan2(a, b)": np.arctan2,
    "out = hypot(a, b)": np.hypot,
    "out = fmod(a, b)": np.fmod,
    "out = copysign(a, b)": np.copysign,
    "out = nextafter(a, b)": np.nextafter,
    "out = fmax(a, b)": np.fmax,
    "out = remainder(a, b)": lambda x, y: [math.remainder(*pair) for pair in zip(x, y)],  # noqa: B905
    "out = fma(a, b, 0.1)": lambda x, y: (x.astype(LONG) * y + LONG(0.1)).astype(float),
    "int e; out = frexp(a, &e) + e": lambda x, _: sum(np.frexp(x)),
    "out = ldexp(a, 5) + floor(b)": lambda x, y: np.ldexp(x, 5) + np.floor(y),
    "out = round(a * 10) + rint(b * 10)": lambda x, y: _round(x * 10) + np.rint(y * 10),
}


@pytest.fixture(scope="module")
def of_two_doubles(cp: ModuleType) -> dict[str, Array]:
    found = elementwise_each(cp, list(OF_TWO_DOUBLES), "float64", *TWO_DOUBLES)
    return dict(zip(OF_TWO_DOUBLES, found, strict=True))


@pytest.mark.parametrize("code", OF_TWO_DOUBLES)
def test_functions_of_two_doubles(of_two_doubles: dict[str, Array], code: str) -> None:
    expected = OF_TWO_DOUBLES[code](*TWO_DOUBLES)
    np.testing.assert_allclose(of_two_doubles[code], expected, rtol=4e-16)


def _round(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def test_norms_powers_and_quotients(cp: ModuleType) -> None:
    x = np.abs(REAL) + 0.1
    doubles = {
        "norm(2, v)": np.hypot(x, 2),
        "rnorm(2, v)": 1 / np.hypot(x, 2),
        "rnorm3d(a, 2, 3)": 1 / np.sqrt(x**2 + 13),
        "rnorm4d(a, 2, 3, -4)": 1 / np.sqrt(x**2 + 29),
        "powi(a, -3)": x**-3.0,
        "normf(2, w)": np.hypot(x, 2),
        "rnormf(2, w)": 1 / np.hypot(x, 2),
        "rnorm3df(w[0], 2, 3)": 1 / np.sqrt(x**2 + 13),
        "rnorm4df(w[0], 2, 3, -4)": 1 / np.sqrt(x**2 + 29),
        "powif(w[0], 3)": x**3,
        "fdividef(3, w[0])": 3 / x,
    }
    values = "double v[] = {a, 2}; float w[] = {(float)a, 2}; out = "
    found = elementwise_each(cp, [values + call for call in doubles], "float64", x)
    for row, (call, expected) in zip(found, doubles.items(), strict=True):
        of_floats = "w" in call.partition("(")[2]
        np.testing.assert_allclose(row, expected, rtol=1e-6 if of_floats else 1e-14, err_msg=call)


def test_fma_of_several_types_is_computed_in_double_precision(cp: ModuleType) -> None:
    x = REAL.astype(np.float16).astype(np.float64)
    codes = [
        "_Float16 h = (_Float16)a; out = fma(h, h, (_Float16)3)",
        "_Float16 h = (_Float16)a; out = fma(h, h, 3)",
        "float f = (float)a; out = fma(f, f, 3.0f)",
        "float f = (float)a; out = fma(f, a, 3u)",
        "out = fma((int)a, 2, 3)",
    ]
    found = elementwise_each(cp, codes, "float64", x)
    square = x * x + 3
    expected = [square.astype("f2"), square, square.astype("f4"), square, np.trunc(x) * 2 + 3]
    for row, numbers in zip(found, expected, strict=True):
        np.testing.assert_array_equal(row, numbers)
