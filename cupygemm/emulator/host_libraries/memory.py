"""A call's operands: views of device memory, checked like a kernel's accesses.

Addresses come from C without sizes. A view has a shape, and strides in elements; it is an error if
it leaves its allocation. Memory that is read must have been written; memory that is written becomes
defined.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import DTypeLike, NDArray

from cupygemm.emulator.concurrency.stream_order import Stretch
from cupygemm.emulator.diagnostics.checking import policy
from cupygemm.emulator.diagnostics.findings import report_call
from cupygemm.emulator.errors import EmulatorError
from cupygemm.emulator.memory.allocations import Memory

_MOST_STRETCHES = 256  # of an operand; one with more is not checked against other streams


class HostCallFault(EmulatorError):
    """A library call accessed memory that it must not access.

    Attributes
    ----------
    function, argument : str
    kind : str
        For example ``"out-of-bounds read"``.
    address : int
    """

    def __init__(self, function: str, argument: str, kind: str, detail: str, address: int) -> None:
        self.function, self.argument, self.kind, self.address = function, argument, kind, address
        super().__init__(
            f"{kind}\n  in {function}, argument {argument}\n  address 0x{address:x}\n  {detail}"
        )


def stretches(address: int, view: NDArray[Any], *, writes: bool) -> list[Stretch]:
    """Return the memory of a view whose first element is at `address`.

    Parameters
    ----------
    address : int
    view : numpy.ndarray
    writes : bool

    Returns
    -------
    list of Stretch
        Empty if they were more than a few hundred.
    """
    axes = sorted(
        (abs(step), n, step) for n, step in zip(view.shape, view.strides, strict=True) if n > 1
    )
    address += sum((n - 1) * step for _, n, step in axes if step < 0)
    run = view.itemsize
    while axes and axes[0][0] <= run:
        run += (axes[0][1] - 1) * axes.pop(0)[0]
    if not axes:
        return [Stretch.plain(address, run, writes=writes)]
    pitch, rows, _ = axes.pop(0)
    if math.prod(n for _, n, _ in axes) > _MOST_STRETCHES:
        return []
    starts = [address]
    for step, n, _ in axes:
        starts = [start + i * step for start in starts for i in range(n)]
    end = (rows - 1) * pitch + run
    return [Stretch(start, start + end, pitch, run, writes) for start in starts]


@dataclass
class Operands:
    """The operands of one call.

    Attributes
    ----------
    function : str
    memory : Memory
    read_bytes, written_bytes : int
        Bytes of the operands requested so far.
    """

    function: str
    memory: Memory
    read_bytes: int = 0
    written_bytes: int = 0

    def read(
        self,
        argument: str,
        address: int,
        shape: Sequence[int],
        dtype: DTypeLike,
        strides: Sequence[int] | None = None,
        *,
        used: NDArray[np.bool_] | None = None,
    ) -> NDArray[Any]:
        """Return a view of an operand that the call reads.

        Parameters
        ----------
        argument : str
            The operand's name, for reports.
        address : int
            The address of the element with index 0.
        shape : sequence of int
        dtype : dtype-like
        strides : sequence of int, optional
            In elements; row-major without gaps by default.
        used : numpy.ndarray, optional
            Bool array of that shape: the elements that are read, by default all.

        Returns
        -------
        numpy.ndarray
            Read-only.

        Raises
        ------
        HostCallFault
            The operand leaves its allocation, or part of it was never written.
        """
        found = self._view(argument, "read", address, shape, dtype, strides)
        self._check_written(argument, address, found, used)
        self.read_bytes += found.nbytes
        found.flags.writeable = False
        return found

    def write(
        self,
        argument: str,
        address: int,
        shape: Sequence[int],
        dtype: DTypeLike,
        strides: Sequence[int] | None = None,
        *,
        used: NDArray[np.bool_] | None = None,
    ) -> NDArray[Any]:
        """Return a view of an operand that the call writes; parameters as for `read`."""
        found = self._view(argument, "write", address, shape, dtype, strides)
        self._define(address, found, used)
        self.written_bytes += found.nbytes
        return found

    def update(
        self,
        argument: str,
        address: int,
        shape: Sequence[int],
        dtype: DTypeLike,
        strides: Sequence[int] | None = None,
        *,
        used: NDArray[np.bool_] | None = None,
    ) -> NDArray[Any]:
        """Return a view of an operand that the call reads and overwrites."""
        self.read(argument, address, shape, dtype, strides, used=used)
        return self.write(argument, address, shape, dtype, strides, used=used)

    def _view(
        self,
        argument: str,
        access: str,
        address: int,
        shape: Sequence[int],
        dtype: DTypeLike,
        strides: Sequence[int] | None,
    ) -> NDArray[Any]:
        dtype = np.dtype(dtype)
        shape = tuple(shape)
        if 0 in shape:
            return np.empty(shape, dtype)
        if strides is None:
            strides = [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
        reach = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
        low = sum(min(0, each) for each in reach)
        high = sum(max(0, each) for each in reach)
        first = address + low * dtype.itemsize
        size = (high - low + 1) * dtype.itemsize
        if not self.memory.contains(first, size):
            fault = HostCallFault(
                self.function,
                argument,
                f"out-of-bounds {access}",
                f"{size} bytes at 0x{first:x}: {self.memory.describe(first, size)}",
                first,
            )
            report_call(fault, "error")
        flat = np.frombuffer(memoryview((ctypes.c_char * size).from_address(first)), dtype)
        steps = [stride * dtype.itemsize for stride in strides]
        return as_strided(flat[-low:], shape, steps)

    def _check_written(
        self, argument: str, address: int, view: NDArray[Any], used: NDArray[np.bool_] | None
    ) -> None:
        shadow = self.memory.shadow
        if shadow is None or not view.size or policy()["uninitialised"] == "off":
            return
        written = self._written(address, view)
        if written is None:
            return
        if used is not None:
            written = written | ~used
        if written.all():
            return
        index = tuple(map(int, np.unravel_index(int(np.argmin(written)), view.shape)))
        place = address + sum(i * s for i, s in zip(index, view.strides, strict=True))
        fault = HostCallFault(
            self.function,
            argument,
            "read of memory that was never written",
            f"element {index} of {view.shape}, and {int((~written).sum()) - 1} others: "
            f"{self.memory.describe(place, view.itemsize)}",
            place,
        )
        report_call(fault, policy()["uninitialised"])

    def _written(self, address: int, view: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Return which elements have all their bytes written; None if all have."""
        cells, start = self._cells(address, view)
        if (cells == 0xFF).all():
            return None
        bits = np.unpackbits(cells, bitorder="little")
        found = as_strided(
            bits[start:], (*view.shape, view.itemsize), (*view.strides, 1), writeable=False
        )
        written: NDArray[np.bool_] = np.asarray(found.all(axis=-1))
        return written

    def _define(self, address: int, view: NDArray[Any], used: NDArray[np.bool_] | None) -> None:
        shadow = self.memory.shadow
        if shadow is None or not view.size:
            return
        if used is None and (view.flags.c_contiguous or view.flags.f_contiguous):
            shadow.define(address, view.nbytes)
            return
        cells, start = self._cells(address, view)
        bits = np.unpackbits(cells, bitorder="little")
        of_elements = as_strided(bits[start:], (*view.shape, view.itemsize), (*view.strides, 1))
        of_elements[... if used is None else used] = 1
        cells[:] = np.packbits(bits, bitorder="little")

    def _cells(self, address: int, view: NDArray[Any]) -> tuple[NDArray[np.uint8], int]:
        """Return a view's bytes of shadow memory, and the bit of its first element in them."""
        shadow = self.memory.shadow
        assert shadow is not None
        reach = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)]
        first = address + sum(min(0, each) for each in reach) - shadow.base
        end = address + sum(max(0, each) for each in reach) + view.itemsize - shadow.base
        cell = first // 8
        count = -(-end // 8) - cell
        cells = np.frombuffer(
            (ctypes.c_uint8 * count).from_address(shadow.defined + cell), np.uint8
        )
        return cells, address - shadow.base - 8 * cell
