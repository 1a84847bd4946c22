"""The arithmetic of collective operations: each rank's result from all ranks' data.

Sums are computed in the order of the ranks, so that results are reproducible bit for bit. 16-bit
floats are added in float32 and rounded once. RCCL's order and roundings depend on its algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

TYPES: tuple[np.dtype[Any], ...] = tuple(
    np.dtype(each)
    for each in (
        np.int8,
        np.uint8,
        np.int32,
        np.uint32,
        np.int64,
        np.uint64,
        np.float16,
        np.float32,
        np.float64,
        ml_dtypes.bfloat16,
    )
)
"""The types by their ncclDataType_t."""
OPERATIONS = ("sum", "prod", "max", "min", "avg")
"""The reductions by their ncclRedOp_t."""
POINT_TO_POINT = ("ncclSend", "ncclRecv")
_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "avg": np.add,
}

Payload = bytes | memoryview


@dataclass(frozen=True, kw_only=True)
class Operation:
    """The parameters of a collective call, on which all ranks must agree.

    Attributes
    ----------
    name : str
        The function, e.g. ``"ncclAllReduce"``.
    count : int
        Its number of elements.
    type : int
        An ncclDataType_t.
    op : int
        An ncclRedOp_t; -1 if nothing is reduced.
    root : int
        The root or the peer, a rank; -1 if there is none.
    """

    name: str
    count: int
    type: int = 0
    op: int = -1
    root: int = -1

    def __str__(self) -> str:
        parts = [f"{self.count} x {TYPES[self.type]}"]
        if self.op >= 0:
            parts.append(OPERATIONS[self.op])
        if self.root >= 0:
            is_pair = self.name in POINT_TO_POINT
            parts.append(f"{'peer' if is_pair else 'root'} {self.root}")
        return f"{self.name} ({', '.join(parts)})"


def results(operation: Operation, sent: Sequence[Payload]) -> list[bytes]:
    """Return the data that each rank receives, by rank; empty for a rank that receives none.

    Parameters
    ----------
    operation : Operation
    sent : sequence of bytes
        The data that each rank sent, by rank.
    """
    size = len(sent)
    nothing = [b""] * size
    if operation.name in ("ncclBroadcast", "ncclBcast"):
        return [bytes(sent[operation.root])] * size
    if operation.name == "ncclAllGather":
        return [b"".join(bytes(each) for each in sent)] * size
    dtype = TYPES[operation.type]
    total = reduced(OPERATIONS[operation.op], [np.frombuffer(each, dtype) for each in sent])
    if operation.name == "ncclReduceScatter":
        return [part.tobytes() for part in total.reshape(size, -1)]
    if operation.name == "ncclReduce":
        return [*nothing[: operation.root], total.tobytes(), *nothing[operation.root + 1 :]]
    return [total.tobytes()] * size


def reduced(op: str, arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the reduction of arrays of one type, in the order of the ranks."""
    dtype = arrays[0].dtype
    wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    total: NDArray[Any] = arrays[0].astype(wide)
    with np.errstate(all="ignore"):
        for array in arrays[1:]:
            total = _FUNCTIONS[op](total, array.astype(wide))
        if op == "avg":
            total = total // len(arrays) if wide.kind in "iu" else total / wide.type(len(arrays))
    return total.astype(dtype)
