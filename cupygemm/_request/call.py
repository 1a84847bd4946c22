"""The arguments of a call of `matmul`: found to be of the right kind, on one device, and posed.

The table of plans knows shapes, strides and types; what it cannot know is checked here, once for
each new plan: what kind of objects the arguments are, and whether ``out`` overlaps an operand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import DTypeLike

from cupygemm._backends.device import Device, device
from cupygemm._epilogue.options import ARRAYS
from cupygemm._records.formats import container, operand_dtype, result_dtype
from cupygemm._request.arrays import as_array, may_overlap, one_device, single_out
from cupygemm._request.layout import Operand
from cupygemm._request.options import CallOptions, Options
from cupygemm._request.promotion import F32
from cupygemm._request.request import Posed, pose


@dataclass(frozen=True)
class Call:
    """The arguments of a call, found to be of the right kind and on one device."""

    x1: Operand
    x2: Operand
    out: Any
    options: Options
    device: Device
    aliased: bool

    @property
    def target(self) -> Operand | None:
        """Where ``out`` lies; bytes that are to hold 8-bit floats are those."""
        if self.out is None:
            return None
        out = _operand(self.out)
        if self.options.dtype is None or container(self.options.dtype) != out.dtype:
            return out
        return replace(out, dtype=self.options.dtype)

    @property
    def posed(self) -> Posed:
        return pose(
            self.x1,
            self.x2,
            self.target,
            replace(self.options, precision=self.device.precision(self.options.precision)),
            products=self.device.products,
            epilogue_products=self.device.epilogue_products,
            row_bytes=self.device.row_bytes,
            aliased=self.aliased,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of options that have no effect."""
        asked = self.options.precision
        if asked == self.device.precision(asked) or self.posed.types.operand != F32:
            return ()
        return (f"{self.device.name} has no {asked}: float32 is multiplied exactly",)

    def describe(self) -> str:
        posed = self.posed
        return (
            f"matmul: {self.x1.dtype} {self.x1.shape} @ {self.x2.dtype} {self.x2.shape} "
            f"-> {posed.types.result} {posed.shape.result}"
        )


def check_call(
    x1: Any, x2: Any, out: Any, dtype: DTypeLike | None, casting: str, given: CallOptions
) -> Call:
    """Check what the table of plans cannot know: kinds of objects, and devices."""
    x1, x2, out = adopted(x1, x2, single_out("matmul", out))
    arrays = {"x1": x1, "x2": x2} | ({} if out is None else {"out": out})
    epilogue = given.epilogue
    if epilogue is not None:
        for name, array in zip(ARRAYS, epilogue.arrays, strict=True):
            if array is not None:
                arrays[name] = array
    one_device("matmul", arrays)
    return Call(
        _tagged("x1", x1, "format_a", given.format_a),
        _tagged("x2", x2, "format_b", given.format_b),
        out,
        Options(
            result_dtype(dtype),
            casting,
            given.precision,
            None if epilogue is None else epilogue.request,
            given.reproducible,
        ),
        device(x1.data.device_id),
        out is not None
        and (may_overlap(out, x1) or may_overlap(out, x2) or overlaps_epilogue(out, given)),
    )


def overlaps_epilogue(out: Any, given: CallOptions) -> bool:
    """Whether writing ``out`` may change what is yet to be read of an epilogue's arrays.

    Not if `c` lies as it does: each element is read before its result is written.
    """
    if given.epilogue is None:
        return False
    for name, array in zip(ARRAYS, given.epilogue.arrays, strict=True):
        if array is None or (
            name == "c" and array.data.ptr == out.data.ptr and signature(array) == signature(out)
        ):
            continue
        if may_overlap(out, array):
            return True
    return False


def adopted(x1: Any, x2: Any, out: Any) -> tuple[Any, Any, Any]:
    """Return the arguments as CuPy arrays of the same memory; see `as_array`."""
    x1, x2 = as_array("matmul", "x1", x1), as_array("matmul", "x2", x2)
    return x1, x2, out if out is None else as_array("matmul", "out", out)


def _tagged(name: str, array: Any, keyword: str, given: Any) -> Operand:
    """Return where an operand lies, with the dtype that its format tag gives it."""
    operand = _operand(array)
    return replace(operand, dtype=operand_dtype(name, keyword, operand.dtype, given))


def signature(array: Any) -> tuple[Any, ...]:
    """Return what a plan depends on."""
    memory = array.data
    return array.shape, array.strides, array.dtype, memory.ptr & 15, memory.device_id


def _operand(array: Any) -> Operand:
    return Operand(array.shape, array.strides, array.dtype, array.data.ptr)
