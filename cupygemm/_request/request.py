"""`Request`: one requested matrix product, described by shapes and types alone.

A request holds exactly what a plan depends on: no arrays, only the alignment of pointers, and
nothing that is specific to a backend.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Literal

from cupygemm._records.formats import Precision, moduli_of
from cupygemm._records.shapes import ProductShape, product_shape
from cupygemm._request.epilogue import NO_EPILOGUE, EpilogueRequest, check_request
from cupygemm._request.layout import Operand, overlaps_itself
from cupygemm._request.options import Options
from cupygemm._request.promotion import F32, F64, ProductTypes, product_types

Work = Literal["empty", "zeros", "product"]
PLAIN = Options()


@dataclass(frozen=True, kw_only=True)
class Request:
    """One requested product.

    Attributes
    ----------
    x1, x2 : Operand
        The places of the operands.
    out : Operand or None
        The place of the result; None for a new array.
    shape : ProductShape
    types : ProductTypes
    epilogue : EpilogueRequest or None
        The operations on the sums before they are rounded. It is None also if the options of a call
        change no number, such as ``alpha=1``, and the result is not an integer that they saturate.
    precision : {"ieee", "tf32", "tf32x3"}
        The lowest precision in which float32 may be multiplied.
    reproducible : bool
        Whether all sums must be independent of the order in which workgroups run.
    aliased : bool
        Whether the memory of ``out`` overlaps that of an array that is read.
    """

    x1: Operand
    x2: Operand
    out: Operand | None
    shape: ProductShape
    types: ProductTypes
    epilogue: EpilogueRequest | None = None
    precision: Precision = "ieee"
    reproducible: bool = True
    aliased: bool = False

    @property
    def work(self) -> Work:
        """Return the kind of work: none, a fill with zeros, or a product."""
        if self.shape.size == 0:
            return "empty"
        return "zeros" if self.shape.k == 0 else "product"

    @property
    def moduli(self) -> int:
        """Return the number of moduli of a product by residues; 0 for other products."""
        return moduli_of(self.precision) if self.types.operand in (F32, F64) else 0

    @property
    def sums(self) -> Request:
        """Return the request for the sums alone, in a new array of the accumulator's type."""
        options = Options(
            dtype=self.types.accumulator,
            casting="unsafe",
            precision=self.precision,
            reproducible=self.reproducible,
        )
        return make_request(self.x1, self.x2, options=options)

    @property
    def summary(self) -> str:
        """Return the operands and the result in one line."""
        return (
            f"matmul: {self.x1.dtype} {self.x1.shape} @ {self.x2.dtype} {self.x2.shape} "
            f"-> {self.types.result} {self.shape.result}"
        )

    def at_any_address(self) -> Request:
        """Return the request with each address reduced to its alignment, as plans depend on it."""
        x1, x2 = (replace(x, address=x.address & 15) for x in (self.x1, self.x2))
        out = None if self.out is None else replace(self.out, address=self.out.address & 15)
        return replace(self, x1=x1, x2=x2, out=out)


def make_request(
    x1: Operand,
    x2: Operand,
    out: Operand | None = None,
    *,
    options: Options = PLAIN,
    aliased: bool = False,
) -> Request:
    """Return the request for ``matmul(x1, x2, out, **options)``.

    Raises
    ------
    ValueError
        The shapes do not match, or the elements of ``out`` overlap each other.
    TypeError
        The types have no product, or a conversion is not allowed.
    """
    epilogue = options.epilogue
    types_of = functools.partial(
        product_types,
        x1.dtype,
        x2.dtype,
        out=None if out is None else out.dtype,
        dtype=options.dtype,
        casting=options.casting,
    )
    types = types_of(epilogue=epilogue is not None)
    if epilogue == NO_EPILOGUE and not types.saturates:
        epilogue, types = None, types_of()
    # As in NumPy, a conversion that is not allowed comes before shapes that do not match.
    shape = product_shape(x1.shape, x2.shape, None if out is None else out.shape)
    if epilogue is not None:
        check_request(epilogue, shape, types)
    if out is not None and overlaps_itself(out):
        raise ValueError(
            f"matmul: several elements of out, shape {out.shape} and strides {out.strides} bytes, "
            "share an address; pass an array that is not broadcast"
        )
    return Request(
        x1=x1,
        x2=x2,
        out=out,
        shape=shape,
        types=types,
        epilogue=epilogue,
        precision=options.precision,
        reproducible=options.reproducible,
        aliased=aliased,
    )
