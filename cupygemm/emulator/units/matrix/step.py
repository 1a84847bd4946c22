"""Execute the record of a matrix instruction in a group of waves; many waves share threads."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.instruction import M0
from cupygemm.emulator.native import library
from cupygemm.emulator.waves.state import GPR_INDEX, Group


class MatrixStep:
    """A step that executes the record of a matrix instruction."""

    __slots__ = ("_text", "macs", "operation")

    def __init__(self, text: str, operation: Any) -> None:
        self._text = text
        self.operation = operation
        self.macs = operation.m * operation.n * operation.k * operation.blocks

    def __call__(self, group: Group) -> None:
        """Execute the instruction in the waves of a group."""
        if group.state.mode & GPR_INDEX and _is_indexed(group.s(M0)):
            raise UnsupportedInstruction(
                f"{self._text}: a matrix instruction between s_set_gpr_idx_on and s_set_gpr_idx_off"
            )
        _run(self.operation, group, self.macs)


def _is_indexed(m0: NDArray[np.uint32]) -> bool:
    return bool(((m0 & np.uint32(0xFF) != 0) & (m0 & np.uint32(0xF000) != 0)).any())


# Below this many multiply-adds (about 0.1 ms), a second thread costs more than it saves.
_MACS_PER_THREAD = 400_000


@functools.cache
def mfma_run() -> Any:
    """Return ``mfma_run`` of the native library with its signature."""
    run = library().mfma_run
    run.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int64,
    ]
    run.restype = None
    return run


@functools.cache
def _helpers() -> tuple[ThreadPoolExecutor | None, int]:
    """Return a pool of threads to help the calling one, and the total number of threads."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if count is None or count == 1:
        return None, 1
    return ThreadPoolExecutor(count - 1, thread_name_prefix="cupygemm-mfma"), count


def _run(record: Any, group: Group, macs: int) -> None:
    """Execute a record in the waves of `group`."""
    op = ctypes.addressof(record)
    vgpr = group.state.vgpr
    first, count, indices = 0, group.count, None
    if isinstance(group.waves, slice) and group.waves.step in (None, 1):
        first = group.waves.indices(group.state.num_waves)[0]
    else:
        indices = np.ascontiguousarray(group.wave_ids, np.int64)
    pointer = None if indices is None else indices.ctypes.data
    stride = vgpr.strides[0] // 4
    run, base = mfma_run(), vgpr.ctypes.data
    executor, parts = _helpers() if macs * count >= 2 * _MACS_PER_THREAD else (None, 1)
    parts = min(parts, count, macs * count // _MACS_PER_THREAD)
    if executor is None or parts < 2:
        run(op, base, stride, pointer, first, first + count)
        return
    bounds = [first + count * part // parts for part in range(parts + 1)]
    jobs = [
        executor.submit(run, op, base, stride, pointer, begin, end)
        for begin, end in itertools.pairwise(bounds[1:])
    ]
    run(op, base, stride, pointer, bounds[0], bounds[1])
    for job in jobs:
        job.result()
