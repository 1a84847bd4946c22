"""The backends of a device, in order of priority.

A factory returns the backend for a device, or None. It imports the backend only if needed, so that
a process loads code only for the devices that it has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from cupygemm._backends.protocol import Backend, DeviceProperties

Factory = Callable[[DeviceProperties], Backend | None]


def _cdna(properties: DeviceProperties) -> Backend | None:
    if not properties.is_hip:
        return None
    from cupygemm._backends.cdna import backend

    return backend.create(properties)


def _hopper(properties: DeviceProperties) -> Backend | None:
    if properties.is_hip or (properties.values["major"], properties.values["minor"]) != (9, 0):
        return None
    from cupygemm._backends.hopper import backend

    return backend.create(properties)


def _cublaslt(properties: DeviceProperties) -> Backend | None:
    if properties.is_hip:
        return None
    from cupygemm._backends.cublaslt import backend

    return backend.create(properties)


_factories: list[Factory] = [_cdna, _hopper, _cublaslt]


def backends_for(properties: DeviceProperties) -> tuple[Backend, ...]:
    """Return the backends of a device; the last one is `cupy.matmul`."""
    from cupygemm._backends.cupy import backend
    from cupygemm._backends.modular import backend as modular

    found = [made for factory in _factories if (made := factory(properties)) is not None]
    last = backend.create(properties, tuple(found))
    return (*found, modular.create((*found, last)), last) if found else (last,)


@contextlib.contextmanager
def registered(factory: Factory) -> Iterator[None]:
    """Give a factory priority over all others inside a ``with`` block.

    Existing devices and plans do not change; discard them with
    `cupygemm._backends.device.forget_devices` and `cupygemm._plan.table.PLANS.clear`.
    """
    _factories.insert(0, factory)
    try:
        yield
    finally:
        _factories.remove(factory)
