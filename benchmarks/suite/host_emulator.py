"""Host: the speed of the emulated device. It says nothing about a GPU."""

from __future__ import annotations

import itertools
import statistics
import time

import numpy as np

TARGET = "gfx942"
_numbers = itertools.count()  # in the source of a kernel, to make it a new one


def device_time() -> float:
    """Wait for all launches and return the time: the timer of the benchmarks."""
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


class HostEmulatedProduct:
    """`cupygemm.matmul` of square bf16 matrices, with the kernel compiled and loaded."""

    version = "1"
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

    time_matmul.pretty_name = "Host: emulated product of squares, bf16"


class HostCuPyKernels:
    """CuPy's own kernels on a million float32 elements, compiled and loaded."""

    version = "1"
    params = ("elementwise", "reduction", "cumsum", "sort")
    param_names = ("operation",)
    timer = staticmethod(device_time)
    warmup_time = 0
    timeout = 300

    def setup(self, operation: str) -> None:
        import cupygemm.emulator

        cupygemm.emulator.enable(TARGET)
        import cupy

        x = cupy.asarray(np.random.default_rng(0).standard_normal(1 << 20, np.float32))
        self.run = {
            "elementwise": lambda: x * 2 + 1,
            "reduction": x.sum,
            "cumsum": lambda: cupy.cumsum(x),
            "sort": lambda: cupy.sort(x),
        }[operation]
        self.run()

    def time_operation(self, operation: str) -> None:
        self.run()

    def time_profiled(self, operation: str) -> None:
        from cupygemm import emulator

        with emulator.profile():
            self.run()

    time_operation.pretty_name = "Host: CuPy's kernels on a million elements, emulated"
    time_profiled.pretty_name = "Host: CuPy's kernels on a million elements, with a profile"


class HostSmallLaunches:
    """1,000 launches of a kernel on 1,000 elements."""

    version = "1"
    timer = staticmethod(device_time)
    warmup_time = 0
    timeout = 300

    def setup(self) -> None:
        import cupygemm.emulator

        cupygemm.emulator.enable(TARGET)
        import cupy

        self.x = cupy.ones(1000, "float32")
        self.y = cupy.empty_like(self.x)
        self.kernel = cupy.ElementwiseKernel("float32 x", "float32 y", "y = 2 * x + 1", "twice")
        self.kernel(self.x, self.y)

    def time_launches(self) -> None:
        for _ in range(1000):
            self.kernel(self.x, self.y)

    time_launches.pretty_name = "Host: 1,000 emulated launches on 1,000 elements"


class HostFirstLaunch:
    """The first launch of a kernel of some thousand instructions, with compilation and loading."""

    version = "1"
    timer = staticmethod(device_time)
    number, repeat, warmup_time = 1, 5, 0
    timeout = 300

    def setup(self) -> None:
        import cupygemm.emulator

        cupygemm.emulator.enable(TARGET)
        import cupy

        w = next(_numbers) + 0.5
        statements = "".join(f"v = v * {i}.5f + w; w = w / (v + {i});" for i in range(1, 100))
        source = (
            f'extern "C" __global__ void first(float *x) {{ float v = x[threadIdx.x], w = {w}f; '
            f"{statements} x[threadIdx.x] = v + w; }}"
        )
        self.x = cupy.ones(64, "float32")
        self.kernel = cupy.RawModule(code=source).get_function("first")

    def time_first_launch(self) -> None:
        self.kernel((1,), (64,), (self.x,))

    time_first_launch.pretty_name = "Host: first emulated launch of a kernel"


class HostInstructionTime:
    """Time per executed wave-instruction of a product of 512 x 512 x 512."""

    version = "1"
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
    track_instruction_time.pretty_name = "Host: time of an emulated instruction"


class HostProfiler:
    """A profile of one 256 x 256 tile with k = 64: counts, cache model, trace, timing model."""

    version = "1"
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

    time_profile.pretty_name = "Host: emulated product with a profile"
    time_without.pretty_name = "Host: emulated product without a profile"


class HostChecks:
    """The cost of the checks for hazards and races, for a product and an elementwise kernel.

    Checked and unchecked launches alternate, so that the machine has the same speed for both.
    """

    version = "1"
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

    track_ratio.pretty_name = "Host: cost of the checks for hazards and races"
