"""What is to be multiplied: the record that the selector, the kernels and the launcher share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cupygemm._records.dtypes import COMPLEX_NAMES, DType

Along = Literal["one", "row", "column", "matrix"]
SATURATION = "saturation"
"""The summary of an epilogue without parts, which only saturates integers."""


@dataclass(frozen=True)
class Source:
    """An array that an epilogue reads, as far as the kernel's code depends on it.

    Attributes
    ----------
    dtype : str
    along : {"one", "row", "column", "matrix"}
        One number for each matrix of the batch, one for each row or for each column of C, or one
        for each element. Along columns, elements are adjacent.
    align : int
        Largest power of two, up to 16, that divides every run's address, in bytes.
    """

    dtype: DType
    along: Along
    align: int = 16


@dataclass(frozen=True)
class Epilogue:
    """What is done to the sums before they are rounded; see `cupygemm.matmul` for the formula.

    Attributes
    ----------
    alpha, scale, clamp : bool
        There is such a part, whose numbers are arguments: a factor of the sums, one of what the
        activation gives, and limits.
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
        """Return the arrays that are read, by option, in the order in which they take effect."""
        names = ("scale_a", "scale_b", "c", "bias", "scale_out")
        return {name: found for name in names if (found := getattr(self, name)) is not None}

    @property
    def summary(self) -> str:
        """Return the parts in the order in which they take effect."""
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


@dataclass(frozen=True)
class GemmProblem:
    """One batched product ``c[i, j] = sum_k a[i, k] * b[k, j]``, with C row-major.

    A product with an F-ordered result is posed as its transpose, so C always has unit column
    stride. The record holds no pointer and no pitch, only what decides which kernel can run: a plan
    made for one problem serves every call of the same record.

    Attributes
    ----------
    m, n, k : int
        Extents, at least 1.
    batch : tuple of int
        Extents of the batch axes after collapsing, at most 3, outermost first; ``()`` for none.
    a_dtype, b_dtype, out_dtype : str
        See `DType`. Those of A and B differ only if both are 8-bit floats. Unsigned bytes are
        ``"i8"`` too where the product is, since it wraps.
    a_major : {"k", "m"}
        The axis of A whose elements are adjacent in memory.
    b_major : {"k", "n"}
        The same for B.
    a_align, b_align, c_align : int
        Largest power of two, up to 16, that divides base address and every pitch, in bytes. Where
        a kernel reads copies, up to 128.
    a_span, b_span, c_span : int
        Bytes from the first to the last element of one matrix of the batch, end included; buffer
        loads address at most 2 GiB of it.
    epilogue : Epilogue or None
        None for sums that are only rounded. Its rows and columns are those of C.
    block_scaled : bool
        Each 32 consecutive k of a row of A and of a column of B have a factor (OCP MX).
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
        count = 1
        for extent in self.batch:
            count *= extent
        return count

    @property
    def flops(self) -> int:
        """Return the arithmetic operations, two for each multiply-add of real numbers."""
        real = 4 if self.a_dtype in COMPLEX_NAMES else 2 if self.a_dtype == "e2m1x2" else 1
        return 2 * real * self.m * self.n * self.k * self.num_batches
