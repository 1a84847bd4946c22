"""The types of a matrix product: of the operands, of what is stored, and of the result.

Promotion and casting follow NumPy's ufuncs, with one exception: 16-bit operands are summed in
float32, and the sums are rounded once, to the type that is stored. With ``dtype=float32`` or an
``out`` of float32, bfloat16 operands stay bfloat16 and nothing is rounded in between. NumPy would
convert the operands first, and CuPy would round the sums to 16 bits. In the same way int8 operands
stay int8 under ``dtype=int32``, since the sums are the same.

Products of 8-bit floats are float32 unless another type is requested: the unrounded sums, in a type
that CuPy can compute with. (NumPy would sum in 8 bits.) A product may mix the two formats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from cupygemm._records.dtypes import ELEMENT_OF, ELEMENT_TYPES, FLOAT8_DTYPES
from cupygemm._records.formats import container

BF16 = np.dtype(ml_dtypes.bfloat16)
F16 = np.dtype(np.float16)
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
C64, C128 = np.dtype(np.complex64), np.dtype(np.complex128)
I8, U8, I32 = np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int32)
_ROWS = {dtype: ELEMENT_TYPES[name] for dtype, name in ELEMENT_OF.items()}
HALVES = tuple(dtype for dtype, row in _ROWS.items() if row.is_half)
SUMS_OF_HALVES = (*HALVES, F32)
"""Types to which sums of 16-bit floats, which are float32, are rounded once."""
COMPUTED_IN_F32 = tuple(dtype for dtype, row in _ROWS.items() if row.computed == "f32")
"""Types of operands whose epilogues compute in float32; those of other real types, in float64."""
RESULTS_OF_EPILOGUES = tuple(dtype for dtype, row in _ROWS.items() if row.fits_float32)
"""Types to which an epilogue rounds, so that operands need not be converted to them first."""
_SUMS_IN_F32 = (*SUMS_OF_HALVES, *FLOAT8_DTYPES)  # types to which sums in float32 are rounded
CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")


@dataclass(frozen=True)
class ProductTypes:
    """The types of one product.

    Attributes
    ----------
    x1, x2 : numpy.dtype
        The types in which the operands are multiplied. They differ only in formats of 8-bit floats.
    stored : numpy.dtype
        The type to which the product is rounded, once.
    result : numpy.dtype
        The type of the result: that of ``out``, or `stored`.
    """

    x1: np.dtype[Any]
    x2: np.dtype[Any]
    stored: np.dtype[Any]
    result: np.dtype[Any]

    @property
    def operand(self) -> np.dtype[Any]:
        """Return the common type of the operands, or that of x1 if formats of 8-bit floats mix."""
        return self.x1

    @property
    def container(self) -> np.dtype[Any]:
        """Return the dtype of the array that kernels write."""
        return container(self.stored)

    @property
    def accumulator(self) -> np.dtype[Any]:
        """Return the type of the sums, before an epilogue."""
        if self.operand in (I8, U8):
            return I32
        return self.computed

    @property
    def saturates(self) -> bool:
        """Whether an epilogue saturates the result, even if its options change no number.

        Integer sums that are stored unchanged need no epilogue for that.
        """
        return self.stored.kind in "iu" and self.stored != self.accumulator

    @property
    def computed(self) -> np.dtype[Any]:
        """Return the type in which an epilogue computes."""
        if self.operand in COMPUTED_IN_F32:
            return F32
        return self.operand if self.operand.kind == "c" else F64


def product_types(
    x1: np.dtype[Any],
    x2: np.dtype[Any],
    *,
    out: np.dtype[Any] | None = None,
    dtype: np.dtype[Any] | None = None,
    casting: str = "same_kind",
    epilogue: bool = False,
) -> ProductTypes:
    """Return the types of ``matmul`` from those of its arguments.

    An `epilogue` computes in its own type and rounds to the type of ``out``. Operands whose sums
    are exact are then not converted, whatever the type of the result is.

    Raises
    ------
    TypeError
        The operands have no common type, or `casting` forbids a conversion.
    ValueError
        `casting` is not one of NumPy's rules.
    """
    if casting not in CASTINGS:
        raise ValueError(
            f"matmul: casting must be one of {', '.join(map(repr, CASTINGS))} (got {casting!r})"
        )
    for name, given in (("x1", x1), ("x2", x2), ("out", out), ("dtype", dtype)):
        if given is None:
            continue
        check_byte_order(name, given)
        if not is_number(given):
            which = given if name == "dtype" else f"{given} of {name}"
            raise TypeError(f"matmul: the dtype {which} has no matrix product")
    if FLOAT8_DTYPES & {x1, x2, out, dtype}:
        return _types_of_float8(x1, x2, out, dtype, casting)
    if dtype is None:
        loop = operand = _common_type(x1, x2)
    else:
        loop, operand = dtype, _operand_type(x1, x2, dtype, epilogue=epilogue)
    for name, given in (("x1", x1), ("x2", x2)):
        if not np.can_cast(given, loop, casting):  # type: ignore[arg-type]
            raise TypeError(_cannot_cast(name, given, loop, casting))
    if out is None:
        return ProductTypes(operand, operand, loop, loop)
    if not np.can_cast(loop, out, casting):  # type: ignore[arg-type]
        raise TypeError(_cannot_cast("output", loop, out, casting))
    if epilogue and dtype is None:
        wider = operand in COMPUTED_IN_F32 and out not in RESULTS_OF_EPILOGUES and out.kind in "fc"
        return ProductTypes(operand, operand, F32 if wider else out, out)
    stored = _stored_type(operand, loop, out, given=dtype is not None)
    return ProductTypes(operand, operand, stored, out)


def _types_of_float8(
    x1: np.dtype[Any],
    x2: np.dtype[Any],
    out: np.dtype[Any] | None,
    dtype: np.dtype[Any] | None,
    casting: str,
) -> ProductTypes:
    """Return the types of a product with 8-bit floats, which is always rounded once."""
    if (x1 in FLOAT8_DTYPES) != (x2 in FLOAT8_DTYPES):
        raise TypeError(
            f"matmul: x1 of dtype {x1} and x2 of dtype {x2} have no common dtype; convert one, or "
            "say with format_a and format_b what format of 8-bit floats a uint8 array holds"
        )
    operands = (x1, x2) if x1 in FLOAT8_DTYPES else (_common_type(x1, x2),) * 2
    stored = dtype if dtype is not None else out if out is not None else F32
    for given in (out, dtype):
        if given is not None and given not in _SUMS_IN_F32:
            raise TypeError(
                f"matmul: a product of {operands[0]} cannot be rounded to {given}; it can to "
                "float32, float16, bfloat16 or an 8-bit float"
            )
    if operands[0] not in _SUMS_IN_F32:
        raise TypeError(
            f"matmul: a product of {operands[0]} cannot be rounded to {stored}; convert the "
            "operands to float32 or fewer bits"
        )
    if out is not None and out != stored:
        raise TypeError(
            f"matmul: out has dtype {out}, not the {stored} that dtype asks for; 8-bit floats are "
            "rounded to once"
        )
    if not _can_round(operands, stored, casting):
        raise TypeError(_cannot_cast("output", operands[0], stored, casting))
    return ProductTypes(*operands, stored, stored)


def _can_round(operands: tuple[np.dtype[Any], ...], stored: np.dtype[Any], casting: str) -> bool:
    """Whether `casting` allows rounding to `stored`; all are floating-point types."""
    if casting in ("no", "equiv"):
        return operands == (stored, stored)
    return stored == F32 or casting in ("same_kind", "unsafe")


def _common_type(x1: np.dtype[Any], x2: np.dtype[Any]) -> np.dtype[Any]:
    try:
        return np.result_type(x1, x2)
    except TypeError as err:
        raise TypeError(
            f"matmul: x1 of dtype {x1} and x2 of dtype {x2} have no common dtype; "
            "convert one with astype, or say what to multiply in, e.g. dtype='float32'"
        ) from err


def _operand_type(
    x1: np.dtype[Any], x2: np.dtype[Any], dtype: np.dtype[Any], *, epilogue: bool
) -> np.dtype[Any]:
    """Return the type to multiply in if the caller requests `dtype`.

    16-bit operands are not converted if float32 sums can be rounded to `dtype`, and int8 operands
    are not converted if it is int32. Otherwise the type is the wider one of the operands' type and
    `dtype`, so that narrowing comes last. If only an unsafe cast leads to `dtype`, such as from a
    complex or a floating-point type, the operands are converted to it first, as in NumPy.
    """
    try:
        common = np.result_type(x1, x2)
        if (common in HALVES and dtype in SUMS_OF_HALVES) or (common, dtype) == (I8, I32):
            return common
        if epilogue and common in COMPUTED_IN_F32 and dtype in RESULTS_OF_EPILOGUES:
            return common
        if epilogue and common == F64 and dtype in RESULTS_OF_EPILOGUES and dtype not in HALVES:
            return common
        wider = np.result_type(common, dtype)
    except TypeError:
        return dtype
    if wider == F64 and dtype in HALVES:
        return F32  # NumPy converts to `dtype` itself; no kernel rounds float64 to 16 bits
    return wider if np.can_cast(wider, dtype, "same_kind") else dtype


def _stored_type(
    operand: np.dtype[Any], loop: np.dtype[Any], out: np.dtype[Any], *, given: bool
) -> np.dtype[Any]:
    """Return the type to which the product is rounded before it is converted to that of ``out``.

    This is an explicit ``dtype=``, unless rounding once, to the type of ``out``, gives the same.
    """
    if operand not in HALVES:
        return loop
    if out in SUMS_OF_HALVES:
        return loop if given and loop != F32 else out
    return F32 if not given and np.can_cast(F32, out, "safe") else loop


def check_byte_order(name: str, dtype: np.dtype[Any]) -> None:
    """Raise TypeError unless a type has the byte order of the device, which is the host's."""
    if not dtype.isnative:
        given = repr(dtype.str) if name == "dtype" else f"an array of dtype {dtype.str!r}"
        raise TypeError(
            f"matmul: {name} is {given}, whose byte order is not that of the device; use "
            f"{dtype.newbyteorder('=').str!r}"
        )


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether a type is numeric."""
    return dtype.kind in "biufc" or dtype == BF16 or dtype in FLOAT8_DTYPES


def _cannot_cast(what: str, source: np.dtype[Any], target: np.dtype[Any], casting: str) -> str:
    return (
        f"matmul: cannot cast {what} from dtype('{source}') to dtype('{target}') "
        f"with casting rule '{casting}'"
    )
