"""Problems for tests of kernels and of their selection."""

from __future__ import annotations

from typing import Any

from cupygemm._records.dtypes import DType
from cupygemm._records.problem import GemmProblem


def problem_of(
    m: int,
    n: int,
    k: int,
    dtype: DType = "bf16",
    out_dtype: DType | None = None,
    majors: str = "kn",
    **more: Any,
) -> GemmProblem:
    """Return a problem with operands of one type, by default the type of the result as well.

    `majors` has the axes along which the elements of A and of B are adjacent.
    """
    values: dict[str, Any] = {"batch": (), "out_dtype": out_dtype or dtype, **more}
    a_major, b_major = majors
    return GemmProblem(
        m=m, n=n, k=k, a_dtype=dtype, b_dtype=dtype, a_major=a_major, b_major=b_major, **values
    )
