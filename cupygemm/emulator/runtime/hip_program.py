"""The HIP functions that programs with their own host code call, and CuPy does not.

They are variants of the functions in `hip_memory`, `hip_module` and `hip_stream` (copies by
direction, fills by width), accesses to device variables by the addresses of their host shadows, and
queries of device properties. The methods have the names of HIP's functions.
"""
# ruff: noqa: D102, N802, N815

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cupygemm.emulator.concurrency.stream_order import Operation, Stretch
from cupygemm.emulator.runtime.hip_memory import (
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
)
from cupygemm.emulator.runtime.hip_module import ModuleFunctions
from cupygemm.emulator.runtime.hip_pitched import PitchedFunctions
from cupygemm.emulator.runtime.hip_pools import PoolFunctions
from cupygemm.emulator.runtime.hip_stream import DeviceFunctions
from cupygemm.emulator.runtime.status import HipError, Status, store_int, store_size, text_at

if TYPE_CHECKING:
    from cupygemm.emulator.peers import Devices

_FUNCTION_ATTRIBUTES = (8, 9)  # hipFuncAttribute: the largest dynamic LDS, the preferred share


class _FuncAttributes(ctypes.Structure):
    """HIP's hipFuncAttributes."""

    _fields_ = (
        ("binary_version", ctypes.c_int),
        ("cache_mode_ca", ctypes.c_int),
        ("constant_bytes", ctypes.c_size_t),
        ("local_bytes", ctypes.c_size_t),
        ("max_dynamic_shared_bytes", ctypes.c_int),
        ("max_threads", ctypes.c_int),
        ("num_registers", ctypes.c_int),
        ("preferred_shared_carveout", ctypes.c_int),
        ("ptx_version", ctypes.c_int),
        ("shared_bytes", ctypes.c_size_t),
    )


