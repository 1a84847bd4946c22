"""The emulated device of this process: enable it, and query it."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import ctypes.util
import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from cupygemm.emulator.collector import paused_collector
from cupygemm.emulator.errors import EmulatorError
from cupygemm.emulator.execution.wave_order import chosen_order
from cupygemm.emulator.targets import TARGETS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cupygemm.emulator.host_libraries.library import HostLibrary
    from cupygemm.emulator.peers import Devices
    from cupygemm.emulator.runtime.hip import HipRuntime

_CUPY_WHEEL = "cupy-rocm-7-0"
# CuPy's modules whose exceptions quote the stand-in libraries' messages; see messages.ERRORS.
_MODULES_WITH_ERRORS = (
    "cupy_backends.cuda.libs.cublas",
    "cupy_backends.cuda.libs.curand",
    "cupy_backends.cuda.libs.cusolver",
    "cupy_backends.cuda.libs.cusparse",
    "cupy_backends.cuda.libs.nccl",
    "cupy.cuda.cufft",
)
_devices: Devices | None = None
_runtime: HipRuntime | None = None
_host_libraries: dict[str, HostLibrary] = {}
_enabling = threading.Lock()


class EmulatorSetupError(RuntimeError):
    """The emulated device cannot be enabled."""


def enable(target: str = "gfx942") -> None:
    """Put an emulated device in place of ROCm; call it before CuPy is imported.

    Enabling the same target again does nothing. In the environment of this process, which its child
    processes inherit, ``ROCM_HOME`` and ``PATH`` then name the emulator's compiler.

    Parameters
    ----------
    target : {"gfx942", "gfx90a", "gfx950"}
        The instruction set to emulate: MI300X, MI250X or MI355X. A number after a colon asks for
        several devices, up to 16: ``"gfx942:4"``. Each has its own memory.

    Raises
    ------
    ValueError
        The target cannot be emulated, or the number of devices is not from 1 to 16.
    EmulatorSetupError
        CuPy is loaded already, is not installed, or is not its ROCm build; another target is
        enabled; or this machine has ROCm.

    Notes
    -----
    CuPy's ROCm build loads ROCm's library when it is imported, so ``import cupy`` fails on a
    machine without ROCm unless the emulated device is enabled first. After such a failure, enable
    the device and import CuPy again. Programs that run with ``CUPYGEMM_EMULATE`` set need no such
    call: the first ``import cupy`` enables the device (`cupygemm_startup`).

    Examples
    --------
    >>> from cupygemm import emulator
    >>> emulator.enable("gfx942")  # doctest: +SKIP
    >>> import cupy as cp  # doctest: +SKIP
    """
    global _devices, _runtime  # one device of a process, as its libamdhip64
    name, count = _parsed(target)
    with _enabling:
        if _devices is not None:
            if _devices.target.name != name or (count or len(_devices)) != len(_devices):
                several = f", with {len(_devices)} devices," * (len(_devices) > 1)
                raise EmulatorSetupError(
                    f"{_devices.target.name}{several} is already enabled in this process; {target} "
                    "needs another process"
                )
            return
        _check_process()
        _check_cupy()
        chosen_order()  # a wrong name is an error here, and not one of each launch
        with paused_collector():
            _devices, _runtime = _connect(name, count or 1)
        sys.meta_path.insert(0, _CupyFinder())


def _parsed(target: str) -> tuple[str, int | None]:
    """Return the name of a target and the number of devices after the colon, if any."""
    from cupygemm.emulator.peers import MAX_DEVICES

    name, colon, number = str(target).partition(":")
    if name not in TARGETS:
        raise ValueError(f"target {target!r} cannot be emulated; use one of {', '.join(TARGETS)}")
    if not colon:
        return name, None
    if not number.isdecimal() or not 1 <= int(number) <= MAX_DEVICES:
        raise ValueError(
            f"{target!r} asks for {number or 'no'} devices; from 1 to {MAX_DEVICES} can be "
            f"emulated, e.g. {name}:4"
        )
    return name, int(number)


def is_enabled() -> bool:
    """Tell whether this process has an emulated device.

    Returns
    -------
    bool
    """
    return _devices is not None


def target() -> str | None:
    """Return the name of the emulated target.

    Returns
    -------
    str or None
        For example ``"gfx942"``; None without an emulated device.
    """
    return None if _devices is None else _devices.target.name


def last_fault() -> EmulatorError | None:
    """Return the exception that describes the last failed launch.

    CuPy raises its own exception with the same text. This one also has the details as attributes,
    such as `KernelFault.kernel`, `KernelFault.pc` and `KernelFault.address`.

    Returns
    -------
    EmulatorError or None
        None if no launch has failed.
    """
    return None if _devices is None else _devices.faults.latest


def last_launch() -> Any:
    """Return the statistics of the last launch.

    Returns
    -------
    cupygemm.emulator.run.LaunchStats or None
        None before the first launch.
    """
    if _devices is None:
        return None
    from cupygemm.emulator import run

    _devices.order.deferral.run_all()
    return run.last_launch()


def finish_streams(*, is_end: bool = False) -> None:
    """Mark all work so far as finished, so that later work of any stream does not race with it.

    A test suite calls it between tests, so that unfinished work of one is not reported in another.
    Pending work is executed, and its failures are not raised. At the end of a program, copies to
    the host that it has not waited for are reported.
    """
    if _devices is not None:
        if is_end:
            with contextlib.suppress(EmulatorError):  # observers have it
                _devices.order.copies.report_unawaited()
        _devices.order.deferral.run_all()
        _devices.order.synchronise_device()
        _devices.order.deferral.forget_failures()


def use_stream_order(text: str) -> None:
    """Use the seed in a string from now on; see `streams`."""
    from cupygemm.emulator.concurrency.stream_deferral import seed_of

    if _devices is not None:
        _devices.order.deferral.choose(seed_of(text, "stream order"))


@contextlib.contextmanager
def streams(seed: int | None) -> Iterator[None]:
    """Interleave the work of different streams inside a ``with`` statement, as a GPU may.

    Work stays in its stream until the program waits for it, or is executed earlier. The seed
    chooses the order among those that streams and events allow. A correct program has the same
    results with all seeds. All threads of the process are affected.

    Parameters
    ----------
    seed : int or None
        At least 0. None, the default, executes work when it is submitted.

    Raises
    ------
    ValueError
        The seed is negative.
    EmulatorSetupError
        No device is enabled.

    Notes
    -----
    A failed launch is reported, with its line, by the next call that waits for or queries work of
    any stream. All work is executed at both ends of the statement; a failure that is still
    unreported is raised at its end.

    Examples
    --------
    >>> from cupygemm import emulator
    >>> for seed in range(10):  # doctest: +SKIP
    ...     with emulator.streams(seed):
    ...         program()
    """
    if seed is not None and seed < 0:
        raise ValueError(f"seed={seed}: the seed must be an integer of at least 0")
    if _devices is None:
        raise EmulatorSetupError("no emulated device is enabled: call cupygemm.emulator.enable()")
    deferral = _devices.order.deferral
    before = deferral.seed
    deferral.choose(seed)
    try:
        yield
    finally:
        deferral.choose(before)
    deferral.raise_failure()


def unwritten(array: Any) -> NDArray[np.bool_] | None:
    """Return which elements of an array no kernel, copy or fill has written.

    Parameters
    ----------
    array : cupy.ndarray
        An array with any strides.

    Returns
    -------
    numpy.ndarray or None
        A bool array of the same shape, True where a byte of the element was never written. None if
        the array is not on the emulated device, or the host had no room for the record.
    """
    if _devices is None or _devices.memory.shadow is None or array.size == 0:
        return None
    _devices.order.deferral.run_all()
    reach = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
    first = sum(min(distance, 0) for distance in reach)
    size = sum(max(distance, 0) for distance in reach) - first + array.itemsize
    start = array.data.ptr + first
    if not _devices.memory.contains(start, size):
        return None
    written = _devices.memory.shadow.written(start, size)
    elements = np.lib.stride_tricks.as_strided(
        written[-first:], (*array.shape, array.itemsize), (*array.strides, 1), writeable=False
    )
    return np.asarray(~elements.all(axis=-1))


def _check_process() -> None:
    """Raise unless a stand-in runtime can be loaded in this process."""
    # If CuPy failed to import because ROCm's library is missing, only submodules remain.
    if "cupy" in sys.modules:
        raise EmulatorSetupError(
            "CuPy is imported already, and has looked for a GPU: import cupygemm (with "
            "CUPYGEMM_EMULATE set), or call cupygemm.emulator.enable(), before `import cupy`"
        )
    if b"libamdhip64.so" in Path("/proc/self/maps").read_bytes():
        raise EmulatorSetupError(
            "a ROCm runtime (libamdhip64) is loaded in this process already; the emulated device "
            "can only take its place in a process that has not loaded it"
        )
    if _has_rocm():
        raise EmulatorSetupError(
            "this machine has ROCm and an AMD GPU (/dev/kfd); CuPy runs there without the emulator"
        )


def _has_rocm() -> bool:
    """Tell whether this machine has AMD's driver and HIP's library."""
    return Path("/dev/kfd").exists() and ctypes.util.find_library("amdhip64") is not None


def _check_cupy() -> None:
    """Raise unless the installed CuPy is the ROCm build."""
    if _named_like_cupy(sys.path) == {_CUPY_WHEEL}:
        return
    names = importlib.metadata.packages_distributions().get("cupy", [])
    if _CUPY_WHEEL in names:
        if len(set(names)) > 1:
            raise EmulatorSetupError(
                f"several builds of CuPy are installed over one another ({', '.join(names)}): "
                f"uninstall all, then pip install {_CUPY_WHEEL}"
            )
        return
    found = f"CuPy here is {', '.join(names)}" if names else "CuPy is not installed"
    raise EmulatorSetupError(
        f"{found}; the emulated device needs its ROCm build, {_CUPY_WHEEL}: "
        'pip install "cupygemm[emulator]" in an environment of its own'
    )


def _named_like_cupy(folders: Sequence[str]) -> set[str]:
    """Return the names of installed packages that may be builds of CuPy, as their folders say.

    `importlib.metadata` would take a third of the time of ``import cupy``, because it reads the
    list of files of every package.
    """
    found = set()
    for folder in folders:
        for metadata in Path(folder or ".").glob("[Cc]u[Pp]y*-info"):
            name = metadata.name.partition("-")[0].replace("_", "-").lower()
            if name == "cupy" or name.startswith("cupy-"):
                found.add(name)
    return found


def _connect(target_name: str, count: int) -> tuple[Devices, HipRuntime]:
    """Build and load the stand-in libraries, connected to new devices."""
    from cupygemm.emulator.concurrency.stream_deferral import VARIABLE, seed_of
    from cupygemm.emulator.host_libraries.connected import connect_all
    from cupygemm.emulator.peers import Devices
    from cupygemm.emulator.runtime import hipcc, libraries
    from cupygemm.emulator.runtime.hip import HipRuntime
    from cupygemm.emulator.runtime.hiprtc import HiprtcRuntime

    seed = seed_of(os.environ.get(VARIABLE, ""))
    devices = Devices(TARGETS[target_name], count)
    for library in libraries.OTHERS:
        libraries.load(library)
    _host_libraries.update(connect_all(devices))
    runtime = HipRuntime(devices)
    made = libraries.load_connected(libraries.HIP, runtime.callbacks).cupygemm_made
    made.restype = ctypes.c_void_p
    runtime.made = lambda: ctypes.c_size_t.from_address(made())
    libraries.load_connected(libraries.HIPRTC, HiprtcRuntime(target_name).callbacks)
    devices.order.deferral.choose(seed)
    atexit.register(devices.order.deferral.report_unheard)
    atexit.register(devices.order.copies.report_unawaited)
    home = hipcc.publish(target_name)
    os.environ["ROCM_HOME"] = str(home)
    os.environ["PATH"] = os.pathsep.join([str(home / "bin"), os.environ.get("PATH", os.defpath)])
    return devices, runtime


class _CupyFinder(importlib.abc.MetaPathFinder):
    """A finder that delegates to the others, and completes some of CuPy's modules after import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "cupy" and fullname not in _MODULES_WITH_ERRORS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _CupyLoader(spec.loader)
        return spec


class _CupyLoader(importlib.abc.Loader):
    """A loader that runs CuPy's own, then installs the allocator or the messages of exceptions."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        from cupygemm.emulator.host_libraries import messages
        from cupygemm.emulator.runtime import allocator, raw_launch

        with paused_collector():
            self._loader.exec_module(module)
        if _devices is None or _runtime is None:
            return
        if module.__name__ == "cupy":
            allocator.install(module, _devices)
            raw_launch.install(module, _runtime)
        else:
            messages.explain_errors(module, _host_libraries)
