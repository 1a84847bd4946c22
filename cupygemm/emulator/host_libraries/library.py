"""The common part of the stand-in libraries: entry points, statuses and messages.

A method that implements a family of functions receives a `Call` and the C arguments, with pointers
as integers. It returns nothing on success, and raises `LibraryError` or a fault of its operands on
failure. CuPy's exceptions have only a status, so the message is kept until `messages` adds it.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.concurrency.stream_order import Operation, Queue, StreamOrder
from cupygemm.emulator.concurrency.stream_races import touch
from cupygemm.emulator.device import Device
from cupygemm.emulator.errors import EmulatorError
from cupygemm.emulator.host_libraries.listing import Entry, read_listing
from cupygemm.emulator.host_libraries.memory import HostCallFault, Operands, stretches
from cupygemm.emulator.peers import Devices
from cupygemm.emulator.profiling import active
from cupygemm.emulator.profiling.host_call import HostCall
from cupygemm.emulator.runtime.answering import answering

TABLE = "https://github.com/cupygemm/cupygemm/blob/main/docs/reference/rocm_libraries.rst"
_DTYPES = {"S": "f4", "D": "f8", "C": "c8", "Z": "c16"}

Method = Callable[..., None]


class LibraryError(Exception):
    """An error that ends a call with a status and a message.

    Parameters
    ----------
    problem : str
        A key of the library's statuses, e.g. ``"invalid_value"``.
    message : str
    """

    def __init__(self, problem: str, message: str) -> None:
        super().__init__(message)
        self.problem = problem


def implements(*families: str) -> Callable[[Method], Method]:
    """Mark a method as the implementation of families of functions.

    Parameters
    ----------
    *families : str
        Names from the listing.

    Returns
    -------
    callable
        The decorator.
    """

    def mark(method: Method) -> Method:
        method.families = families  # type: ignore[attr-defined]
        return method

    return mark


@dataclass
class Call(Operands):
    """One call of a library function, with its operands.

    Attributes
    ----------
    letters : str
        The part of the name that distinguishes the members of its family, such as ``"S"``.
    is_captured : bool
        Whether the call's stream is being captured.
    order : StreamOrder or None
        None if the call is not checked against the work of other streams.
    queue : Queue or None
        The call's stream.
    """

    letters: str = ""
    is_captured: bool = False
    order: StreamOrder | None = None
    queue: Queue | None = None
    _place: Operation | None = None

    def refuse_capture(self) -> None:
        """Raise if the call's stream is being captured, because the host computes immediately."""
        if self.is_captured:
            raise LibraryError(
                "not_supported",
                f"{self.function} in a stream that is being captured: the emulated device computes "
                "it on the host, immediately; cupygemm's products and kernels can be captured",
            )

    def _view(self, argument: str, access: str, address: int, *rest: Any) -> NDArray[Any]:
        self.refuse_capture()
        found = super()._view(argument, access, address, *rest)
        if self.order is not None and self.queue is not None and found.size:
            if self._place is None:
                self._place = self.order.begin(self.queue, self.function)
                self.order.deferral.run_until(self._place.clock())
            parts = stretches(address, found, writes=access == "write")
            touch(self.order, self._place, self.memory, parts)
        return found

    def _check_written(self, *operand: Any) -> None:
        try:
            super()._check_written(*operand)
        except HostCallFault as fault:
            if self.order is not None and self._place is not None:
                lines = self.order.deferral.unordered(self._place.queue, self._place.number)
                fault.args = ("\n".join([str(fault), *lines]),)
            raise

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type that the function's letter names."""
        return np.dtype(_DTYPES[self.letters[-1].upper()])

    @property
    def real(self) -> np.dtype[Any]:
        """The type of the elements' real parts."""
        return np.dtype(self.dtype.char.lower())

    def matrix(
        self,
        argument: str,
        address: int,
        shape: tuple[int, int],
        ld: int,
        *,
        access: str = "read",
        used: NDArray[np.bool_] | None = None,
        dtype: Any = None,
    ) -> NDArray[Any]:
        """Return a view of a column-major matrix.

        Parameters
        ----------
        argument : str
        address : int
        shape : tuple of int
        ld : int
            Leading dimension.
        access : {"read", "write", "update"}
        used : numpy.ndarray, optional
            The accessed elements, by default all.
        dtype : dtype-like, optional
            By default the function's own.

        Returns
        -------
        numpy.ndarray
        """
        how: Callable[..., NDArray[Any]] = getattr(self, access)
        return how(argument, address, shape, dtype or self.dtype, (1, ld), used=used)

    def check(self, condition: bool, message: str, problem: str = "invalid_value") -> None:
        """Raise `LibraryError` unless an argument is valid."""
        if not condition:
            raise LibraryError(problem, message)

    def pointers(self, argument: str, address: int, count: int) -> list[int]:
        """Return an array of pointers in device memory."""
        return [int(each) for each in self.read(argument, address, (count,), np.uint64)]

    def scalar(self, argument: str, address: int, dtype: Any, *, on_device: bool = False) -> Any:
        """Return a number from its address, in host or in device memory."""
        if not address:
            raise LibraryError("invalid_value", f"{argument} is a null pointer")
        if on_device or self.memory.owns(address):
            return self.read(argument, address, (), dtype)[()]
        dtype = np.dtype(dtype)
        return np.frombuffer(ctypes.string_at(address, dtype.itemsize), dtype)[0]

    def store(
        self, argument: str, address: int, value: Any, dtype: Any, *, on_device: bool = False
    ) -> None:
        """Store a result at its address, in host or in device memory."""
        if not address:
            raise LibraryError("invalid_value", f"{argument} is a null pointer")
        if on_device or self.memory.owns(address):
            self.write(argument, address, (), dtype)[()] = value
        else:
            data = np.asarray(value, dtype).tobytes()
            ctypes.memmove(address, data, len(data))
            if self.order is not None and self.queue is not None:
                self.order.synchronise(self.queue)  # the call returns when the result is available


