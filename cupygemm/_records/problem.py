"""`GemmProblem`: one product in a kernel's terms, used by the backends and the tuner."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from cupygemm._records.dtypes import COMPLEX_NAMES, DType

Along = Literal["one", "row", "column", "matrix"]
SATURATION = "saturation"
"""The summary of an epilogue without parts, which only saturates integers."""


@dataclass(frozen=True)
class Source:
    """The properties of an epilogue's array that the code of a kernel depends on.

    Attributes
    ----------
    dtype : str
    along : {"one", "row", "column", "matrix"}
        Whether the array has one number for each matrix of the batch, for each row of C, for each
        column, or for each element. The numbers for adjacent columns are adjacent.
    align : int
        Largest power of two, up to 16, that divides the address of every row, in bytes.
    """

    dtype: DType
    along: Along
    align: int = 16


@dataclass(frozen=True)
class Epilogue:
    """The operations on the sums before they are rounded; see `cupygemm.matmul` for the formula.

    Attributes
    ----------
    alpha, scale, clamp : bool
        Whether there is a factor of the sums, a factor of the activation's result, and limits. The
        numbers are arguments of the kernel.
    scale_a, scale_b, c, bias, scale_out : Source or None
    activation : str or None
    """

    alpha: bool = False
    scale_a: Source | None = None
    scale_b: Source | None = None
    c: Source | None = None
    bias: Source | None = None
    activation: str | None = None
    scale: bool = False
    scale_out: Source | None = None
    clamp: bool = False

    @property
    def sources(self) -> dict[str, Source]:
        """Return the arrays that are present, by option, in the order in which they take effect."""
        names = ("scale_a", "scale_b", "c", "bias", "scale_out")
        return {name: found for name in names if (found := getattr(self, name)) is not None}

    @property
    def summary(self) -> str:
        """Return a human-readable list of the parts, in the order in which they take effect."""
        text = {"one": "", "row": " per row", "column": " per column", "matrix": ""}
        parts = ["alpha"] if self.alpha else []
        for name, source in self.sources.items():
            if name != "scale_out":
                label = "beta * c" if name == "c" else name
                parts.append(f"{label}{text[source.along]} ({source.dtype})")
        if self.activation is not None:
            parts.append(self.activation)
        if self.scale or self.scale_out is not None:
            parts.append("scale_out")
        return ", ".join([*parts, "clamp"] if self.clamp else parts) or SATURATION


@dataclass(frozen=True, kw_only=True)
class GemmProblem:
    """One batched product ``c[i, j] = sum_k a[i, k] * b[k, j]``, with C row-major.

    A product with an F-ordered result is computed as its transpose, so the columns of C are always
    adjacent. The record has no pointers or pitches, only the properties that determine which kernel
    can run. A plan for one problem serves every call with an equal record.

    Attributes
    ----------
    m, n, k : int
        Extents, at least 1.
    batch : tuple of int
        Extents of the batch axes after collapsing, at most 3, outermost first; ``()`` for none.
    a_dtype, b_dtype, out_dtype : str
        See `DType`. The types of A and B differ only if both are 8-bit floats. Unsigned bytes are
        ``"i8"`` as well, since products wrap, except as the result of an epilogue.
    a_major : {"k", "m"}
        The axis of A whose elements are adjacent in memory.
    b_major : {"k", "n"}
        The same for B.
    a_align, b_align, c_align : int
        Largest power of two, up to 16, that divides the base address and every pitch, in bytes; up
        to 128 if the kernel reads a copy.
    a_span, b_span, c_span : int
        Bytes from the first element of one matrix of the batch to the end of the last. Buffer
        loads reach at most 2 GiB.
    epilogue : Epilogue or None
        None if sums are only rounded. Its rows and columns are those of C.
    block_scaled : bool
        Every 32 consecutive elements along k of a row of A and of a column of B share a factor (OCP
        MX).
    """

    m: int
    n: int
    k: int
    batch: tuple[int, ...]
    a_dtype: DType
    b_dtype: DType
    out_dtype: DType
    a_major: Literal["k", "m"]
    b_major: Literal["k", "n"]
    a_align: int = 16
    b_align: int = 16
    c_align: int = 16
    a_span: int = 0
    b_span: int = 0
    c_span: int = 0
    epilogue: Epilogue | None = None
    block_scaled: bool = False

    @property
    def num_batches(self) -> int:
        """Return the number of matrices in the batch."""
        return math.prod(self.batch)

    @property
    def flops(self) -> int:
        """Return the number of arithmetic operations, two for each real multiply-add."""
        real = 4 if self.a_dtype in COMPLEX_NAMES else 2 if self.a_dtype == "e2m1x2" else 1
        return 2 * real * self.m * self.n * self.k * self.num_batches


def sums_alike(part: GemmProblem | None, whole: GemmProblem | None) -> bool:
    """Whether two problems may differ only in rows, so that one configuration sums both alike."""
    if part is None or whole is None:
        return False
    names = ("n", "k", "batch", "a_dtype", "b_dtype", "out_dtype", "a_major", "b_major")
    return all(getattr(part, name) == getattr(whole, name) for name in names)
