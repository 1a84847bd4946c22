"""`launch`: run a kernel of any code object on NumPy arrays, without CuPy."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cupygemm.emulator.code_object import Argument, Kernel, target_of
from cupygemm.emulator.device import Device
from cupygemm.emulator.targets import TARGETS

if TYPE_CHECKING:
    from cupygemm.emulator.execution.schedule import Order
    from cupygemm.emulator.run import LaunchStats

_POINTER = struct.Struct("<Q")
_Buffers = list[tuple[int, np.ndarray[Any, Any]]]
_FLOATS = {2: "<e", 4: "<f", 8: "<d"}


def launch(
    code: str | os.PathLike[str] | bytes,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arguments: Sequence[Any] = (),
    *,
    kernel: str | None = None,
    dynamic_lds: int = 0,
    order: Order = "lockstep",
    profile: bool = False,
    sample: int | None = None,
    checks: bool | None = None,
    cooperative: bool = False,
) -> LaunchStats:
    """Run a kernel of a code object on a fresh device of the target that it was compiled for.

    Parameters
    ----------
    code : path or bytes
        An AMDGPU ELF file (``.hsaco``, ``.co``) for one of the emulated targets, by any compiler.
    grid, block : int or sequence of int
        Workgroups, and work-items of a workgroup, along x, y and z; omitted extents are 1.
    arguments : sequence
        The kernel's explicit arguments. A NumPy array with at least one axis is a buffer: it is
        copied to the device and, unless it is read-only, back. NumPy scalars are passed as they
        are; Python numbers take the size that the kernel declares. A tuple is a struct by value,
        laid out as in C; its members are buffers (passed as pointers), NumPy scalars and tuples.
    kernel : str, optional
        The kernel's name; required if the code object has several.
    dynamic_lds : int
        Bytes of LDS beyond the kernel's own.
    order : {"lockstep", "abreast", "forward", "reverse"} or ("random", seed)
        The order in which the waves of a workgroup execute: all at the lowest address first,
        abreast on different paths, or one after another.
    profile : bool
        Store the counts of `cupygemm.emulator.profile` in ``stats.profile``.
    sample : int, optional
        With `profile`: run at most this many workgroups; see `cupygemm.emulator.profile`.
    checks : bool, optional
        See `cupygemm.emulator.checks`, which sets the default.
    cooperative : bool
        Whether all workgroups are resident together, as with ``hipLaunchCooperativeKernel``, so
        that the kernel may call ``grid_group::sync``. Such a launch cannot be sampled.

    Returns
    -------
    LaunchStats
        Counts of executed instructions.

    Raises
    ------
    OSError
        The file cannot be read.
    ValueError
        There is no such kernel, or no name was given and there are several; the arguments do not
        fit the kernel; a cooperative launch is sampled.
    EmulatorError
        The file is not a code object, or the launch is refused, for example because a cooperative
        grid does not fit the device.
    KernelFault
        The kernel made an error that a GPU may not report.

    Examples
    --------
    >>> x, y = np.arange(64, dtype="f4"), np.empty(64, "f4")
    >>> stats = emulator.launch("saxpy.hsaco", 1, 64, [64, 2.0, x, y])  # doctest: +SKIP
    """
    from cupygemm.emulator import run

    if sample is not None and sample < 1:
        raise ValueError(f"sample={sample}: the sample must be at least 1 workgroup")
    if sample is not None and cooperative:
        raise ValueError(
            f"sample={sample}: workgroups of a cooperative launch wait for each other, so that all "
            "must run"
        )
    data = bytes(code) if isinstance(code, bytes | bytearray) else Path(code).read_bytes()
    device = Device(TARGETS[target_of(data)])
    found = choose_kernel(device.load(data).kernels, kernel)
    explicit = found.explicit_arguments
    if len(explicit) != len(arguments):
        count = f"{len(explicit)} argument{'s' * (len(explicit) != 1)}"
        wanted = ", ".join(_declared(argument) for argument in explicit)
        raise ValueError(
            f"{found.name} takes {count}, not {len(arguments)}" + f": {wanted}" * bool(wanted)
        )
    buffers: _Buffers = []
    values = []
    for position, (declared, value) in enumerate(zip(explicit, arguments, strict=True)):
        tag = f"argument {position}"
        if isinstance(value, tuple):
            packed, _ = _struct(value, device, buffers, tag)
        elif isinstance(value, np.ndarray) and value.ndim:
            packed = _pointer(value, device, buffers, tag)
        else:
            packed = _packed(value, declared)
        if len(packed) != declared.size:
            raise ValueError(
                f"argument {position} of {found.name} has {declared.size} bytes, not {len(packed)}"
            )
        values.append(packed)
    extents = _extents(grid), _extents(block)
    device.check_launch(found, *extents, dynamic_lds, cooperative=cooperative)
    stats = run.launch(
        found, *extents, dynamic_lds, values, device.memory,
        device.target, order=order, profile=profile, sample=sample if profile else None,
        checks=checks, cooperative=cooperative,
    )  # fmt: skip
    for address, array in buffers:
        if array.flags.writeable:
            held = np.frombuffer(device.memory.read(address, array.nbytes), array.dtype)
            array[...] = held.reshape(array.shape)
    return stats


def _declared(argument: Argument) -> str:
    """Return an argument's name, and whether it is a pointer or a value."""
    is_pointer = argument.value_kind == "global_buffer"
    what = "a pointer" if is_pointer else f"{argument.size} bytes by value"
    return f"{argument.source_name} ({what})" if argument.source_name else what


