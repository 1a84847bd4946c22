"""The HIP functions for modules, functions, launches, and kernels in host libraries.

The methods have the names of HIP's functions.
"""
# ruff: noqa: D102, N802

from __future__ import annotations

import contextlib
import ctypes
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cupygemm._build.private_dir import check_of_the_system
from cupygemm.emulator.code_object import InvalidCodeObject
from cupygemm.emulator.device import Device
from cupygemm.emulator.peers import Devices
from cupygemm.emulator.runtime.handles import Handles
from cupygemm.emulator.runtime.host_bytes import host_bytes, host_values
from cupygemm.emulator.runtime.images import image_at, registered_code
from cupygemm.emulator.runtime.kernel_launch import KernelLaunch
from cupygemm.emulator.runtime.libraries import Dim3
from cupygemm.emulator.runtime.status import HipError, Status, store_int, store_size, text_at

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import CodeObject, Kernel

# Keys of hipModuleLaunchKernel's `extra`.
_PARAM_BUFFER_POINTER, _PARAM_BUFFER_SIZE, _PARAM_END = 1, 2, 3

_WAVE = 64


@dataclass(eq=False)
class _Module:
    """A loaded module, its device, and the handles of its functions."""

    code: CodeObject
    device: Device
    functions: dict[str, int]


