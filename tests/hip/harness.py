"""Compile the kernels of this directory and run them on the emulated device.

    program = load("reduce.hip", "gfx942", "-O2")
    program("sum_f32", (4, 1, 1), (256, 1, 1), x, out, np.int32(x.size))

An array goes to device memory and comes back in place; a NumPy scalar or bytes is passed by value.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cupygemm._build.cache import get_or_build
from cupygemm._build.toolchain import find_toolchain
from cupygemm.emulator import code_object
from cupygemm.emulator.code_object import CodeObject
from cupygemm.emulator.device import Memory
from cupygemm.emulator.execution.schedule import Order
from cupygemm.emulator.run import LaunchStats, launch
from cupygemm.emulator.runtime.compile import headers_digest
from cupygemm.emulator.runtime.cxx_library import OWN_FOLDERS
from cupygemm.emulator.targets import TARGETS

HERE = Path(__file__).parent
SOURCES = tuple(sorted(path.name for path in HERE.glob("*.hip")))
# The targets and levels of optimisation that each kernel is compiled for.
VARIANTS = (
    *(("gfx942", level) for level in ("-O0", "-O1", "-O2", "-O3")),
    *(("gfx90a", level) for level in ("-O0", "-O3")),
    *(("gfx950", level) for level in ("-O0", "-O3")),
)
SAMPLE = (("gfx942", "-O2"), ("gfx90a", "-O3"), ("gfx950", "-O0"))
# The order in which the waves of a workgroup take turns. Other variants run in lockstep.
ORDERS: dict[tuple[str, str], Order] = {
    ("gfx942", "-O1"): "reverse",
    ("gfx942", "-O2"): ("random", 7),
}
_OPTIONS = {
    "memory.hip": ("-mllvm", "-amdgpu-kernarg-preload-count=8"),
    "ordinary.hip": ("-nostdinc", *(f"-isystem{folder}" for folder in OWN_FOLDERS[:2])),
}


def compile_source(name: str, target: str, level: str) -> Path:
    """Compile a file of this directory, or return it from the cache."""
    toolchain = find_toolchain()
    options = (level, "-Wall", "-Wextra", "-Werror", *_OPTIONS.get(name, ()))
    texts = [(HERE / file).read_text() for file in (name, "prelude.hpp")]

    def build(output: Path) -> None:
        toolchain.compile_hip(HERE / name, output, target=target, options=options)

    key = [*texts, target, *options, toolchain.version, headers_digest()]
    return get_or_build("test-hip", key, ".hsaco", build)


class Program:
    """The kernels of one compiled file.

    Parameters
    ----------
    path : Path
        Code object.
    target : str
    order : Order
        The order in which the waves of a workgroup take turns.
    """

    def __init__(self, path: Path, target: str, order: Order = "lockstep") -> None:
        self.target = target
        self.order = order
        self.memory = Memory()
        self.code: CodeObject = code_object.load(path.read_bytes(), self.memory, target)

    def __call__(
        self,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        *arguments: Any,
        dynamic_lds: int = 0,
        **options: Any,
    ) -> LaunchStats:
        """Run a kernel; `options` are those of `cupygemm.emulator.run.launch`."""
        options.setdefault("order", self.order)
        values, arrays = [], []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                address = self.memory.malloc(max(argument.nbytes, 1))
                view = self.memory.view(address, argument.nbytes)
                view[:] = np.frombuffer(argument.tobytes(), np.uint8)
                arrays.append((address, view, argument))
                values.append(np.uint64(address).tobytes())
            else:
                values.append(argument if isinstance(argument, bytes) else argument.tobytes())
        try:
            return launch(
                self.code.kernels[kernel],
                grid,
                block,
                dynamic_lds,
                values,
                self.memory,
                TARGETS[self.target],
                **options,
            )
        finally:
            for address, view, array in arrays:
                if array.flags.writeable:
                    array[...] = view.view(array.dtype).reshape(array.shape)
                self.memory.free(address)


@functools.cache
def load(name: str, target: str, level: str) -> Program:
    """Return the program of a file. It is loaded once, because it holds the global variables."""
    return Program(compile_source(name, target, level), target)
