"""The modelled GPU under cupygemm: CuPy's modules, the driver's maps and launches.

`modelled` puts them in place of CuPy; `cupygemm.matmul` then selects, copies, packs and launches as
on a Hopper GPU, and the machine runs the grids.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest
import scipy.special

from cupygemm._backends import device as _device
from cupygemm._backends.cupy.backend import CupyBackend
from cupygemm._backends.hopper import launch, plan, product
from cupygemm._backends.hopper.compilation.compile import CubinResources
from cupygemm._backends.hopper.cuda import driver, tensormap
from cupygemm._backends.hopper.operands import copies
from cupygemm._backends.hopper.other_products import grouped
from cupygemm._backends.hopper.small import launch as small_launch
from cupygemm._plan.table import PLANS
from cupygemm._request import epilogue as _epilogue
from cupygemm._request.arrays import ARRAY_TYPES
from tests.hopper_model.arrays import ArrayModule, HostArray, Memory
from tests.hopper_model.build import kernel, machine

NUM_SMS = 4
"""So few that a block computes several tiles."""
MAP = np.dtype(
    [
        ("magic", np.uint32),
        ("rank", np.uint32),
        ("element_bytes", np.uint32),
        ("rounds_to_tf32", np.uint32),
        ("address", np.uint64),
        ("extents", np.uint64, 5),
        ("pitches", np.uint64, 4),
        ("box", np.uint32, 5),
        ("swizzle", np.uint32),
        ("unused", np.uint32, 2),
    ]
)
"""The same struct as ``Map`` in tma.cpp."""
_MAGIC = 0x7EA5
_BYTES = {
    "UINT8": 1,
    "FLOAT16": 2,
    "BFLOAT16": 2,
    "INT32": 4,
    "FLOAT32": 4,
    "TFLOAT32": 4,
    "FLOAT64": 8,
}


class ModelError(Exception):
    """A fault that the machine found in a kernel."""


class _Launch(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("cluster", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("seed", ctypes.c_ulonglong),
    )


@dataclass
class Model:
    """The modelled GPU.

    Attributes
    ----------
    seed : int
        Seed of the order in which threads and copies run, for all later launches.
    fault : callable or None
        Changes the text of each kernel before it is compiled.
    num_launches : int
        Launches so far.
    """

    seed: int = 0
    fault: Callable[[str], str] | None = None
    num_launches: int = 0


class HostKernel:
    """A kernel compiled for the host, with the interface of CuPy's kernels."""

    compiler = "the host's"

    def __init__(self, model: Model, text: str, name: str) -> None:
        library = kernel(model.fault(text) if model.fault else text, name)
        self.kernel = self
        self.ptr = ctypes.cast(library.hopper_entry, ctypes.c_void_p).value
        self.max_dynamic_shared_size_bytes = 0
        self._model = model
        self._parameter, self._cluster, self._threads = (
            ctypes.c_uint.in_dll(library, f"hopper_{symbol}").value
            for symbol in ("parameter", "cluster", "threads")
        )

    def launch(self, grid: Any, block: Any, shared_bytes: int, arguments: int) -> None:
        """Run a grid; `arguments` is the address of the struct of parameters."""
        self._model.num_launches += 1
        assert block == (self._threads, 1, 1)
        assert shared_bytes <= self.max_dynamic_shared_size_bytes
        aligned = np.empty(self._parameter + 64, np.uint8)
        start = -aligned.ctypes.data % 64
        ctypes.memmove(aligned.ctypes.data + start, arguments, self._parameter)
        launch = _Launch(
            self.ptr,
            aligned.ctypes.data + start,
            tuple(grid),
            tuple(block),
            (self._cluster, 1, 1),
            shared_bytes,
            self._model.seed,
        )
        wrong = machine().hopper_launch(ctypes.byref(launch))
        if wrong is not None:
            raise ModelError(wrong.decode())

    def resources(self, shared_bytes: int = 0) -> CubinResources:
        """Return the resources that an explanation shows. The model has no count of registers."""
        return CubinResources(0, 0, shared_bytes, 0)


def encode_tiled(
    place: int,
    kind: int,
    rank: int,
    address: int,
    extents: Any,
    pitches: Any,
    box: Any,
    steps: Any,
    interleave: int,
    swizzle: int,
    promotion: int,
    fill: int,
) -> int:
    """Write a tensor map if the conditions of ``cuTensorMapEncodeTiled`` hold."""
    dtype = _TYPE_NAMES[kind]
    size = _BYTES[dtype]
    width = {driver.SWIZZLES[width]: width for width in (64, 128)}.get(swizzle, 0)
    valid = (
        1 <= rank <= 5
        and place % 64 == 0
        and address % 16 == 0
        and len(extents) == len(box) == len(steps) == rank
        and len(pitches) == rank - 1
        and all(1 <= extent <= 1 << 32 for extent in extents)
        and all(pitch % 16 == 0 and 0 < pitch < 1 << 40 for pitch in pitches)
        and all(1 <= extent <= 256 for extent in box)
        and all(step == 1 for step in steps)
        and box[0] * size % 16 == 0
        and interleave == driver.INTERLEAVE_NONE
        and box[0] * size <= width
        and fill == driver.FILL_NONE
    )
    if not valid:
        return _INVALID_VALUE
    record = np.zeros(1, MAP)
    record["magic"], record["rank"], record["element_bytes"] = _MAGIC, rank, size
    record["rounds_to_tf32"] = dtype == "TFLOAT32"
    record["swizzle"] = width
    record["address"] = address
    for name, values in (("extents", extents), ("pitches", pitches), ("box", box)):
        record[name][0, : len(values)] = list(values)
    ctypes.memmove(place, record.ctypes.data, MAP.itemsize)
    return 0


