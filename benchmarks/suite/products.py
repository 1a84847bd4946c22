"""One product by a named configuration, without CuPy: compiled, and run from its code object."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from cupygemm._backends.cdna.compile import CompiledKernel, compile_kernel
from cupygemm._backends.cdna.config import GemmConfig
from cupygemm._backends.cdna.launch import GEMM_ARGS
from cupygemm._backends.cdna.mainloops import configs_for
from cupygemm._records.problem import GemmProblem
from cupygemm.emulator.run import LaunchStats

TARGETS = ("gfx90a", "gfx942", "gfx950")
LABELS = ("256x128x64", "128x128x64", "64x64x64", "32x32x128")  # the tile; MFMA 16x16
MAJORS = {"NN": ("k", "n"), "TT": ("m", "k")}  # both orders of each operand
BF16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Product:
    """A product and how it is computed: bf16 operands, bf16 result, extents whole tiles."""

    target: str
    config: GemmConfig
    problem: GemmProblem

    @property
    def kernel(self) -> CompiledKernel:
        return compile_kernel(self.problem, self.config, self.target)


def product(target: str, label: str, layout: str = "NN", *, steps: int = 4) -> Product:
    """Return the product of one tile, with `steps` steps of tile_k."""
    config = next(c for c in configs_for("bf16", target) if _tile(c) == label and c.mma_m == 16)
    m, n, k = config.tile_m, config.tile_n, config.tile_k * steps
    a_major, b_major = MAJORS[layout]
    problem = GemmProblem(
        m=m,
        n=n,
        k=k,
        batch=(),
        a_dtype="bf16",
        b_dtype="bf16",
        out_dtype="bf16",
        a_major=a_major,
        b_major=b_major,
        a_span=2 * m * k,
        b_span=2 * n * k,
        c_span=2 * m * n,
    )
    return Product(target, config, problem)


def _tile(config: GemmConfig) -> str:
    return f"{config.tile_m}x{config.tile_n}x{config.tile_k}"


def run(item: Product) -> LaunchStats:
    """Run a product on the emulated device and return what the launch did, conflicts included."""
    from cupygemm._backends.cdna.config import grid
    from cupygemm.emulator import code_object
    from cupygemm.emulator.device import Memory
    from cupygemm.emulator.run import launch
    from cupygemm.emulator.targets import TARGETS as DEVICES

    problem, memory = item.problem, Memory(1 << 30)
    pitches = {
        "lda": problem.k if problem.a_major == "k" else problem.m,
        "ldb": problem.k if problem.b_major == "k" else problem.n,
        "ldc": problem.n,
    }
    arguments = np.zeros(1, GEMM_ARGS)
    for name in ("m", "n", "k"):
        arguments[name] = getattr(problem, name)
    for name in ("batch0", "batch1", "batch2"):
        arguments[name] = 1
    for name, pitch in pitches.items():
        arguments[name] = pitch
    sizes = {"a": problem.m * problem.k, "b": problem.k * problem.n, "c": problem.m * problem.n}
    generator = np.random.default_rng(0)
    for name, size in sizes.items():
        address = memory.malloc(2 * size, name)
        arguments[name] = address
        if name != "c":
            data = generator.standard_normal(size, np.float32).astype(BF16)
            memory.write(address, data.tobytes())
    kernel = item.kernel
    loaded = code_object.load(kernel.path.read_bytes(), memory)
    return launch(
        loaded.kernels[kernel.name], grid(item.config, problem), (item.config.num_threads, 1, 1), 0,
        arguments.tobytes(), memory, DEVICES[item.target], profile=True,
    )  # fmt: skip
