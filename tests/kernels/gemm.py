"""Run one configuration of the GEMM kernel on the emulator, with every byte around it checked.

    case = Case(config, arch, m=5, n=6, k=7, a_major="m", pads=(3, 0, 1))
    result = case.run()          # launches; raises KernelFault for any access out of bounds
    result.check_exact()

Each operand has its own allocation, which ends with its last element. The gaps between the rows of
A and B hold NaN, or 113 for integers, and a sentinel fills the space around and between the rows of
C. So a read or a write outside the matrices either faults or changes the result. CuPy is not
involved, so one process can run every target.
"""

from __future__ import annotations

import functools
from dataclasses import KW_ONLY, dataclass, replace

import ml_dtypes
import numpy as np

from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.compile import compile_kernel
from cupygemm._backends.cdna.config import GemmConfig, grid
from cupygemm._backends.cdna.launch import GEMM_ARGS, pack_parts
from cupygemm._backends.cdna.mainloops import configs_for
from cupygemm._backends.cdna.source import ADD_ENTRY
from cupygemm._backends.cdna.split import ADD_THREADS, add_grid, workspace_bytes
from cupygemm._records.dtypes import FLOAT8
from cupygemm._records.problem import GemmProblem
from cupygemm.emulator import run
from cupygemm.emulator.code_object import load
from cupygemm.emulator.memory.allocations import Memory
from cupygemm.emulator.targets import TARGETS

NUMPY_DTYPE = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "tf32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "i8": np.dtype(np.int8),
    "i32": np.dtype(np.int32),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
    **FLOAT8,
    "e2m1x2": np.dtype(np.uint8),
}
SENTINEL = 7.0
GUARD = 64  # elements before and after C


def config_of(
    arch: str, tile_m: int, tile_n: int, mma: int = 16, dtype: str = "bf16"
) -> GemmConfig:
    """Return the configuration with that tile and instruction."""
    return next(
        c
        for c in configs_for(dtype, arch)
        if (c.tile_m, c.tile_n, c.mma_m) == (tile_m, tile_n, mma)
    )


@dataclass(frozen=True)
class Placement:
    """The layout of one operand: pitch and strides in elements, address and span in bytes."""

    address: int
    pitch: int
    strides: tuple[int, int, int]
    span: int

    def align(self, itemsize: int) -> int:
        """Return the largest power of two up to 16 that divides every row's address."""
        align = 16
        for offset in (self.address, *(itemsize * x for x in (self.pitch, *self.strides))):
            while offset % align:
                align //= 2
        return align


@dataclass(frozen=True)
class Result:
    """The outcome of a launch.

    Attributes
    ----------
    stats : run.LaunchStats
    c : numpy.ndarray
        (batch..., m, n)
    buffer, untouched : numpy.ndarray
        The whole allocation of C, and a mask of what in it is not an element of C.
    expected : numpy.ndarray
        The exact product, as float64 or complex128.
    """

    stats: run.LaunchStats
    c: np.ndarray
    buffer: np.ndarray
    untouched: np.ndarray
    expected: np.ndarray

    def check_exact(self):
        """Assert that C is the exact product and that nothing else was written."""
        expected = self.expected
        if self.c.dtype in FLOAT8.values():
            largest = float(ml_dtypes.finfo(self.c.dtype).max)
            expected = np.clip(expected, -largest, largest)
        wide = expected.dtype
        np.testing.assert_array_equal(
            self.c.astype(wide), expected.astype(self.c.dtype).astype(wide)
        )
        self.check_guards()

    def check_guards(self):
        """Assert that only elements of C were written."""
        beside = self.buffer[self.untouched]
        if beside.dtype.kind != "c":
            beside = beside.astype(np.float32)
        np.testing.assert_array_equal(beside, np.full_like(beside, SENTINEL))


