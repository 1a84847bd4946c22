"""A substitute for cuBLASLt's C library, which multiplies arrays in host memory by NumPy.

It has the functions that `cupygemm._backends.cublaslt.library` calls. The objects of the API are
records behind numbers, as pointers are.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import numpy as np

from cupygemm._backends.cublaslt.library import OP_T, TYPES

INVALID = 7
WORKSPACE_BYTES = 1024
ALGORITHMS = (  # algorithm, parts of k, waves
    (21, 1, 0.5),
    (24, 4, 1.0),
)
_NAMES = {number: name for name, number in TYPES.items()}
_COUNT, _STRIDE = 5, 6
_TRANS = (3, 4)
_ALGORITHM, _SPLIT_K = 0, 2


class FakeLibrary:
    """The C functions, as methods that take what ctypes would pass on."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.records: dict[int, dict[Any, Any]] = {}
        self.calls: list[tuple[int, int]] = []  # algorithm and workspace of each product
        self.preferences: dict[int, int] = {}  # the last ones

    def _made(self, reference: Any, **record: Any) -> int:
        number = next(self._numbers)
        self.records[number] = record
        reference._obj.value = number
        return 0

    def _destroyed(self, pointer: Any) -> int:
        del self.records[pointer.value]
        return 0

    def _set(self, pointer: Any, attribute: int, value: Any, size: Any) -> int:
        assert ctypes.sizeof(value._obj) == size.value
        self.records[pointer.value][attribute] = value._obj.value
        return 0

    def cublasLtCreate(self, reference: Any) -> int:
        return self._made(reference)

    def cublasLtMatrixLayoutCreate(
        self, reference: Any, kind: int, rows: Any, columns: Any, pitch: Any
    ) -> int:
        if pitch.value < rows.value:
            return INVALID
        record = {"rows": rows.value, "columns": columns.value, "pitch": pitch.value}
        return self._made(reference, dtype=np.dtype(_NAMES[kind]), **record)

    def cublasLtMatmulDescCreate(self, reference: Any, compute: int, scale: int) -> int:
        return self._made(reference, compute=compute, scale=np.dtype(_NAMES[scale]))

    def cublasLtMatmulPreferenceCreate(self, reference: Any) -> int:
        return self._made(reference)

    cublasLtMatrixLayoutDestroy = cublasLtMatmulDescDestroy = _destroyed
    cublasLtMatrixLayoutSetAttribute = cublasLtMatmulDescSetAttribute = _set
    cublasLtMatmulPreferenceSetAttribute = _set

    def cublasLtMatmulPreferenceDestroy(self, pointer: Any) -> int:
        self.preferences = dict(self.records[pointer.value])
        return self._destroyed(pointer)

    def cublasLtMatmulAlgoGetHeuristic(self, *arguments: Any) -> int:
        *_, most, results, count = arguments
        found = ALGORITHMS[:most]
        for result, (algorithm, split_k, waves) in zip(results, found, strict=False):
            result.algorithm.data[0], result.algorithm.data[1] = algorithm, split_k
            result.workspace_bytes = WORKSPACE_BYTES if split_k > 1 else 0
            result.waves = waves
        count._obj.value = len(found)
        return 0

    def cublasLtMatmulAlgoConfigGetAttribute(
        self, algorithm: Any, attribute: int, value: Any, size: Any, written: Any
    ) -> int:
        data = algorithm._obj.data
        value._obj.value = {_ALGORITHM: data[0], _SPLIT_K: data[1]}.get(attribute, 0)
        written._obj.value = size.value
        return 0

    def cublasLtMatmulAlgoInit(self, *arguments: Any) -> int:
        *_, number, algorithm = arguments
        algorithm._obj.data[0], algorithm._obj.data[1] = number, 1
        return 0 if number in {each[0] for each in ALGORITHMS} else INVALID

    def cublasLtMatmulAlgoConfigSetAttribute(
        self, algorithm: Any, attribute: int, value: Any, size: Any
    ) -> int:
        if attribute == _SPLIT_K:
            algorithm._obj.data[1] = value._obj.value
        return 0

    def cublasLtMatmulAlgoCheck(self, *arguments: Any) -> int:
        *_, algorithm, result = arguments
        result._obj.workspace_bytes = WORKSPACE_BYTES if algorithm._obj.data[1] > 1 else 0
        return 0

    def cublasLtMatmul(
        self,
        handle: int,
        description: int,
        alpha: int,
        a: int,
        of_a: int,
        b: int,
        of_b: int,
        beta: int,
        c: int,
        of_c: int,
        d: int,
        of_d: int,
        algorithm: int,
        workspace: int,
        size: int,
        stream: int,
    ) -> int:
        assert (c, of_c) == (d, of_d)
        record = self.records[description]
        one, zero = (self._scalar(each, record["scale"]) for each in (alpha, beta))
        assert (one, zero) == (1, 0)
        data = (ctypes.c_uint64 * 8).from_address(algorithm)
        assert bool(workspace) == bool(size) == (data[1] > 1)
        self.calls.append((data[0], size))
        first, second, result = (self._stack(*each) for each in ((a, of_a), (b, of_b), (d, of_d)))
        if record.get(_TRANS[0]) == OP_T:
            first = first.swapaxes(1, 2)
        if record.get(_TRANS[1]) == OP_T:
            second = second.swapaxes(1, 2)
        result[...] = first @ second
        return 0

    @staticmethod
    def _scalar(address: int, dtype: np.dtype[Any]) -> Any:
        return np.frombuffer((ctypes.c_char * dtype.itemsize).from_address(address), dtype)[0]

    def _stack(self, address: int, layout: int) -> Any:
        """Return matrices that are counted by columns, (count, rows, columns)."""
        record = self.records[layout]
        dtype, rows, columns = record["dtype"], record["rows"], record["columns"]
        count, stride = record.get(_COUNT, 1), record.get(_STRIDE, 0)
        reach = (count - 1) * stride + (columns - 1) * record["pitch"] + rows
        memory = (ctypes.c_char * (reach * dtype.itemsize)).from_address(address)
        strides = [dtype.itemsize * each for each in (stride, 1, record["pitch"])]
        return np.ndarray((count, rows, columns), dtype, memory, 0, strides)
