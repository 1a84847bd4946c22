"""The HIP functions for memory pools, which allocate and free in stream order.

A pool never reuses memory: every allocation is new, so that an access to freed memory is found. The
reuse policies and the release threshold are stored and have no effect. The methods have the names
of HIP's functions.
"""
# ruff: noqa: D102, N802

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

from cupygemm.emulator.peers import Devices
from cupygemm.emulator.runtime.hip_memory import MemoryFunctions
from cupygemm.emulator.runtime.status import HipError, Status, store_int, store_size

_PINNED = 1  # hipMemAllocationTypePinned
_ON_DEVICE = 1  # hipMemLocationTypeDevice
_NO_ACCESS, _READ_AND_WRITE = 0, 3  # hipMemAccessFlags
_REUSE = (1, 2, 3)  # hipMemPoolAttr: the reuse policies, of type int; the others are uint64_t
_THRESHOLD, _RESERVED, _RESERVED_HIGH, _USED, _USED_HIGH = range(4, 9)


class _Location(ctypes.Structure):
    """HIP's hipMemLocation."""

    _fields_ = (("type", ctypes.c_int), ("device", ctypes.c_int))


class _Access(ctypes.Structure):
    """HIP's hipMemAccessDesc."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class _Properties(ctypes.Structure):
    """HIP's hipMemPoolProps."""

    _fields_ = (
        ("allocation_type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("security_attributes", ctypes.c_void_p),
        ("max_size", ctypes.c_size_t),
        ("reserved", ctypes.c_ubyte * 56),
    )


@dataclass
class _Pool:
    """A pool of memory on a device.

    Attributes
    ----------
    device : int
    max_size : int
        Bytes that may be in use at a time; 0 for no limit.
    settings : dict of int to int
        The reuse policies and the release threshold, by attribute.
    high : dict of int to int
        The largest numbers of bytes in use since the last reset, by attribute.
    """

    device: int
    max_size: int = 0
    settings: dict[int, int] = field(
        default_factory=lambda: {**dict.fromkeys(_REUSE, 1), _THRESHOLD: 0}
    )
    high: dict[int, int] = field(
        default_factory=lambda: dict.fromkeys((_RESERVED_HIGH, _USED_HIGH), 0)
    )


class PoolFunctions(MemoryFunctions):
    """The mixin of `HipRuntime` for memory pools."""

    def __init__(self, devices: Devices) -> None:
        super().__init__(devices)
        self._pools = {next(self.numbers): _Pool(device) for device in range(len(devices))}
        self._default_pools = tuple(self._pools)  # by device
        self._current_pools = list(self._pools)
        self._pooled: dict[int, tuple[int, int]] = {}  # address -> (pool, bytes)

    def hipDeviceGetDefaultMemPool(self, pool: int, device: int) -> None:
        self.check_device(device)
        store_size(pool, self._default_pools[device])

    def hipDeviceGetMemPool(self, pool: int, device: int) -> None:
        self.check_device(device)
        store_size(pool, self._current_pools[device])

    def hipDeviceSetMemPool(self, device: int, pool: int) -> None:
        self.check_device(device)
        owner = self._pool(pool).device
        if owner != device:
            raise HipError(Status.INVALID_VALUE, f"a pool of device {owner} for device {device}")
        self._current_pools[device] = pool

    def hipMemPoolCreate(self, pool: int, properties: int) -> None:
        given = _Properties.from_address(properties)
        if given.allocation_type != _PINNED or given.location.type != _ON_DEVICE:
            raise HipError(
                Status.INVALID_VALUE,
                f"a pool with the allocation type {given.allocation_type} at a location of type "
                f"{given.location.type}: HIP has hipMemAllocationTypePinned (1) and "
                "hipMemLocationTypeDevice (1)",
            )
        if given.handle_types:
            raise HipError(
                Status.NOT_SUPPORTED,
                f"a pool with the handle types {given.handle_types}: pools are not shared between "
                "processes",
            )
        self.check_device(given.location.device)
        made = _Pool(given.location.device, given.max_size)
        store_size(pool, self.keep(self._pools, lambda: made))

    def hipMemPoolDestroy(self, pool: int) -> None:
        """Forget a pool; allocations from it stay until they are freed."""
        device = self._pool(pool).device
        if pool in self._default_pools:
            raise HipError(Status.INVALID_VALUE, "the default pool of a device stays")
        if self._current_pools[device] == pool:
            self._current_pools[device] = self._default_pools[device]
        del self._pools[pool]

    def hipMemPoolTrimTo(self, pool: int, size: int) -> None:
        self._pool(pool)  # pools keep no free memory to release

    def hipMemPoolSetAttribute(self, pool: int, attribute: int, value: int) -> None:
        found = self._pool(pool)
        if attribute in found.settings:
            found.settings[attribute] = _attribute_at(attribute, value).value
        elif attribute in found.high and _attribute_at(attribute, value).value == 0:
            found.high[attribute] = self._used(pool)
        else:
            raise HipError(
                Status.INVALID_VALUE,
                f"attribute {attribute} of a pool: programs set 1 to 4, and reset 6 and 8 to 0",
            )

    def hipMemPoolGetAttribute(self, pool: int, attribute: int, value: int) -> None:
        found = self._pool(pool)
        used = self._used(pool)
        values = {**found.settings, **found.high, _RESERVED: used, _USED: used}
        if attribute not in values:
            raise HipError(Status.INVALID_VALUE, f"{attribute} is no hipMemPoolAttr")
        _attribute_at(attribute, value).value = values[attribute]

    def hipMemPoolSetAccess(self, pool: int, descriptions: int, count: int) -> None:
        owner = self._pool(pool).device
        for wish in (_Access * count).from_address(descriptions):
            device, flags = wish.location.device, wish.flags
            self.check_device(device)
            if device == owner and flags != _READ_AND_WRITE:
                raise HipError(
                    Status.INVALID_VALUE, f"device {owner} reads and writes its own pools"
                )
            if device != owner and flags != self._access(device, owner):
                raise HipError(
                    Status.NOT_SUPPORTED,
                    f"access of device {device} to one pool of device {owner}: call "
                    "hipDeviceEnablePeerAccess, which gives access to all of its memory",
                )

    def hipMemPoolGetAccess(self, flags: int, pool: int, location: int) -> None:
        owner, device = self._pool(pool).device, _Location.from_address(location).device
        self.check_device(device)
        store_int(flags, self._access(device, owner))

    def hipMallocAsync(self, pointer: int, size: int, stream: int) -> None:
        pool = self._current_pools[self.device.index]
        self.hipMallocFromPoolAsync(pointer, size, pool, stream)

    def hipMallocFromPoolAsync(self, pointer: int, size: int, pool: int, stream: int) -> None:
        self.check_stream(stream)
        found = self._pool(pool)
        used = self._used(pool) + size
        if found.max_size and used > found.max_size:
            raise HipError(
                Status.OUT_OF_MEMORY,
                f"{size} bytes from a pool of at most {found.max_size}, of which {used - size} are "
                "in use",
            )
        address = self._malloc(size, "hipMallocFromPoolAsync", device=found.device)
        if address:
            self._pooled[address] = pool, size
            found.high = {each: max(high, used) for each, high in found.high.items()}
        store_size(pointer, address)

    def hipFreeAsync(self, pointer: int, stream: int) -> None:
        """Free immediately, after the device has waited for all earlier work."""
        self.check_stream(stream)
        self.hipFree(pointer)

    def _free(self, pointer: int) -> None:
        super()._free(pointer)
        self._pooled.pop(pointer, None)

    def _access(self, device: int, owner: int) -> int:
        has_access = device == owner or self.devices.has_peer(device, owner)
        return _READ_AND_WRITE if has_access else _NO_ACCESS

    def _used(self, pool: int) -> int:
        return sum(size for owner, size in tuple(self._pooled.values()) if owner == pool)

    def _pool(self, pool: int) -> _Pool:
        if pool not in self._pools:
            raise HipError(
                Status.INVALID_VALUE,
                f"memory pool 0x{pool:x} does not exist: it was destroyed, or never created",
            )
        return self._pools[pool]


def _attribute_at(attribute: int, value: int) -> ctypes.c_int | ctypes.c_uint64:
    """Return the value of an attribute that the caller's memory holds."""
    kind = ctypes.c_int if attribute in _REUSE else ctypes.c_uint64
    return kind.from_address(value)
