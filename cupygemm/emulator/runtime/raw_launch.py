"""Check the launches of user kernels through `cupy.RawKernel` and `cupy.RawModule`.

HIP's functions see only addresses, so the arguments are checked where CuPy still has the arrays.
CuPy's compiler turns a program into a `cupy.cuda.function.Module`, whose kernels become functions;
this module subclasses both. CuPy launches its generated kernels in another way (``linear_launch``),
which is unchanged. Arguments that CuPy's own functions pass to its kernels are not checked, because
no user can change them. Files are loaded by CuPy's binary modules, which use only its own classes:
for them, `cupy.RawModule` is replaced by a subclass, whose kernels create the functions of this
module. Programs that hipcc compiles are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from cupygemm.emulator.diagnostics import checking
from cupygemm.emulator.diagnostics.findings import report_call
from cupygemm.emulator.diagnostics.source_findings import called_by_cupy
from cupygemm.emulator.errors import ArgumentFault
from cupygemm.emulator.raw_kernels import argument_types, argument_views
from cupygemm.emulator.raw_kernels.argument_types import Given
from cupygemm.emulator.raw_kernels.argument_views import View
from cupygemm.emulator.runtime import constant_variables, restricted_arguments, view_accesses
from cupygemm.emulator.runtime.raw_arguments import RawLaunch

if TYPE_CHECKING:
    from cupygemm.emulator.runtime.hip import HipRuntime

_PYTHON = {bool: "?", int: "i8", float: "f8", complex: "c16"}
_LARGEST = 1 << 63


def install(cupy: Any, runtime: HipRuntime) -> None:
    """Make launches of user kernels check their arguments, and accesses beyond them.

    Parameters
    ----------
    cupy : module
    runtime : HipRuntime
    """
    devices = runtime.devices
    own: Any = cupy.cuda.function
    array = cupy.ndarray

    class Function(own.Function):  # type: ignore[misc]
        """A kernel whose launches check their arguments."""

        __module__ = own.Function.__module__
        of_file = False

        def __call__(self, grid: Any, block: Any, args: Any, *rest: Any, **options: Any) -> None:
            kernel = runtime.kernel_of(self.ptr)
            # CuPy's own kernels keep no program. Its compiled modules launch them without a frame.
            is_users = self.of_file or (kernel and kernel.code_object.program[0])
            if kernel is None or not is_users or called_by_cupy():
                super().__call__(grid, block, args, *rest, **options)
                return
            given = [_given(each, array) for each in args]
            argument_types.report(kernel, given, are_an_array=isinstance(args, array))
            argument_views.report(kernel, given, [_view(each, array) for each in args])
            memory = devices.current.memory
            shadow, waits = memory.shadow, devices.order.deferral.seed is not None
            if shadow is None or waits:  # accesses are not recorded, or not before the host waits
                super().__call__(grid, block, args, *rest, **options)
                return
            launch = RawLaunch(kernel, args, array, memory, shadow, devices.target.name)
            clock, needed = int(shadow.clock[0]), _needed_after(launch)
            super().__call__(grid, block, args, *rest, **options)
            if int(shadow.clock[0]) > clock:  # the launch has accessed memory
                _report(launch, needed)

    class Module(own.Module):  # type: ignore[misc]
        """A module whose functions check their arguments."""

        __module__ = own.Module.__module__

        def get_function(self, name: str) -> Function:
            return Function(self, name)

    class FileFunction(Function):
        """A kernel from a file."""

        __module__ = own.Function.__module__
        of_file = True

    _let_files_make(cupy, FileFunction)
    # CuPy's binary modules import the class by name, so only the compiler uses the subclass.
    cupy.cuda.compiler.function = SimpleNamespace(**{**vars(own), "Module": Module})


def _let_files_make(cupy: Any, function: Any) -> None:
    """Launch kernels of ``RawModule(path=...)`` through the given class of functions."""
    own: Any = cupy._core.raw  # noqa: SLF001

    class FileKernel(own.RawKernel):  # type: ignore[misc]
        """CuPy's kernel from a file, with another class of functions."""

        __module__, __qualname__ = own.__name__, "FileKernel"

        @property
        def kernel(self) -> Any:
            """The function on the current device."""
            made_by_cupy = super().kernel  # one object for each device
            if self.__dict__.get("of") is not made_by_cupy:
                self.of, self.function = made_by_cupy, function(made_by_cupy.module, self.name)
            return self.function

    class RawModule(own.RawModule):  # type: ignore[misc]
        __module__, __qualname__ = own.__name__, "RawModule"
        __doc__ = own.RawModule.__doc__

        def get_function(self, name: str) -> Any:
            """Return a kernel."""
            kernel = super().get_function(name)
            if self.file_path is None:
                return kernel
            of_file = FileKernel.__new__(FileKernel)
            of_file.__setstate__(kernel.__getstate__())
            return of_file

    own.FileKernel = FileKernel  # for pickle
    for module in (cupy, cupy._core, own):  # noqa: SLF001
        module.RawModule = RawModule


@dataclass(frozen=True)
class _Look:
    """A check of a launch's accesses.

    Attributes
    ----------
    check : str
    before : callable
        Called before a launch; returns the data that the check needs.
    after : callable
        Called after it; yields the texts of findings.
    """

    check: str
    before: Callable[[RawLaunch], Sequence[Any]]
    after: Callable[[RawLaunch, Sequence[Any]], Iterator[str]]


_LOOKS = (
    _Look(restricted_arguments.CHECK, restricted_arguments.pairs, restricted_arguments.findings),
    _Look(argument_views.CHECK, view_accesses.parts, view_accesses.findings),
    _Look(constant_variables.CHECK, constant_variables.unfilled, constant_variables.findings),
)


def _needed_after(launch: RawLaunch) -> list[tuple[_Look, Sequence[Any]]]:
    """Return the checks to make after a launch, and the data that each needs."""
    policy = checking.policy()
    looks = ((each, each.before(launch)) for each in _LOOKS if policy[each.check] != "off")
    return [(look, needed) for look, needed in looks if needed]


def _report(launch: RawLaunch, needed: Sequence[tuple[_Look, Sequence[Any]]]) -> None:
    """Report a launch's invalid accesses after it has ended.

    Raises
    ------
    ArgumentFault
        There is a finding of a check that is an error.
    """
    for look, what in needed:
        for text in look.after(launch, what):
            report_call(ArgumentFault(text, look.check), checking.policy()[look.check])


def _given(value: Any, array: Any) -> Given | None:
    """Describe an argument; None if nothing is known of it."""
    if isinstance(value, array):
        return Given(_name(value.dtype), size=value.size)
    kind = _PYTHON.get(type(value))
    if kind is not None:
        dtype = "u8" if kind == "i8" and value >= _LARGEST else kind
        return Given(dtype, value, is_python=True)
    if isinstance(value, np.generic) and value.dtype.kind in "?biufc":
        return Given(_name(value.dtype), value.item())
    return None


def _view(value: Any, array: Any) -> View | None:
    """Describe an array that is a view, not in C's order; None for any other value."""
    if not isinstance(value, array) or value.flags.c_contiguous or value.size <= 1:
        return None
    if value.flags.f_contiguous and value.base is None:
        return None
    return View(value.shape, value.strides, value.itemsize, value.flags.f_contiguous)


def _name(dtype: np.dtype[Any]) -> str:
    """Return a dtype's short name, such as f4; that of bfloat16 is bfloat16."""
    return dtype.name if dtype.kind == "V" else "?" if dtype.kind == "b" else dtype.str[1:]
