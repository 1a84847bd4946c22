"""`Device`: one of CuPy's devices, and the backends that compute its products."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from cupygemm._backends.protocol import Backend, DeviceProperties
from cupygemm._backends.registry import backends_for


@dataclass(frozen=True)
class Device:
    """A device, for plans.

    Attributes
    ----------
    index : int
        CuPy's number of the device.
    name : str
        The device's name in messages; the name of an emulated device ends in ``"(emulated)"``.
    is_emulated : bool
        The device has no clock, so times cannot be measured.
    backends : tuple of Backend
        The backends in order of priority. The last one is `cupy.matmul`.
    """

    index: int
    name: str
    is_emulated: bool
    backends: tuple[Backend, ...]

    @property
    def kernels(self) -> Backend:
        """Return the backend with the highest priority, whose kernels the solvers use, too."""
        return self.backends[0]

    def sparing(self, units: int) -> Device:
        """Return this device for products that leave compute units to other work."""
        return replace(self, backends=tuple(each.sparing(units) for each in self.backends))


@functools.cache
def device(index: int) -> Device:
    """Return CuPy's device `index`."""
    from cupy.cuda import runtime

    values = runtime.getDeviceProperties(index)
    name = values["name"].decode()
    is_hip = bool(runtime.is_hip)
    is_emulated = is_hip and _has_emulator()
    if is_hip:
        target = values["gcnArchName"].decode().split(":")[0]
        name = f"{target} (emulated)" if is_emulated else f"{name} ({target})"
    properties = DeviceProperties(
        index=index, name=name, is_hip=is_hip, is_emulated=is_emulated, values=values
    )
    return Device(
        index=index, name=name, is_emulated=is_emulated, backends=backends_for(properties)
    )


def current_device() -> int:
    """Return CuPy's number of the current device."""
    return _query()()


@functools.cache
def _query() -> Callable[[], int]:
    from cupy.cuda.runtime import getDevice

    found: Callable[[], int] = getDevice
    return found


def _has_emulator() -> bool:
    """Whether this process emulates its device; if so, the emulator is already imported."""
    emulator = sys.modules.get("cupygemm.emulator")
    return emulator is not None and bool(emulator.is_enabled())


def forget_devices() -> None:
    """Forget the devices, so that they are looked up again."""
    device.cache_clear()
    _query.cache_clear()
