"""The emulated device of this process: enable it, and query it."""

from __future__ import annotations

import ctypes.util
import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cupygemm.emulator.errors import EmulatorError
from cupygemm.emulator.targets import TARGETS

if TYPE_CHECKING:
    from cupygemm.emulator.device import Device

_CUPY_WHEEL = "cupy-rocm-7-0"
_device: Device | None = None
_enabling = threading.Lock()


class EmulatorSetupError(RuntimeError):
    """The emulated device cannot be enabled."""


def enable(target: str = "gfx942") -> None:
    """Put an emulated device in place of ROCm; call it before CuPy is imported.

    Enabling the same target again does nothing. The environment of this process, and so of those
    that it starts, gets a ``ROCM_HOME`` and a ``PATH`` that name the emulator's compiler.

    Parameters
    ----------
    target : {"gfx942", "gfx90a", "gfx950"}
        The instruction set to emulate: MI300X, MI250X or MI355X.

    Raises
    ------
    ValueError
        The target cannot be emulated.
    EmulatorSetupError
        CuPy is loaded already, is not installed, or is not its ROCm build; another target is
        enabled; or this machine has ROCm.

    Notes
    -----
    CuPy's ROCm build loads ROCm's library when it is imported, so that ``import cupy`` fails on a
    machine without ROCm unless the emulated device is enabled before. After such a failure,
    enabling the device and importing CuPy again works.

    Examples
    --------
    >>> from cupygemm import emulator
    >>> emulator.enable("gfx942")  # doctest: +SKIP
    >>> import cupy as cp  # doctest: +SKIP
    """
    global _device  # noqa: PLW0603  # the process has one device, as it has one libamdhip64
    if target not in TARGETS:
        raise ValueError(f"target {target!r} cannot be emulated; {', '.join(TARGETS)} can")
    with _enabling:
        if _device is not None:
            if _device.target.name != target:
                raise EmulatorSetupError(
                    f"{_device.target.name} is enabled in this process already; {target} needs "
                    "another process"
                )
            return
        _check_process()
        _check_cupy()
        _device = _connect(target)
        sys.meta_path.insert(0, _CupyFinder())


def is_enabled() -> bool:
    """Tell whether this process has an emulated device.

    Returns
    -------
    bool
    """
    return _device is not None


def target() -> str | None:
    """Return the name of the emulated target.

    Returns
    -------
    str or None
        For example ``"gfx942"``; None without an emulated device.
    """
    return None if _device is None else _device.target.name


def last_fault() -> EmulatorError | None:
    """Return why the last failed launch failed, as an exception.

    CuPy raises its own exception, whose text is this one's; here are the parts, such as
    `KernelFault.kernel`, `KernelFault.pc` and `KernelFault.address`.

    Returns
    -------
    EmulatorError or None
        None if no launch has failed.
    """
    return None if _device is None else _device.last_fault


def last_launch() -> Any:
    """Return the statistics of the last launch.

    Returns
    -------
    cupygemm.emulator.run.LaunchStats or None
        None if there was no launch.
    """
    if _device is None:
        return None
    from cupygemm.emulator import run

    return run.last_launch()


def _check_process() -> None:
    """Raise unless a stand-in runtime can be loaded in this process."""
    # A CuPy that failed to import, for want of ROCm's library, leaves only submodules behind.
    if "cupy" in sys.modules:
        raise EmulatorSetupError(
            "CuPy is imported already, and has looked for a GPU: import cupygemm (with "
            "CUPYGEMM_EMULATE set), or call cupygemm.emulator.enable(), before `import cupy`"
        )
    if "libamdhip64.so" in Path("/proc/self/maps").read_text():
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


def _connect(target_name: str) -> Device:
    """Build and load the stand-in libraries, connected to a new device."""
    from cupygemm.emulator.device import Device
    from cupygemm.emulator.runtime import hipcc, libraries
    from cupygemm.emulator.runtime.hip import HipRuntime
    from cupygemm.emulator.runtime.hiprtc import HiprtcRuntime

    device = Device(TARGETS[target_name])
    for library in libraries.OTHERS:
        libraries.load(library)
    libraries.load_connected(libraries.HIP, HipRuntime(device).callbacks)
    libraries.load_connected(libraries.HIPRTC, HiprtcRuntime(target_name).callbacks)
    home = hipcc.publish(target_name)
    os.environ["ROCM_HOME"] = str(home)
    os.environ["PATH"] = os.pathsep.join([str(home / "bin"), os.environ.get("PATH", os.defpath)])
    return device


class _CupyFinder(importlib.abc.MetaPathFinder):
    """Finds CuPy as the other finders do, and installs the exact allocator once it is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "cupy":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _CupyLoader(spec.loader)
        return spec


class _CupyLoader(importlib.abc.Loader):
    """Runs CuPy's own loader, then installs the allocator."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        from cupygemm.emulator.runtime import allocator

        self._loader.exec_module(module)
        if _device is not None:
            allocator.install(module, _device.memory)