_TYPE_NAMES = {number: name for name, number in driver.DATA_TYPES.items()}
_INVALID_VALUE = 1  # CUDA_ERROR_INVALID_VALUE


def _driver(kernels: dict[int, HostKernel], threads: threading.local) -> SimpleNamespace:
    """Return what stands for the driver's library."""

    def launch_kernel(config: int, function: int, parameters: int, extra: None) -> int:
        if not getattr(threads, "have_context", False):
            return driver.INVALID_CONTEXT
        found = driver.LaunchConfig.from_address(config)
        struct = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p))[0]
        kernels[function].launch(tuple(found.grid), tuple(found.block), found.shared_bytes, struct)
        return 0

    return SimpleNamespace(cuTensorMapEncodeTiled=encode_tiled, cuLaunchKernelEx=launch_kernel)


def _check_status(status: int) -> None:
    """Raise unless the status is success."""
    if status:
        raise RuntimeError(f"the driver returns {status}")


class _Current:
    """The only device, or the only stream."""

    ptr, device_id = 0, 0

    def __init__(self, index: int = 0, **options: Any) -> None:
        self.id = index

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        """Return at once: a launch is complete when it returns."""


def _modules(threads: threading.local) -> dict[str, ModuleType]:
    """Return the substitutes for the modules of CuPy."""

    properties = {
        "name": b"NVIDIA H200 (modelled)",
        "major": 9,
        "minor": 0,
        "multiProcessorCount": NUM_SMS,
    }
    cupy = ArrayModule("cupy")
    cuda, runtime, status = (
        ModuleType(name)
        for name in ("cupy.cuda", "cupy.cuda.runtime", "cupy_backends.cuda.api.driver")
    )
    vars(runtime).update(
        is_hip=False,
        getDeviceProperties=lambda index: properties,
        getDevice=lambda: 0,
        getDeviceCount=lambda: 1,
        memGetInfo=lambda: setattr(threads, "have_context", True),
    )
    vars(cuda).update(
        runtime=runtime, Device=_Current, Stream=_Current, alloc=Memory, get_current_stream=_Current
    )
    vars(status).update(check_status=_check_status)
    cupy.cuda = cuda  # type: ignore[attr-defined]
    cupyx, special = ModuleType("cupyx"), ModuleType("cupyx.scipy.special")
    vars(cupyx).update(allow_synchronize=lambda allow: contextlib.nullcontext())
    vars(special).update(erfc=scipy.special.erfc)
    empty = (
        "cupyx.scipy",
        "cupy_backends",
        "cupy_backends.cuda",
        "cupy_backends.cuda.api",
        "cupy_backends.cuda.libs",
        "cupy_backends.cuda.libs.cublas",
    )
    made = (cupy, cuda, runtime, status, cupyx, special)
    return {module.__name__: module for module in (*map(ModuleType, empty), *made)}


def _forget() -> None:
    """Clear the caches of what is known about another device under CuPy."""
    _device.forget_devices()
    launch.encoded.cache_clear()
    tensormap.described.cache_clear()
    PLANS.clear()
    ARRAY_TYPES.clear()


@contextlib.contextmanager
def modelled() -> Iterator[tuple[Any, Model]]:
    """Replace CuPy by the modelled GPU; yield the substitute for CuPy, and the model."""
    model = Model()
    kernels: dict[int, HostKernel] = {}

    def compiled(text: str, name: str) -> HostKernel:
        made = HostKernel(model, text, name)
        return kernels.setdefault(made.ptr, made)

    threads = threading.local()  # a thread that has not called the runtime has no context
    modules, library = _modules(threads), _driver(kernels, threads)
    _forget()
    # CuPy's functions warn of nothing.
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        patch.setattr(driver, "library", lambda: library)
        for user in (plan, product, copies, small_launch):
            patch.setattr(user, "compile_cubin", compiled)
        for user in (product, copies, grouped, small_launch):
            patch.setattr(user, "load", lambda kernel: kernel)
        is_number = _epilogue._is_number  # to which an array of NumPy's without axes is a number
        patch.setattr(
            _epilogue, "_is_number", lambda x: not isinstance(x, HostArray) and is_number(x)
        )
        patch.setattr(CupyBackend, "_sums_in_float32", lambda self: contextlib.nullcontext())
        yield modules["cupy"], model
    _forget()
