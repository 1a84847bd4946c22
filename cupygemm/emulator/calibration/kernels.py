"""The kernels of the calibration. They are built once into the cache, and emulated without CuPy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from numpy.typing import NDArray

from cupygemm._build.cache import get_or_build
from cupygemm._build.toolchain import find_toolchain
from cupygemm.emulator.arguments import profile_code_object
from cupygemm.emulator.profiling.kernel_profile import KernelProfile

_FOLDER = Path(__file__).parent


def build(name: str, target: str, **symbols: int) -> Path:
    """Return the code object of a HIP or assembly source of this folder, with symbols set."""
    toolchain = find_toolchain()
    lines = [f".set {symbol}, {value}" for symbol, value in symbols.items()]
    text = "\n".join([*lines, (_FOLDER / name).read_text(encoding="utf-8")])

    def compile_it(output: Path) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_text(text, encoding="utf-8")
            if path.suffix == ".s":
                toolchain.assemble(path, output, target=target)
            else:
                toolchain.compile_hip(path, output, target=target)

    return get_or_build("calibration", [text, target, toolchain.version], ".hsaco", compile_it)


def profile_workgroup(
    path: Path, kernel: str, threads: int, arguments: Sequence[NDArray[Any]] = ()
) -> KernelProfile:
    """Emulate one workgroup of a kernel.

    Parameters
    ----------
    path : Path
    kernel : str
    threads : int
    arguments : sequence of ndarray
        0-d arrays are scalars; others are buffers.
    """
    return profile_code_object(
        path, kernel, grid=(1, 1, 1), block=(threads, 1, 1), dynamic_lds=0, arguments=arguments
    )
