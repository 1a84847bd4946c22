"""hipBLAS's handles, and its functions' common arguments: enumerators, vectors, scalars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.host_libraries.library import Call, HostLibrary, LibraryError, implements
from cupygemm.emulator.runtime.status import store_int, store_size

NONE, TRANSPOSE, CONJUGATE = 111, 112, 113  # hipblasOperation_t
UPPER, LOWER = 121, 122  # hipblasFillMode_t
NON_UNIT, UNIT = 131, 132  # hipblasDiagType_t
LEFT, RIGHT = 141, 142  # hipblasSideMode_t
ON_HOST, ON_DEVICE = 0, 1  # hipblasPointerMode_t


@dataclass
class Handle:
    """A handle: the stream of its calls, and the location of scalars."""

    stream: int = 0
    pointer_mode: int = ON_HOST

    @property
    def on_device(self) -> bool:
        """Whether scalars and results are in device memory."""
        return self.pointer_mode == ON_DEVICE


class BlasHandles(HostLibrary):
    """The handles of hipBLAS, rocBLAS or hipSPARSE: values of `Handle` by number."""

    def __init__(self, devices: Any) -> None:
        super().__init__(devices)
        self.handles: dict[int, Handle] = {}

    def stream_of(self, handle: int) -> int:
        """Return the stream of a handle; see `HostLibrary`."""
        return self.handles[handle].stream if handle in self.handles else 0

    def handle(self, handle: int) -> Handle:
        """Return a handle.

        Raises
        ------
        LibraryError
            It does not exist.
        """
        if handle not in self.handles:
            raise LibraryError("not_initialized", f"handle 0x{handle:x} does not exist")
        return self.handles[handle]

    def scalar(self, call: Call, handle: Handle, argument: str, address: int, dtype: Any) -> Any:
        """Return alpha or beta, read from host or device memory by the handle's pointer mode."""
        return call.scalar(argument, address, dtype, on_device=handle.on_device)

    def store(self, call: Call, handle: Handle, address: int, value: Any, dtype: Any) -> None:
        """Store a result in host or device memory by the handle's pointer mode."""
        call.store("result", address, value, dtype, on_device=handle.on_device)

    def create(self, call: Call, where: int) -> None:
        """Create a handle, and store it."""
        call.check(where != 0, "handle is a null pointer")
        number = next(self._handles)
        self.handles[number] = Handle()
        store_size(where, number)

    def destroy(self, handle: int) -> None:
        """Forget a handle."""
        self.handle(handle)
        del self.handles[handle]

    def set_stream(self, handle: int, stream: int) -> None:
        """Set the stream of a handle."""
        self.handle(handle).stream = stream

    def get_stream(self, handle: int, stream: int) -> None:
        """Store the stream of a handle."""
        store_size(stream, self.handle(handle).stream)

    def set_pointer_mode(self, call: Call, handle: int, mode: int) -> None:
        """Set whether scalars are in host or device memory."""
        call.check(mode in {ON_HOST, ON_DEVICE}, f"pointer mode {mode}", "invalid_enum")
        self.handle(handle).pointer_mode = mode


class HipBlasHandles(BlasHandles):
    """The functions of hipBLAS for handles."""

    @implements("hipblasCreate")
    def _create(self, call: Call, handle: int) -> None:
        self.create(call, handle)

    @implements("hipblasDestroy")
    def _destroy(self, call: Call, handle: int) -> None:
        self.destroy(handle)

    @implements("hipblasSetStream")
    def _set_stream(self, call: Call, handle: int, stream: int) -> None:
        self.set_stream(handle, stream)

    @implements("hipblasGetStream")
    def _get_stream(self, call: Call, handle: int, stream: int) -> None:
        self.get_stream(handle, stream)

    @implements("hipblasSetPointerMode")
    def _set_pointer_mode(self, call: Call, handle: int, mode: int) -> None:
        self.set_pointer_mode(call, handle, mode)

    @implements("hipblasGetPointerMode")
    def _get_pointer_mode(self, call: Call, handle: int, mode: int) -> None:
        store_int(mode, self.handle(handle).pointer_mode)


def check_enums(call: Call, **values: int) -> None:
    """Check arguments that are enumerators: op, uplo, diag or side.

    Parameters
    ----------
    call : Call
    **values : int
        The part of the name before an underscore is the kind of enumerator.
    """
    known = {
        "op": {NONE, TRANSPOSE, CONJUGATE},
        "uplo": {UPPER, LOWER},
        "diag": {NON_UNIT, UNIT},
        "side": {LEFT, RIGHT},
    }
    for name, value in values.items():
        kind = name.partition("_")[0]
        call.check(value in known[kind], f"{name}: {value} is no enumerator", "invalid_enum")


def check_sizes(call: Call, **values: int) -> None:
    """Check that sizes are not negative.

    Parameters
    ----------
    call : Call
    **values : int
    """
    for name, value in values.items():
        call.check(value >= 0, f"{name}={value} is negative", "invalid_size")


def check_ld(call: Call, **values: tuple[int, int]) -> None:
    """Check leading dimensions against the rows that they hold.

    Parameters
    ----------
    call : Call
    **values : tuple of int
        The leading dimension and the rows.
    """
    for name, (ld, rows) in values.items():
        what = f"the matrix's {rows} rows" if rows else "1, the least for a matrix without rows"
        call.check(ld >= max(1, rows), f"{name}={ld} is less than {what}", "invalid_size")


def check_pointers(call: Call, **values: int) -> None:
    """Check that pointers are not null.

    Parameters
    ----------
    call : Call
    **values : int
    """
    for name, value in values.items():
        call.check(value != 0, f"{name} is a null pointer", "invalid_pointer")


def vector(
    call: Call,
    argument: str,
    address: int,
    n: int,
    increment: int,
    *,
    access: str = "read",
    dtype: Any = None,
) -> NDArray[Any]:
    """Return a view of a BLAS vector; a negative increment starts at the last element.

    Parameters
    ----------
    call : Call
    argument : str
    address, n, increment : int
    access : {"read", "write", "update"}
    dtype : dtype-like, optional
        By default the function's own.

    Returns
    -------
    numpy.ndarray
    """
    dtype = np.dtype(dtype or call.dtype)
    if increment < 0:
        address -= (n - 1) * increment * dtype.itemsize
    view: NDArray[Any] = getattr(call, access)(argument, address, (n,), dtype, (increment,))
    return view


def applied(matrix: NDArray[Any], operation: int) -> NDArray[Any]:
    """Return op(matrix), a view unless conjugated; for stacks, on the last two axes."""
    if operation == NONE:
        return matrix
    transposed = matrix.swapaxes(-1, -2)
    return transposed.conj() if operation == CONJUGATE else transposed


def triangle(n: int, uplo: int, *, unit: bool = False) -> NDArray[np.bool_]:
    """Return which elements of an n x n matrix are in a triangle, with or without its diagonal."""
    ones = np.ones((n, n), np.bool_)
    return np.triu(ones, int(unit)) if uplo == UPPER else np.tril(ones, -int(unit))
