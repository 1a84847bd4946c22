"""CuPy's solvers that `cupygemm.accelerate` replaces by this library's.

CuPy ignores the info of a factorisation unless `cupyx.errstate` has ``linalg="raise"``: then it
waits for the device and raises. The functions here do the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from cupygemm._products.accelerate import CupyFunction
from cupygemm._request.arrays import Array
from cupygemm._solvers import determinants, factors, inverses, orthogonal, systems
from cupygemm._solvers.common.errors import unchecked
from cupygemm._solvers.operands import factored_dtype

Function = Callable[..., Any]


def _checked_as_by_cupy(function: Function) -> Function:
    """Return a function that checks for singular matrices only if CuPy's does."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        import cupyx

        if cupyx.geterr()["linalg"] == "raise":
            return function(*args, **options)
        with unchecked():
            return function(*args, **options)

    return call


def _lstsq(a: Array, b: Array, rcond: float | None = None) -> tuple[Array, Array, Array, Array]:
    """Return the results of CuPy's function: an array as rank, and special values of `rcond`."""
    import cupy

    if rcond is not None and (rcond <= 0 or rcond >= 1):
        dtype = cupy.result_type(a, b)
        rcond = float(cupy.finfo(dtype if dtype.kind in "fc" else "float64").eps)
    x, residuals, rank, s = orthogonal.lstsq(a, b, rcond)
    return x, residuals, cupy.asarray(rank, "int32"), s


def _solve_triangular(
    a: Array,
    b: Array,
    trans: Any = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = False,
) -> Array:
    """Solve with CuPy's default, zeros on the diagonal allowed, and stacks of vectors."""
    vectors = a.ndim > 2 and b.ndim == a.ndim - 1
    with unchecked():
        x = factors.solve_triangular(
            a,
            b[..., None] if vectors else b,
            trans,
            lower,
            unit_diagonal,
            check_finite=check_finite,
        )
    return x[..., 0] if vectors else x


def _invh(a: Array) -> Array:
    """Return the inverse of a positive definite matrix."""
    import cupy

    if a.ndim != 2:
        raise ValueError(f"invh: a has shape {a.shape}; it must be a matrix")
    dtype = factored_dtype("invh", a, narrow=True)
    identity = cupy.eye(a.shape[-1], dtype=dtype)
    inverse: Array = systems.solve(
        a.astype(dtype, copy=False), identity, lower=True, assume_a="pos"
    )
    return inverse


def _in_fortran_order(a: Array, *options: Any) -> tuple[Array, Array]:
    """Factor for CuPy's `lu`."""
    import cupy

    lu, pivots = factors.lu_factor(a, *options)
    return cupy.asfortranarray(lu), pivots


_FINITE = frozenset({"check_finite"})
_OWNERS = {
    "solve": (
        *("cupy.linalg", "cupy.linalg._solve", "cupyx.scipy.interpolate._cubic"),
        "cupyx.scipy.signal._fir_filter_design",
    ),
    "lstsq": (
        *("cupy.linalg", "cupyx.scipy.signal._fir_filter_design"),
        *("cupyx.scipy.signal._savitzky_golay", "cupyx.scipy.signal._signaltools"),
    ),
    "inv": ("cupy.linalg", "cupy.linalg._solve"),
    "slogdet": ("cupy.linalg", "cupy.linalg._norms"),
    "lu_factor": ("cupyx.scipy.linalg",),
    "_lu_factor": ("cupyx.scipy.linalg._decomp_lu",),
    "lu_solve": ("cupyx.scipy.linalg",),
    "solve_triangular": ("cupyx.scipy.linalg",),
    "cho_solve": ("cupyx.linalg",),
    "invh": ("cupyx.linalg",),
}
"""The modules of CuPy that have a function by its name, if not only `cupy.linalg`."""


def _row(name: str, ours: Function, operands: str, keywords: frozenset[str] = frozenset()) -> Any:
    return [
        CupyFunction(
            owner=owner, name=name, ours=ours, operands=tuple(operands.split()), keywords=keywords
        )
        for owner in _OWNERS.get(name, ("cupy.linalg",))
    ]


FUNCTIONS: tuple[CupyFunction, ...] = (
    *_row("cholesky", _checked_as_by_cupy(systems.cholesky), "a"),
    *_row("solve", _checked_as_by_cupy(systems.solve), "a b"),
    *_row("inv", _checked_as_by_cupy(inverses.inv), "a"),
    *_row("det", determinants.det, "a"),
    *_row("slogdet", determinants.slogdet, "a"),
    *_row("qr", orthogonal.qr, "a", frozenset({"mode"})),
    *_row("lstsq", _lstsq, "a b", frozenset({"rcond"})),
    *_row("pinv", orthogonal.pinv, "a", frozenset({"rcond"})),
    *_row("lu_factor", factors.lu_factor, "a", _FINITE | {"overwrite_a"}),
    *_row("_lu_factor", _in_fortran_order, "a"),
    *_row("lu_solve", factors.lu_solve, "lu_and_piv b", _FINITE | {"trans", "overwrite_b"}),
    *_row(
        "solve_triangular",
        _solve_triangular,
        "a b",
        _FINITE | {"trans", "lower", "unit_diagonal", "overwrite_b"},
    ),
    *_row("cho_solve", factors.cho_solve, "c_and_lower b", _FINITE | {"overwrite_b"}),
    *_row("invh", _checked_as_by_cupy(_invh), "a"),
)
"""The functions that a ``with`` block replaces, if their modules are imported."""