class ModuleFunctions(Handles):
    """The mixin of `HipRuntime` for modules and launches."""

    def __init__(self, devices: Devices) -> None:
        super().__init__(devices)
        self._modules: dict[int, _Module] = {}
        self._functions: dict[int, tuple[Kernel, Device]] = {}
        self._code_handles = itertools.count(0x1_0000_0000, 0x10)
        # Kernels in host libraries: stub's address -> (fat binary's wrapper, kernel name).
        self._stubs: dict[int, tuple[int, str]] = {}
        # Their code: (fat binary's wrapper, device) -> code object.
        self._binaries: dict[tuple[int, int], CodeObject] = {}

    # -- modules --

    def hipModuleLoad(self, module: int, path: int) -> None:
        name = text_at(path)
        try:
            data = Path(name).read_bytes()
        except OSError as err:
            check_of_the_system(err)
            raise HipError(Status.FILE_NOT_FOUND, f"cannot read {name}: {err.strerror}") from err
        self._load(module, data)

    def hipModuleLoadData(self, module: int, image: int) -> None:
        self._load(module, image_at(image, self.devices.target.name))

    def hipModuleUnload(self, module: int) -> None:
        loaded = self._module(module)
        self.devices.order.deferral.run_all()
        for function in loaded.functions.values():
            self._functions.pop(function, None)
        with contextlib.suppress(ValueError):  # an interrupted attempt has freed it
            loaded.device.unload(loaded.code)
        del self._modules[module]

    def hipModuleGetFunction(self, function: int, module: int, name: int) -> None:
        loaded = self._module(module)
        wanted = text_at(name)
        kernel = loaded.code.kernels.get(wanted)
        if kernel is None:
            has = ", ".join(sorted(loaded.code.kernels)) or "none"
            raise HipError(Status.NOT_FOUND, f"no kernel {wanted} in the module; it has {has}")
        if wanted not in loaded.functions:
            handle = next(self._code_handles)
            self._functions[handle] = kernel, loaded.device
            loaded.functions[wanted] = handle
        store_size(function, loaded.functions[wanted])

    def hipModuleGetGlobal(self, pointer: int, size: int, module: int, name: int) -> None:
        loaded = self._module(module)
        wanted = text_at(name)
        if wanted not in loaded.code.symbols:
            has = ", ".join(sorted(loaded.code.symbols)) or "none"
            raise HipError(Status.NOT_FOUND, f"no variable {wanted} in the module; it has {has}")
        address, length = loaded.code.symbols[wanted]
        loaded.code.shown.add(wanted)
        store_size(pointer, address)
        store_size(size, length)

    def hipFuncGetAttribute(self, value: int, attribute: int, function: int) -> None:
        kernel = self._kernel(function)
        dynamic = self.device.target.lds_bytes - kernel.lds_bytes
        # hipFunction_attribute, in order; AMD's PTX and binary versions are the ISA's, 9 for CDNA.
        values = (
            kernel.max_threads,
            kernel.lds_bytes,
            0,  # constant memory is not counted separately
            kernel.scratch_bytes,
            kernel.num_vgpr + kernel.num_agpr,
            90,
            90,
            0,
            dynamic,
            0,
        )
        if not 0 <= attribute < len(values):
            raise HipError(Status.INVALID_VALUE, f"{attribute} is no hipFunction_attribute")
        store_int(value, values[attribute])

    # -- launches --

    def hipModuleLaunchKernel(
        self,
        function: int,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        block_x: int,
        block_y: int,
        block_z: int,
        dynamic_lds: int,
        stream: int,
        parameters: int,
        extra: int,
    ) -> None:
        self.check_launch_stream(stream)
        kernel = self._kernel_to_launch(function)
        values = _packed(kernel, extra) if extra else _pointed_to(kernel, parameters)
        grid, block = (grid_x, grid_y, grid_z), (block_x, block_y, block_z)
        self._launch(stream, function, kernel, grid, block, dynamic_lds, values)

    def hipLaunchKernel(
        self, stub: int, grid: int, block: int, parameters: int, dynamic_lds: int, stream: int
    ) -> None:
        self.check_launch_stream(stream)
        kernel = self._registered(stub)
        values = _pointed_to(kernel, parameters)
        extents = _extents(grid), _extents(block)
        self._launch(stream, stub, kernel, *extents, dynamic_lds, values)

    def hipModuleLaunchCooperativeKernel(
        self, function: int, grid_x: int, grid_y: int, grid_z: int, block_x: int, block_y: int,
        block_z: int, dynamic_lds: int, stream: int, parameters: int,
    ) -> None:  # fmt: skip
        self.check_launch_stream(stream)
        kernel = self._kernel_to_launch(function)
        grid, block = (grid_x, grid_y, grid_z), (block_x, block_y, block_z)
        values = _pointed_to(kernel, parameters)
        self._launch(stream, function, kernel, grid, block, dynamic_lds, values, cooperative=True)

    def hipLaunchCooperativeKernel(
        self, stub: int, grid: int, block: int, parameters: int, dynamic_lds: int, stream: int
    ) -> None:
        self.check_launch_stream(stream)
        kernel = self._registered(stub)
        values = _pointed_to(kernel, parameters)
        extents = _extents(grid), _extents(block)
        self._launch(stream, stub, kernel, *extents, dynamic_lds, values, cooperative=True)

    def _launch(
        self, stream: int, function: int, kernel: Kernel, grid: tuple[int, int, int],
        block: tuple[int, int, int], dynamic_lds: int, values: list[bytes], *,
        cooperative: bool = False,
    ) -> None:  # fmt: skip
        device = self.device
        device.check_launch(kernel, grid, block, dynamic_lds, cooperative=cooperative)
        launch = KernelLaunch(
            device, function, kernel, grid, block, dynamic_lds, tuple(values), cooperative
        )
        self.submit(stream, f"kernel {kernel.name}", launch)

    def hipOccupancyMaxActiveBlocksPerMultiprocessor(
        self, blocks: int, stub: int, block_size: int, dynamic_lds: int
    ) -> None:
        kernel = self._registered(stub)
        store_int(blocks, self.device.occupancy(kernel, block_size, dynamic_lds))

    def hipOccupancyMaxPotentialBlockSize(
        self, grid_size: int, block_size: int, stub: int, dynamic_lds: int, limit: int
    ) -> None:
        self.store_best_block(grid_size, block_size, self._registered(stub), dynamic_lds, limit)

    def store_best_block(
        self, grid_size: int, block_size: int, kernel: Kernel, dynamic_lds: int, limit: int
    ) -> None:
        """Store the block with most resident work-items, and the grid that fills the device."""
        largest = min(kernel.max_threads, limit or kernel.max_threads)

        def resident(threads: int) -> int:
            return threads * self.device.occupancy(kernel, threads, dynamic_lds)

        best = max(
            range(_WAVE, largest + 1, _WAVE), key=lambda t: (resident(t), t), default=largest
        )
        store_int(block_size, best)
        store_int(
            grid_size,
            self.device.target.num_cus * self.device.occupancy(kernel, best, dynamic_lds),
        )

    # -- kernels in host libraries --

    def hipRegisterFunction(self, binary: int, stub: int, _: int, name: int, *rest: int) -> None:
        self._stubs[stub] = (binary, text_at(name))

    def hipUnregisterFatBinary(self, binary: int) -> None:
        self._stubs = {stub: which for stub, which in self._stubs.items() if which[0] != binary}
        for index in range(len(self.devices)):
            code = self._binaries.pop((binary, index), None)
            if code is not None:
                self.devices[index].unload(code)

    def _registered(self, stub: int) -> Kernel:
        if stub not in self._stubs:
            raise HipError(
                Status.INVALID_DEVICE_FUNCTION, f"no kernel is registered for the stub 0x{stub:x}"
            )
        binary, name = self._stubs[stub]
        kernel = self._binary(binary).kernels.get(name)
        if kernel is None:
            raise HipError(Status.NOT_FOUND, f"no kernel {name} in the library's device code")
        return kernel

    def _binary(self, binary: int) -> CodeObject:
        """Return a fat binary's code on the current device, loaded on the first call."""
        device = self.device
        key = binary, device.index
        if key not in self._binaries:
            self._binaries[key] = device.load(registered_code(binary, device.target.name))
        return self._binaries[key]

    # -- handles --

    def _load(self, module: int, data: bytes) -> None:
        device, made = self.device, self.made()
        if made.value in self._modules:
            store_size(module, made.value)
            return
        try:
            code = device.load(data)
        except InvalidCodeObject as err:
            raise HipError(Status.INVALID_IMAGE, str(err)) from err
        handle = next(self._code_handles)
        made.value = handle
        self._modules[handle] = _Module(code, device, {})
        store_size(module, handle)

    def _module(self, module: int) -> _Module:
        if module not in self._modules:
            raise _no_module(module)
        return self._modules[module]

    def _kernel(self, function: int) -> Kernel:
        if function in self._stubs:
            return self._registered(function)
        if function not in self._functions:
            raise HipError(
                Status.INVALID_HANDLE,
                f"kernel function 0x{function:x} does not exist: was its module unloaded?",
            )
        return self._functions[function][0]

    def kernel_of(self, function: int) -> Kernel | None:
        """Return the kernel of a module's function; None if there is no such function."""
        found = self._functions.get(function)
        return None if found is None else found[0]

    def _kernel_to_launch(self, function: int) -> Kernel:
        """Return a kernel that is loaded on the current device."""
        kernel = self._kernel(function)
        owner = self._functions[function][1] if function in self._functions else self.device
        if owner is not self.device:
            raise HipError(
                Status.INVALID_HANDLE,
                f"a launch on device {self.device.index} of {kernel.name}, which was loaded on "
                f"device {owner.index}: load the module on each device",
            )
        return kernel


