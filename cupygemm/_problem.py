"""What is to be multiplied: the record that the selector, the kernels and the launcher share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DType = Literal[
    "bf16",
    "f16",
    "f32",
    "tf32",
    "tf32x3",
    "f64",
    "i8",
    "i32",
    "e4m3fn",
    "e5m2",
    "e4m3fnuz",
    "e5m2fnuz",
    "c64",
    "c128",
]
"""Types of elements. ``"tf32"`` is float32 in memory, of which the matrix unit reads the first bits
only: 10 of the fraction; ``"tf32x3"`` is float32 too, as a sum of two such parts, of which three
products are added. Then come 8-bit floats, OCP's and FNUZ ones, and complex numbers of two f32 or
f64."""
ITEMSIZE: dict[DType, int] = {
    "bf16": 2, "f16": 2, "f32": 4, "tf32": 4, "tf32x3": 4, "f64": 8, "i8": 1, "i32": 4,
    "e4m3fn": 1, "e5m2": 1, "e4m3fnuz": 1, "e5m2fnuz": 1, "c64": 8, "c128": 16,
}  # fmt: skip
COMPLEX_NAMES: tuple[DType, ...] = ("c64", "c128")
FLOAT8_NAMES: tuple[DType, ...] = ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")


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
        Largest power of two, up to 16, that divides base address and every pitch, in bytes.
    a_span, b_span, c_span : int
        Bytes from the first to the last element of one matrix of the batch, end included; buffer
        loads address at most 2 GiB of it.
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
        real = 4 if self.a_dtype in COMPLEX_NAMES else 1
        return 2 * real * self.m * self.n * self.k * self.num_batches