@dataclass(frozen=True)
class Case:
    """A problem, the layout of its matrices, and the kernel that computes it.

    Attributes
    ----------
    b_dtype : str
        The type of B; empty if it is that of A.
    pads, offsets : tuple of 3 int
        For A, B and C: elements between the end of a row and the start of the next, and elements
        before the first row.
    integers : bool
        Fill A and B with small integers, whose sums are exact, instead of normal random numbers.
    """

    config: GemmConfig
    arch: str
    _: KW_ONLY
    m: int
    n: int
    k: int
    a_major: str = "k"
    b_major: str = "n"
    dtype: str = "bf16"
    out_dtype: str = "bf16"
    batch: tuple[int, ...] = ()
    pads: tuple[int, int, int] = (0, 0, 0)
    offsets: tuple[int, int, int] = (0, 0, 0)
    integers: bool = True
    seed: int = 0
    b_dtype: str = ""

    def operands(self):
        """Return A, (batch, m, k), and B, (batch, k, n), rounded to their types."""
        rng = np.random.default_rng(self.seed)
        batch = int(np.prod(self.batch, dtype=int))
        shapes = (batch, self.m, self.k), (batch, self.k, self.n)
        real = (lambda s: rng.integers(-3, 4, s)) if self.integers else rng.standard_normal
        draw = (lambda s: real(s) + 1j * real(s)) if self.dtype[0] == "c" else real
        dtypes = (self.dtype, self.b_dtype or self.dtype)
        return tuple(
            draw(shape).astype(NUMPY_DTYPE[d]) for shape, d in zip(shapes, dtypes, strict=True)
        )

    def run(self, **launch) -> Result:
        """Compile the kernel, launch it by ``run.launch(..., **launch)``, return the outcome."""
        a, b = self.operands()
        memory = Memory()
        a_stored = a if self.a_major == "k" else a.transpose(0, 2, 1)
        b_stored = b if self.b_major == "n" else b.transpose(0, 2, 1)
        place_a = self._place(memory, a_stored, self.pads[0], self.offsets[0])
        place_b = self._place(memory, b_stored, self.pads[1], self.offsets[1])

        dtype = NUMPY_DTYPE[self.out_dtype]
        pitch, stride = self.n + self.pads[2], self.m * (self.n + self.pads[2])
        span = (self.m - 1) * pitch + self.n
        first = GUARD + self.offsets[2]
        buffer = np.full(first + (len(a) - 1) * stride + span + GUARD, SENTINEL, dtype)
        address = memory.malloc(buffer.nbytes, tag="C")
        memory.write(address, buffer.view(np.uint8).tobytes())
        place_c = Placement(
            address + first * dtype.itemsize, pitch, self._strides(stride), span * dtype.itemsize
        )

        stats = self.launch_kernel(memory, place_a, place_b, place_c, **launch)
        buffer = np.frombuffer(memory.read(address, buffer.nbytes), dtype)
        batch, row, column = np.ogrid[: len(a), : self.m, : self.n]
        places = first + batch * stride + row * pitch + column
        untouched = np.ones(buffer.size, bool)
        untouched[places.ravel()] = False
        wide = np.result_type(np.float64, a.dtype if a.dtype.kind == "c" else np.float64)
        expected = np.matmul(a.astype(wide), b.astype(wide))
        memory.close()
        return Result(
            stats=stats, c=buffer[places], buffer=buffer, untouched=untouched, expected=expected
        )

    def problem(self, a: Placement, b: Placement, c: Placement) -> GemmProblem:
        """Return the record that kernels are selected by."""
        itemsize, out_itemsize = (NUMPY_DTYPE[d].itemsize for d in (self.dtype, self.out_dtype))
        return GemmProblem(
            m=self.m,
            n=self.n,
            k=self.k,
            batch=self.batch,
            a_dtype=self.dtype,
            b_dtype=self.b_dtype or self.dtype,
            out_dtype=self.out_dtype,
            a_major=self.a_major,
            b_major=self.b_major,
            a_align=a.align(itemsize),
            b_align=b.align(itemsize),
            c_align=c.align(out_itemsize),
            a_span=a.span,
            b_span=b.span,
            c_span=c.span,
        )

    def launch_kernel(self, memory, a, b, c, grid_of=grid, **launch):
        """Launch the kernel on matrices in device memory and return the statistics."""
        problem = self.problem(a, b, c)
        assert check(self.config, problem, ARCHS[self.arch]) is None
        compiled = compile_kernel(problem, self.config, self.arch)
        code = load(compiled.path.read_bytes(), memory, self.arch)
        target = TARGETS[self.arch]
        arguments = np.zeros(1, GEMM_ARGS)
        batch = (1, 1, 1, *self.batch)[-3:]
        values = {
            "a": a.address,
            "b": b.address,
            "c": c.address,
            "m": self.m,
            "n": self.n,
            "k": self.k,
            "batch0": batch[0],
            "batch1": batch[1],
            "batch2": batch[2],
            "lda": a.pitch,
            "ldb": b.pitch,
            "ldc": c.pitch,
            "a_stride": a.strides,
            "b_stride": b.strides,
            "c_stride": c.strides,
        }
        for name, value in values.items():
            arguments[name] = value
        packed = arguments.tobytes() + self.more_arguments(memory)
        if self.config.partition == "tiles":
            return self._launch_gemm(code, problem, packed, memory, grid_of, **launch)
        num_bytes = workspace_bytes(self.config, problem)
        parts = pack_parts(self.config, problem)
        if num_bytes:
            parts["workspace"] = memory.malloc(num_bytes, tag="workspace")
            if self.config.atomic:
                memory.write(int(parts["workspace"][0]), bytes(num_bytes))
        packed += parts.tobytes()
        add = functools.partial(
            run.launch,
            code.kernels[ADD_ENTRY],
            add_grid(self.config, problem),
            (ADD_THREADS, 1, 1),
            0,
            packed,
            memory,
            target,
            **launch,
        )
        if not num_bytes:  # it stores zeros, to which the GEMM adds
            add()
        stats = self._launch_gemm(code, problem, packed, memory, grid_of, **launch)
        if num_bytes:
            add()
        return stats

    def more_arguments(self, memory) -> bytes:
        """Return the bytes that follow the arguments of a plain kernel."""
        del memory
        return b""

    def _launch_gemm(self, code, problem, packed, memory, grid_of, **launch):
        entry = next(name for name in code.kernels if name != ADD_ENTRY)
        return run.launch(
            code.kernels[entry],
            grid_of(self.config, problem),
            (self.config.num_threads, 1, 1),
            0,
            packed,
            memory,
            TARGETS[self.arch],
            **launch,
        )

    def _strides(self, stride):
        batch = (1, 1, 1, *self.batch)[-3:]
        return stride * batch[1] * batch[2], stride * batch[2], stride

    def _place(self, memory, stored, pad, offset):
        count, rows, columns = stored.shape
        pitch, itemsize = columns + pad, stored.dtype.itemsize
        span = (rows - 1) * pitch + columns
        beside = {"i": 113, "u": 113, "c": complex(np.nan, np.nan)}.get(stored.dtype.kind, np.nan)
        buffer = np.full(offset + (count - 1) * rows * pitch + span, beside, stored.dtype)
        batch, row, column = np.ogrid[:count, :rows, :columns]
        buffer[offset + batch * rows * pitch + row * pitch + column] = stored
        address = memory.malloc(buffer.nbytes, tag="operand")
        memory.write(address, buffer.view(np.uint8).tobytes())
        return Placement(
            address + offset * itemsize, pitch, self._strides(rows * pitch), span * itemsize
        )


def with_layout(case: Case, layout: str) -> Case:
    """Return the case with other majors: in layout ``"mk"``, A is m-major and B is k-major."""
    return replace(case, a_major=layout[0], b_major=layout[1])
