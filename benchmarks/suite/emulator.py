"""Wall-clock time of the emulated device and of the host: it says nothing about a GPU."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from unittest import mock

import numpy as np

TARGET = "gfx942"


def device_time() -> float:
    """Return the time at which everything launched so far is done: the timer of the benchmarks."""
    import cupy

    cupy.cuda.get_current_stream().synchronize()
    return time.perf_counter()


def operands(*extents: int) -> list:
    """Return random bf16 matrices of the given extents, (m, k) and (k, n), on the device."""
    import cupygemm.emulator

    cupygemm.emulator.enable(TARGET)
    import cupy
    import ml_dtypes

    generator = np.random.default_rng(0)
    m, n, k = extents
    return [
        cupy.asarray(generator.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16))
        for shape in ((m, k), (k, n))
    ]


def _launch_nothing(*_arguments: object) -> None:
    pass


class Matmul:
    """`cupygemm.matmul` of squares, bf16, the kernel compiled and loaded."""

    params = (256, 512, 1024)
    param_names = ("extent",)
    timer = staticmethod(device_time)
    warmup_time = 0
    timeout = 300

    def setup(self, extent: int) -> None:
        import cupygemm

        self.matmul = cupygemm.matmul
        self.a, self.b = operands(extent, extent, extent)
        small = operands(extent, extent, 64)
        self.matmul(*small)

    def time_matmul(self, extent: int) -> None:
        self.matmul(self.a, self.b)


class InstructionRate:
    """Time per executed wave-instruction of a product of 512 x 512 x 512."""

    timeout = 300

    def setup(self) -> None:
        import cupygemm

        self.a, self.b = operands(512, 512, 512)
        cupygemm.matmul(self.a, self.b)

    def track_instruction_time(self) -> float:
        import cupygemm
        from cupygemm import emulator

        cupygemm.matmul(self.a, self.b)
        stats = emulator.last_launch()
        return stats.seconds / stats.instructions * 1e6

    track_instruction_time.unit = "seconds per million instructions"


class Profiler:
    """The profile of one 256 x 256 tile, 64 deep: counts, cache model, trace and timing model."""

    timer = staticmethod(device_time)
    warmup_time = 0
    timeout = 300

    def setup(self) -> None:
        import cupygemm

        self.matmul = cupygemm.matmul
        self.a, self.b = operands(256, 256, 64)
        self.time_profile()

    def time_profile(self) -> None:
        from cupygemm import emulator

        with emulator.profile():
            self.matmul(self.a, self.b)

    def time_without(self) -> None:
        self.matmul(self.a, self.b)


class Checks:
    """What the checks for hazards and races cost a product and an elementwise kernel.

    A checked launch follows an unchecked one, so that both meet the machine at one speed.
    """

    params = ("product", "elementwise")
    param_names = ("kernel",)
    unit = "times the unchecked"
    timeout = 300

    def setup(self, kernel: str) -> None:
        import cupygemm

        a, b = operands(512, 512, 512)
        import cupy

        x = cupy.ones(1 << 18, "float32")
        self.run = {
            "product": lambda: cupygemm.matmul(a, b),
            "elementwise": lambda: x + x,
        }[kernel]
        for checked in (False, True):
            self.seconds(checked)

    def seconds(self, checked: bool) -> float:
        from cupygemm import emulator

        with emulator.checks(checked):
            start = device_time()
            self.run()
            return device_time() - start

    def track_ratio(self, kernel: str) -> float:
        pairs = [(self.seconds(False), self.seconds(True)) for _ in range(11)]
        return statistics.median(checked / unchecked for unchecked, checked in pairs)


class HostOverhead:
    """A repeated call without the emulation: look-up, allocation, arguments, CuPy's launch."""

    def setup(self) -> None:
        import cupygemm

        self.matmul = cupygemm.matmul
        self.a, self.b = operands(64, 64, 64)
        self.matmul(self.a, self.b)
        from cupygemm.emulator import _session

        self.patch = mock.patch.object(_session._device, "launch", new=_launch_nothing)
        self.patch.start()
        self.matmul(self.a, self.b)

    def teardown(self) -> None:
        self.patch.stop()

    def time_matmul(self) -> None:
        self.matmul(self.a, self.b)


class Compile:
    """A kernel from nothing: source, compiler, code object, with an empty cache."""

    params = ("gfx90a", "gfx942", "gfx950")
    param_names = ("target",)
    number, repeat, warmup_time = 1, 3, 0
    timeout = 120

    def setup(self, target: str) -> None:
        from suite.products import product

        self.cache = tempfile.TemporaryDirectory()
        os.environ["CUPYGEMM_CACHE_DIR"] = self.cache.name
        self.product = product(target, "128x128x64")

    def teardown(self, target: str) -> None:
        self.cache.cleanup()

    def time_compile(self, target: str) -> None:
        from cupygemm._backends.cdna import compile as _compile

        _compile.compile_source.cache_clear()
        self.product.kernel  # noqa: B018  # compiles


class Import:
    """Import times in a new process."""

    def timeraw_import_cupygemm(self) -> str:
        return "import cupygemm"

    def timeraw_enable_and_import_cupy(self) -> str:
        return "import cupygemm.emulator; cupygemm.emulator.enable('gfx942'); import cupy"