def _extents(dim3: int) -> tuple[int, int, int]:
    """Return a dim3's extents from its address."""
    words = Dim3.from_address(dim3)
    return words.x, words.y, words.z


def _no_module(module: int) -> HipError:
    return HipError(Status.INVALID_HANDLE, f"module 0x{module:x} does not exist: was it unloaded?")


def _pointed_to(kernel: Kernel, parameters: int) -> list[bytes]:
    """Read the explicit arguments through an array of pointers to their values."""
    explicit = kernel.explicit_arguments
    if not explicit:
        return []
    if not parameters:
        raise HipError(
            Status.INVALID_VALUE,
            f"{kernel.name} takes {len(explicit)} arguments, and none are given",
        )
    pointers = (ctypes.c_void_p * len(explicit)).from_address(parameters)
    sizes = [argument.size for argument in explicit]
    found = host_values(list(zip(pointers, sizes, strict=True))) if all(pointers) else None
    if found is not None:
        return found
    values = []
    for position, (pointer, argument) in enumerate(zip(pointers, explicit, strict=True)):
        if not pointer:
            raise HipError(
                Status.INVALID_VALUE,
                f"argument {position} ({argument.name or 'unnamed'}) of {kernel.name} is missing",
            )
        # A launch does not state its number of arguments: any pointer may follow the last.
        value = host_bytes(pointer, argument.size)
        if value is None:
            raise HipError(
                Status.INVALID_VALUE,
                f"argument {position} ({argument.name or 'unnamed'}) of {kernel.name} is at "
                f"0x{pointer:x}, which is no host memory: {kernel.name} takes {len(explicit)} "
                "arguments, were fewer given?",
            )
        values.append(value)
    return values


def _packed(kernel: Kernel, extra: int) -> list[bytes]:
    """Read the explicit arguments from a buffer with the layout of the kernel's segment."""
    keys = (ctypes.c_size_t * 5).from_address(extra)
    found, position = {}, 0
    while position < 4 and keys[position] != _PARAM_END:
        found[keys[position]] = keys[position + 1]
        position += 2
    if _PARAM_BUFFER_POINTER not in found or _PARAM_BUFFER_SIZE not in found:
        raise HipError(Status.INVALID_VALUE, "`extra` names no argument buffer or not its size")
    size = ctypes.c_size_t.from_address(found[_PARAM_BUFFER_SIZE]).value
    buffer = ctypes.string_at(found[_PARAM_BUFFER_POINTER], size)
    explicit = kernel.explicit_arguments
    needed = max((arg.offset + arg.size for arg in explicit), default=0)
    if size < needed:
        raise HipError(
            Status.INVALID_VALUE,
            f"the argument buffer of {kernel.name} holds {size} bytes, not {needed}",
        )
    return [buffer[arg.offset : arg.offset + arg.size] for arg in explicit]
