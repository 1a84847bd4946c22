"""The element types of products: a table with one row for each, and the names for users.

A row states how an element is stored, and the types in which products of such elements are summed
and epilogues are computed. Each backend states which products it computes. To add a type, see
docs/developer/add_a_data_type.rst.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

DType = str
"""The name of an element type, the key of `ELEMENT_TYPES`."""


@dataclass(frozen=True, kw_only=True)
class ElementType:
    """One type of elements.

    Attributes
    ----------
    name : str
        The short name, which the device code uses too.
    array : numpy.dtype or None
        The dtype of arrays of such elements; None for types that only kernels use.
    itemsize : int
        Bytes of an element in memory.
    accumulator : str
        The type in which products of such elements are summed.
    computed : str
        The type in which epilogues of such products compute.
    read_in : tuple of str
        The types of epilogues whose kernels can read arrays of such elements. For others, the
        arrays are converted first.
    aliases : tuple of str
        Further names for users, in addition to those of NumPy and ml_dtypes.
    is_precision : bool
        The elements are float32 in memory, and the type says how the matrix unit reads them.
    """

    name: DType
    array: np.dtype[Any] | None
    itemsize: int
    accumulator: DType
    computed: DType
    read_in: tuple[DType, ...] = ()
    aliases: tuple[str, ...] = ()
    is_precision: bool = False

    @property
    def is_half(self) -> bool:
        """Whether the type is a 16-bit float."""
        return self.itemsize == 2 and self.accumulator == "f32"

    @property
    def fits_float32(self) -> bool:
        """Whether an epilogue in float32 can be rounded to the type; false for 8-bit floats."""
        is_array = self.array is not None and not self.is_precision
        return is_array and self.itemsize <= 4 and not self.is_float8

    @property
    def is_complex(self) -> bool:
        """Whether an element has a real and an imaginary part."""
        return self.array is not None and self.array.kind == "c"

    @property
    def is_float8(self) -> bool:
        """Whether the type is an 8-bit float, for which CuPy has no dtype."""
        return self.array is not None and self.array.name.startswith("float8_")


def _row(
    name: DType,
    array: Any,
    *,
    accumulator: DType,
    computed: DType | None = None,
    read_in: tuple[DType, ...] = (),
    aliases: tuple[str, ...] = (),
    is_precision: bool = False,
) -> ElementType:
    """Return a row; by default, an epilogue computes in the type of the sums."""
    dtype = np.dtype(array)
    return ElementType(
        name=name,
        array=dtype,
        itemsize=dtype.itemsize,
        accumulator=accumulator,
        computed=computed or accumulator,
        read_in=read_in,
        aliases=aliases,
        is_precision=is_precision,
    )


_BOTH: tuple[DType, ...] = ("f32", "f64")
_ROWS = (
    _row("bf16", ml_dtypes.bfloat16, accumulator="f32", read_in=_BOTH, aliases=("bf16",)),
    _row("f16", np.float16, accumulator="f32", read_in=_BOTH, aliases=("fp16",)),
    _row("f32", np.float32, accumulator="f32", read_in=_BOTH, aliases=("fp32",)),
    _row("f64", np.float64, accumulator="f64", read_in=("f64",), aliases=("fp64",)),
    _row("i8", np.int8, accumulator="i32", computed="f32", read_in=("f32",)),
    _row("u8", np.uint8, accumulator="i32", computed="f32"),
    _row("i32", np.int32, accumulator="i32", computed="f64", read_in=("f32",)),
    _row("c64", np.complex64, accumulator="c64"),
    _row("c128", np.complex128, accumulator="c128"),
    # 8-bit floats. OCP formats are those of IEEE 754, except for infinities and NaN. The exponent
    # bias of FNUZ formats is larger by one, and they have neither infinities nor a negative zero.
    _row("e4m3fn", ml_dtypes.float8_e4m3fn, accumulator="f32", aliases=("e4m3fn",)),
    _row("e5m2", ml_dtypes.float8_e5m2, accumulator="f32", aliases=("e5m2",)),
    _row("e4m3fnuz", ml_dtypes.float8_e4m3fnuz, accumulator="f32", aliases=("e4m3fnuz",)),
    _row("e5m2fnuz", ml_dtypes.float8_e5m2fnuz, accumulator="f32", aliases=("e5m2fnuz",)),
    # float32; the matrix unit reads only the first 10 bits of its fraction.
    _row("tf32", np.float32, accumulator="f32", is_precision=True),
    # float32 as a sum of two tf32 parts. Three products of parts are added.
    _row("tf32x3", np.float32, accumulator="f32", is_precision=True),
    # A pair of 4-bit floats that are adjacent along k, counted as one element.
    ElementType(name="e2m1x2", array=None, itemsize=1, accumulator="f32", computed="f32"),
)
ELEMENT_TYPES: Mapping[DType, ElementType] = MappingProxyType({row.name: row for row in _ROWS})
"""All element types by name."""
ITEMSIZE: Mapping[DType, int] = MappingProxyType({row.name: row.itemsize for row in _ROWS})
"""Bytes of an element, by the type's name."""
FLOAT8: Mapping[DType, np.dtype[Any]] = MappingProxyType(
    {row.name: row.array for row in _ROWS if row.is_float8 and row.array is not None}
)
"""The dtypes of 8-bit floats, by name."""
FLOAT8_NAMES: tuple[DType, ...] = tuple(FLOAT8)
FLOAT8_DTYPES = frozenset(FLOAT8.values())
COMPLEX_NAMES: tuple[DType, ...] = tuple(row.name for row in _ROWS if row.is_complex)
ELEMENT_OF: Mapping[np.dtype[Any], DType] = MappingProxyType(
    {row.array: row.name for row in _ROWS if row.array is not None and not row.is_precision}
)
"""The element type of an array, by its dtype."""
_ALIASES = {alias: row.array for row in _ROWS for alias in row.aliases}


def named_dtype(name: str) -> np.dtype[Any] | None:
    """Return the dtype that an alias of `ELEMENT_TYPES` or an ml_dtypes name stands for."""
    return _ALIASES.get(name.removeprefix("float8_"))