def choose_kernel(kernels: dict[str, Kernel], name: str | None) -> Kernel:
    """Return a kernel by name, or the only one.

    Raises
    ------
    ValueError
        No kernel has that name, or no name was given and there are several.
    """
    if name is None and len(kernels) == 1:
        (name,) = kernels
    if name is None or name not in kernels:
        missing = "choose a kernel" if name is None else f"no kernel {name}"
        raise ValueError(f"{missing}; it has {', '.join(sorted(kernels)) or 'none'}")
    return kernels[name]


def _pointer(array: np.ndarray[Any, Any], device: Device, buffers: _Buffers, tag: str) -> bytes:
    """Copy an array to the device, add it to `buffers`, and return its address as bytes."""
    address = device.memory.malloc(array.nbytes, tag=tag)
    device.memory.write(address, np.ascontiguousarray(array).tobytes())
    buffers.append((address, array))
    return _POINTER.pack(address)


def _struct(
    members: tuple[Any, ...], device: Device, buffers: _Buffers, tag: str
) -> tuple[bytes, int]:
    """Return the bytes of a C struct, and its alignment."""
    data, largest = b"", 1
    for position, member in enumerate(members):
        own = f"{tag}, member {position}"
        if isinstance(member, tuple):
            packed, alignment = _struct(member, device, buffers, own)
        elif isinstance(member, np.ndarray) and member.ndim:
            packed, alignment = _pointer(member, device, buffers, own), _POINTER.size
        elif isinstance(member, np.ndarray | np.generic):
            packed, alignment = member.tobytes(), member.dtype.alignment
        else:
            raise ValueError(
                f"{own} is {member!r}; members of a struct must be NumPy arrays or scalars"
            )
        data += bytes(-len(data) % alignment) + packed
        largest = max(largest, alignment)
    return data + bytes(-len(data) % largest), largest


def _packed(value: Any, declared: Argument) -> bytes:
    """Return a scalar argument's bytes."""
    if isinstance(value, bool | int):
        return (int(value) & (1 << 8 * declared.size) - 1).to_bytes(declared.size, "little")
    if isinstance(value, float) and not isinstance(value, np.generic):
        return struct.pack(_FLOATS.get(declared.size, "<d"), value)
    return np.asarray(value).tobytes()


def _extents(given: int | Sequence[int]) -> tuple[int, int, int]:
    words = (given,) if isinstance(given, int) else tuple(given)
    if not 1 <= len(words) <= 3:
        raise ValueError(f"{given!r}: a grid or block must have one to three extents")
    x, y, z = [*(int(word) for word in words), 1, 1][:3]
    return x, y, z