class ProgramFunctions(PitchedFunctions, PoolFunctions, DeviceFunctions, ModuleFunctions):
    """The mixin of `HipRuntime` with functions that programs call and CuPy does not."""

    def __init__(self, devices: Devices) -> None:
        super().__init__(devices)
        # Variables of programs: the host shadow's address -> (fat binary's wrapper, name).
        self._variables: dict[int, tuple[int, str]] = {}

    # -- copies --

    def hipMemcpyWithStream(self, to: int, source: int, size: int, kind: int, stream: int) -> None:
        self.check_stream(stream)
        self._await(self._submit_copy(to, source, size, kind, stream))

    def hipMemcpyHtoD(self, to: int, source: int, size: int) -> None:
        self.hipMemcpy(to, source, size, HOST_TO_DEVICE)

    def hipMemcpyDtoH(self, to: int, source: int, size: int) -> None:
        self.hipMemcpy(to, source, size, DEVICE_TO_HOST)

    def hipMemcpyDtoD(self, to: int, source: int, size: int) -> None:
        self.hipMemcpy(to, source, size, DEVICE_TO_DEVICE)

    def hipMemcpyHtoDAsync(self, to: int, source: int, size: int, stream: int) -> None:
        self.hipMemcpyAsync(to, source, size, HOST_TO_DEVICE, stream)

    def hipMemcpyDtoHAsync(self, to: int, source: int, size: int, stream: int) -> None:
        self.hipMemcpyAsync(to, source, size, DEVICE_TO_HOST, stream)

    def hipMemcpyDtoDAsync(self, to: int, source: int, size: int, stream: int) -> None:
        self.hipMemcpyAsync(to, source, size, DEVICE_TO_DEVICE, stream)

    # -- fills --

    def hipMemsetD8(self, to: int, value: int, count: int) -> None:
        self.hipMemset(to, value & 0xFF, count)

    def hipMemsetD8Async(self, to: int, value: int, count: int, stream: int) -> None:
        self.hipMemsetAsync(to, value & 0xFF, count, stream)

    def hipMemsetD16(self, to: int, value: int, count: int) -> None:
        self.fill_words(to, value.to_bytes(2, "little"), count, 0)

    def hipMemsetD16Async(self, to: int, value: int, count: int, stream: int) -> None:
        self.fill_words(to, value.to_bytes(2, "little"), count, stream)

    def hipMemsetD32(self, to: int, value: int, count: int) -> None:
        self.fill_words(to, value.to_bytes(4, "little", signed=True), count, 0)

    def hipMemsetD32Async(self, to: int, value: int, count: int, stream: int) -> None:
        self.fill_words(to, value.to_bytes(4, "little", signed=True), count, stream)

    def fill_words(self, to: int, word: bytes, count: int, stream: int) -> None:
        """Fill memory with `count` words."""
        self.check_stream(stream)
        words = word * count

        def run(place: Operation) -> None:
            self._check("fill of", to, len(words), on_device=True)
            self._touch(place, Stretch.plain(to, len(words), writes=True))
            ctypes.memmove(to, words, len(words))
            self.devices.memory.define(to, len(words))

        if count:
            self.submit(stream, f"fill of {len(words)} bytes", run)

    # -- allocations --

    def hipHostAlloc(self, pointer: int, size: int, flags: int) -> None:
        self.hipHostMalloc(pointer, size, flags)

    def hipMallocHost(self, pointer: int, size: int) -> None:
        self.hipHostMalloc(pointer, size, 0)

    hipMemAllocHost = hipMallocHost

    def hipFreeHost(self, pointer: int) -> None:
        self.hipFree(pointer)

    def hipExtMallocWithFlags(self, pointer: int, size: int, flags: int) -> None:
        self.hipMalloc(pointer, size)

    def hipExtModuleLaunchKernel(
        self, function: int, size_x: int, size_y: int, size_z: int, block_x: int, block_y: int,
        block_z: int, dynamic_lds: int, stream: int, parameters: int, extra: int, start: int,
        stop: int, flags: int,
    ) -> None:  # fmt: skip
        """Launch a grid whose size is in work-items, and record an event before and after."""
        sizes, block = (size_x, size_y, size_z), (block_x, block_y, block_z)
        if any(size % extent for size, extent in zip(sizes, block, strict=True) if extent):
            raise HipError(
                Status.NOT_SUPPORTED,
                f"a grid of {sizes} work-items, which are no whole workgroups of {block}",
            )
        x, y, z = (size // max(extent, 1) for size, extent in zip(sizes, block, strict=True))
        self._record_if(start, stream)
        self.hipModuleLaunchKernel(
            function, x, y, z, *block, dynamic_lds, stream, parameters, extra
        )
        self._record_if(stop, stream)

    def hipExtLaunchKernel(
        self, stub: int, grid: int, block: int, parameters: int, dynamic_lds: int, stream: int,
        start: int, stop: int, flags: int,
    ) -> None:  # fmt: skip
        self._record_if(start, stream)
        self.hipLaunchKernel(stub, grid, block, parameters, dynamic_lds, stream)
        self._record_if(stop, stream)

    def _record_if(self, event: int, stream: int) -> None:
        if event:
            self.hipEventRecord(event, stream)

    # -- host memory --

    def hipHostRegister(self, host: int, size: int, flags: int) -> None:
        """Make memory that the program has allocated itself accessible to kernels."""
        try:
            self.devices.memory.adopt(host, size, "hipHostRegister")
        except ValueError as err:
            raise HipError(Status.INVALID_VALUE, str(err)) from err

    def hipHostUnregister(self, host: int) -> None:
        self.devices.order.synchronise_device()
        try:
            self.devices.memory.disown(host)
        except ValueError as err:
            raise HipError(Status.INVALID_VALUE, str(err)) from err

    def hipHostGetFlags(self, flags: int, host: int) -> None:
        self.hipHostGetDevicePointer(0, host, 0)
        store_int(flags, 0)

    def hipHostGetDevicePointer(self, pointer: int, host: int, flags: int) -> None:
        if self.devices.memory.block(host) is None:
            raise HipError(
                Status.INVALID_VALUE,
                f"0x{host:x} is no memory of hipHostMalloc, hipMallocManaged or hipHostRegister",
            )
        store_size(pointer, host)

    def hipMemGetAddressRange(self, start: int, size: int, pointer: int) -> None:
        block = self.devices.memory.block(pointer)
        if block is None:
            raise HipError(Status.NOT_FOUND, f"0x{pointer:x} is in no allocation of HIP's")
        store_size(start, block.start)
        store_size(size, block.size)

    def hipMemPtrGetInfo(self, pointer: int, size: int) -> None:
        self.hipMemGetAddressRange(0, size, pointer)

    # -- variables of the program's device code --

    def hipRegisterVar(self, binary: int, shadow: int, _: int, name: int, *rest: int) -> None:
        self._variables[shadow] = binary, text_at(name)

    def hipRegisterManagedVar(
        self, binary: int, pointer: int, initial: int, name: int, size: int, alignment: int
    ) -> None:
        """Point the host's pointer to a ``__managed__`` variable at the device's variable."""
        self._variables[pointer] = binary, text_at(name)
        store_size(pointer, self._variable(pointer)[0])

    def hipGetSymbolAddress(self, pointer: int, symbol: int) -> None:
        store_size(pointer, self._variable(symbol)[0])

    def hipGetSymbolSize(self, size: int, symbol: int) -> None:
        store_size(size, self._variable(symbol)[1])

    def hipMemcpyToSymbol(
        self, symbol: int, source: int, size: int, offset: int, kind: int
    ) -> None:
        self.hipMemcpy(self._part(symbol, size, offset), source, size, kind)

    def hipMemcpyFromSymbol(self, to: int, symbol: int, size: int, offset: int, kind: int) -> None:
        self.hipMemcpy(to, self._part(symbol, size, offset), size, kind)

    def hipMemcpyToSymbolAsync(
        self, symbol: int, source: int, size: int, offset: int, kind: int, stream: int
    ) -> None:
        self.hipMemcpyAsync(self._part(symbol, size, offset), source, size, kind, stream)

    def hipMemcpyFromSymbolAsync(
        self, to: int, symbol: int, size: int, offset: int, kind: int, stream: int
    ) -> None:
        self.hipMemcpyAsync(to, self._part(symbol, size, offset), size, kind, stream)

    def _variable(self, symbol: int) -> tuple[int, int]:
        """Return the address and the size of a variable on the current device."""
        if symbol not in self._variables:
            raise HipError(
                Status.INVALID_SYMBOL, f"no variable of the device has its shadow at 0x{symbol:x}"
            )
        binary, name = self._variables[symbol]
        symbols = self._binary(binary).symbols
        if name not in symbols:
            raise HipError(Status.NOT_FOUND, f"no variable {name} in the program's device code")
        return symbols[name]

    def _part(self, symbol: int, size: int, offset: int) -> int:
        address, length = self._variable(symbol)
        if offset + size > length:
            raise HipError(
                Status.INVALID_VALUE,
                f"{size} bytes from byte {offset} on of the variable "
                f"{self._variables[symbol][1]}, which has {length}",
            )
        return address + offset

    # -- functions --

    def hipFuncGetAttributes(self, attributes: int, stub: int) -> None:
        kernel, found = self._kernel(stub), _FuncAttributes.from_address(attributes)
        found.binary_version = found.ptx_version = 90  # as hipFuncGetAttribute has them
        found.cache_mode_ca = found.constant_bytes = found.preferred_shared_carveout = 0
        found.local_bytes = kernel.scratch_bytes
        found.max_dynamic_shared_bytes = self.device.target.lds_bytes - kernel.lds_bytes
        found.max_threads = kernel.max_threads
        found.num_registers = kernel.num_vgpr + kernel.num_agpr
        found.shared_bytes = kernel.lds_bytes

    def hipFuncSetAttribute(self, stub: int, attribute: int, value: int) -> None:
        """Only check the arguments: a launch may use all LDS of a compute unit in any case."""
        kernel = self._kernel(stub)
        free = self.device.target.lds_bytes - kernel.lds_bytes
        if attribute not in _FUNCTION_ATTRIBUTES or (attribute == 8 and not 0 <= value <= free):
            raise HipError(
                Status.INVALID_VALUE,
                f"the value {value} of attribute {attribute} for {kernel.name}, which can have "
                f"{free} bytes of dynamic LDS",
            )

    def hipFuncSetCacheConfig(self, stub: int, config: int) -> None:
        self._kernel(stub)  # there is nothing to configure on CDNA

    hipFuncSetSharedMemConfig = hipFuncSetCacheConfig

    def hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        self, blocks: int, function: int, block_size: int, dynamic_lds: int
    ) -> None:
        store_int(blocks, self.device.occupancy(self._kernel(function), block_size, dynamic_lds))

    def hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        self, blocks: int, stub: int, block_size: int, dynamic_lds: int, flags: int
    ) -> None:
        self.hipOccupancyMaxActiveBlocksPerMultiprocessor(blocks, stub, block_size, dynamic_lds)

    # -- devices --

    def hipInit(self, flags: int) -> None:
        if flags:
            raise HipError(Status.INVALID_VALUE, f"hipInit with flags {flags}, not 0")

    def hipDeviceGet(self, handle: int, device: int) -> None:
        self.check_device(device)
        store_int(handle, device)

    def hipDeviceGetName(self, name: int, length: int, device: int) -> None:
        self.check_device(device)
        text = self.devices.target.part.encode()[: max(length - 1, 0)]
        ctypes.memmove(name, text + b"\0", min(len(text) + 1, length))

    def hipDeviceTotalMem(self, size: int, device: int) -> None:
        self.check_device(device)
        store_size(size, self.devices.target.memory_bytes)

    def hipDeviceGetStreamPriorityRange(self, least: int, greatest: int) -> None:
        store_int(least, 1)
        store_int(greatest, -1)

    def hipStreamGetDevice(self, stream: int, device: int) -> None:
        self.check_stream(stream)
        store_int(device, self.device.index)

    def hipDeviceSetCacheConfig(self, config: int) -> None:
        pass  # there is nothing to configure on CDNA

    hipDeviceSetSharedMemConfig = hipDeviceSetCacheConfig

    def hipDeviceGetCacheConfig(self, config: int) -> None:
        store_int(config, 0)  # hipFuncCachePreferNone

    def hipDeviceGetSharedMemConfig(self, config: int) -> None:
        store_int(config, 1)  # hipSharedMemBankSizeFourByte: LDS banks are 4 bytes wide

    def hipSetDeviceFlags(self, flags: int) -> None:
        pass  # how the host waits has no effect

    def hipGetDeviceFlags(self, flags: int) -> None:
        store_int(flags, 0)  # hipDeviceScheduleAuto

    def hipProfilerStart(self) -> None:
        pass  # `emulator.profile` profiles

    def hipProfilerStop(self) -> None:
        pass
