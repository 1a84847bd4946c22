"""The kernels' epilogue arguments: factors, limits, and the addresses and strides of arrays.

`EPILOGUE_ARGS` is the struct ``EpilogueArgs`` of ``kernels/common/arguments.hpp`` as a NumPy dtype.
Only the numbers and the addresses differ from call to call; the rest is packed once for each
launch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from cupygemm._request.batch import Offsets
from cupygemm._request.epilogue import ARRAYS, EpilogueArguments
from cupygemm._request.layout import Layout

_SOURCE_ARGS = np.dtype(
    [("address", np.uint64), ("pitch", np.int64), ("stride", np.int64, 3)], align=True
)
EPILOGUE_ARGS = np.dtype(
    [(name, np.uint64) for name in ("alpha", "beta", "scale", "low", "high")]
    + [(name, _SOURCE_ARGS) for name in ARRAYS],
    align=True,
)
"""The struct ``EpilogueArgs``."""
_ADDRESS_BYTES = 8


class EpiloguePacker:
    """Packs ``EpilogueArgs`` for one launch, from a call's numbers and the addresses of its arrays.

    Parameters
    ----------
    layout : Layout
    offsets : Offsets
    """

    __slots__ = ("_fields", "_numbers", "_places", "_struct")

    def __init__(self, layout: Layout, offsets: Offsets) -> None:
        constants = np.zeros(1, EPILOGUE_ARGS)
        places = []
        for source, offset in zip(layout.sources, offsets.sources or (0,) * 5, strict=False):
            constants[source.name]["pitch"] = source.pitch
            constants[source.name]["stride"] = source.stride
            places.append((ARRAYS.index(source.name), offset * source.itemsize))
        number = "d" if layout.problem.a_dtype == "f64" else "f4x"
        self._numbers = np.float64 if number == "d" else np.float32
        self._places = tuple(places)
        size = _SOURCE_ARGS.itemsize - _ADDRESS_BYTES
        self._struct = struct.Struct("=" + 5 * number + len(ARRAYS) * f"Q{size}s")
        self._fields: list[Any] = []  # for each array its address, and the rest of its struct
        for name in ARRAYS:
            self._fields += (0, constants[name].tobytes()[_ADDRESS_BYTES:])

    def __call__(self, arguments: EpilogueArguments, arrays: Sequence[Any]) -> bytes:
        """Return the struct; `arrays` are the kernel's arrays, in the order of `ARRAYS`."""
        fields = self._fields.copy()
        for index, offset in self._places:
            fields[2 * index] = (arrays[index].data.ptr + offset) % 2**64
        (alpha, beta, scale, _), clamp = arguments.factors, arguments.clamp
        low, high = clamp or (0.0, 0.0)
        numbers = (alpha.real, beta.real, scale, low, high)
        try:
            return self._struct.pack(*numbers, *fields)
        except OverflowError:  # a number beyond float32 becomes an infinity
            with np.errstate(over="ignore"):
                finite = [float(self._numbers(number)) for number in numbers]
            return self._struct.pack(*finite, *fields)