class HostLibrary:
    """A stand-in library; subclasses define the attributes and the methods.

    `extra_source` is C source of functions that do not return a status.

    Parameters
    ----------
    devices : Devices
    """

    stem: ClassVar[str]
    soname: ClassVar[str]
    statuses: ClassVar[dict[str, int]]
    extra_source: ClassVar[str] = ""
    has_streams: ClassVar[bool] = True  # its calls are checked against the work of other streams

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self._handles = itertools.count(0x10000, 0x10)
        self._message = threading.local()

    @property
    def device(self) -> Device:
        """Return the current device of this thread."""
        return self.devices.current

    @classmethod
    def methods(cls) -> dict[str, Method]:
        """Return the methods by the families that they implement."""
        return dict(cls._marked())

    @classmethod
    def _marked(cls) -> Iterator[tuple[str, Method]]:
        for part in cls.__mro__:
            for method in vars(part).values():
                for family in getattr(method, "families", ()):
                    yield family, method

    def functions(self) -> list[Callable[..., int]]:
        """Return a callable for each function of the library, in the order of the listing."""
        methods = self.methods()
        return [self._answer(each, methods.get(each.family)) for each in read_listing(self.stem)]

    def take_message(self, status: int) -> str:
        """Return and clear the message of this thread's latest failure, if it had that status."""
        found = getattr(self._message, "latest", None)
        self._message.latest = None
        return found[1] if found is not None and found[0] == status else ""

    def stream_of(self, handle: int) -> int:
        """Return the stream of a handle, plan or generator; 0 without one."""
        return 0

    def _answer(self, entry: Entry, method: Method | None) -> Callable[..., int]:
        def call(*arguments: Any) -> None:
            if method is None:
                raise LibraryError(
                    "not_supported",
                    f"the emulated device does not support {entry.name}; see {TABLE}",
                )
            captured, device = self.devices.captured, self.device
            stream = self.stream_of(arguments[0]) if arguments else 0
            made = Call(
                entry.name,
                device.memory,
                letters=entry.letters,
                is_captured=bool(captured) and stream in captured,
            )
            if self.has_streams:
                made.order = self.devices.order
                made.queue = made.order.queue(stream, device.index)
            with np.errstate(all="ignore"):
                method(self, made, *arguments)
            if made.read_bytes or made.written_bytes:
                for profile in tuple(active):
                    profile.add_host_call(HostCall(entry.name, made.read_bytes, made.written_bytes))

        def set_message(status: int, message: str) -> None:
            self._message.latest = status, message

        internal = self.statuses["internal_error"], "internal error of the emulated device"
        return answering(call, self._failure, internal, set_message)

    def _failure(self, err: Exception) -> tuple[int, str] | None:
        if isinstance(err, LibraryError):
            return self.statuses[err.problem], str(err)
        if isinstance(err, EmulatorError):
            self.device.last_fault = err
            return self.statuses["execution_failed"], str(err)
        fault = self.device.last_fault
        if fault is not None and str(fault) in str(err):  # of a kernel for a product
            return self.statuses["execution_failed"], str(fault)
        return None
