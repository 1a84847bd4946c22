"""The known structure of a matrix, by SciPy's names, and the resulting problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cupygemm._request.arrays import Array

Kind = Literal["general", "positive", "triangular"]
ASSUMPTIONS = (
    "gen",
    "general",
    "sym",
    "symmetric",
    "her",
    "hermitian",
    "pos",
    "positive definite",
    "diagonal",
    "tridiagonal",
    "banded",
    "upper triangular",
    "lower triangular",
)
"""The values of SciPy's ``assume_a``."""


@dataclass(frozen=True, eq=False)
class Structure:
    """A matrix, and the method of its factorisation.

    Attributes
    ----------
    a : cupy.ndarray
        (..., n, n)
    kind : {"general", "positive", "triangular"}
        Only the lower triangle of a positive definite matrix is used.
    lower : bool
        Which triangle a triangular matrix has.
    """

    a: Array
    kind: Kind
    lower: bool = True


def structured(a: Array, assume_a: str | None, *, lower: bool, transposed: bool) -> Structure:
    """Return the problem for a matrix of known structure."""
    import cupy

    known = assume_a or "gen"
    if known in ("upper triangular", "lower triangular"):
        is_lower = known.startswith("lower")
        return Structure(_transposed_if(a, transposed), "triangular", is_lower != transposed)
    if known == "diagonal":
        diagonal = cupy.where(cupy.eye(a.shape[-1], dtype=bool), a, a.dtype.type(0))
        return Structure(diagonal, "triangular", lower=True)
    if known in ("pos", "positive definite"):
        below = a if lower else a.swapaxes(-1, -2).conj()
        # The transpose of a Hermitian matrix is its conjugate.
        return Structure(below.conj() if transposed else below, "positive")
    if known in ("sym", "symmetric", "her", "hermitian"):
        half = cupy.tril(a) if lower else cupy.triu(a)
        rest = (cupy.tril(a, -1) if lower else cupy.triu(a, 1)).swapaxes(-1, -2)
        if known.startswith("her"):
            n = a.shape[-1]
            rest = rest.conj()
            if a.dtype.kind == "c":  # the imaginary part of the diagonal is not read
                half = cupy.where(cupy.eye(n, dtype=bool), half.real, half)
        return Structure(_transposed_if(half + rest, transposed), "general")
    return Structure(_transposed_if(a, transposed), "general")


def _transposed_if(a: Array, transposed: bool) -> Array:
    return a.swapaxes(-1, -2) if transposed else a
