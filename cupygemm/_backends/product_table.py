"""The element types that a backend's kernels multiply, and the check of a request against them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cupygemm._records.dtypes import ELEMENT_OF, FLOAT8, DType
from cupygemm._records.formats import Precision
from cupygemm._request.request import Request


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The types of results that the kernels store for operands of one type.

    Attributes
    ----------
    plain : tuple of str
        The types without an epilogue.
    fused : tuple of str
        The types with an epilogue; conversions to integers then saturate.
    """

    plain: tuple[DType, ...]
    fused: tuple[DType, ...] = ()

    def of(self, *, has_epilogue: bool) -> tuple[DType, ...]:
        """Return the types of results."""
        return self.fused if has_epilogue else self.plain


ProductTable = Mapping[DType, Outputs]
"""The types of results, by the type of the operands."""


def why_types_unsupported(
    request: Request, products: ProductTable, formats: Collection[DType], precision: Precision
) -> str | None:
    """Return why no kernel supports the types of a request, or None if one does.

    Parameters
    ----------
    request : Request
    products : mapping of str to Outputs
    formats : collection of str
        The 8-bit floats that the device multiplies.
    precision : {"ieee", "tf32", "tf32x3"}
        The precision in which float32 is multiplied.
    """
    if request.moduli:
        return "precision asks for products of int8"
    types = request.types
    stored = ELEMENT_OF.get(types.stored)
    lacking = FLOAT8.keys() - set(formats)
    for dtype in (types.x1, types.x2):
        name = ELEMENT_OF.get(dtype)
        if name == "f32" and precision != "ieee":
            name = precision
        row = None if name in lacking or name is None else products.get(name)
        outputs = () if row is None else row.of(has_epilogue=request.epilogue is not None)
        if stored not in outputs or stored in lacking:
            operands = (
                f"{types.x1} operands" if types.x1 == types.x2 else f"{types.x1} and {types.x2}"
            )
            fused = "" if request.epilogue is None else " with an epilogue"
            return f"cupygemm has no kernel yet for {operands} and a {types.stored} product{fused}"
    return None
