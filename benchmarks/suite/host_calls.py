"""Host: the time of a call before the launch, for each function of this library, and CuPy's.

Both run in one process on small arrays, so that the time is that of the path to the launch. On the
emulated device a launch returns immediately and computes nothing. CuPy has no BLAS library there,
so its figures are those of integers; on a GPU both are float32 and the launches are real.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, ClassVar

FUNCTIONS = (
    "matmul",
    "matmul out",
    "dot",
    "inner",
    "outer",
    "tensordot",
    "einsum",
    "einsum of three",
)
OURS_ONLY = ("vecdot", "matvec", "linear", "gemm", "grouped_matmul of 16")


class Launches:
    """The emulated device's launches, which compute nothing once `answered_at_once` is set."""

    answered_at_once = False

    @classmethod
    def watch(cls) -> None:
        """Wrap the runtime's function; the runtime must not have started."""
        from cupygemm.emulator.runtime.hip_module import ModuleFunctions

        launch = ModuleFunctions.hipModuleLaunchKernel

        def answer(self: Any, *args: Any) -> None:
            if not cls.answered_at_once:
                launch(self, *args)

        ModuleFunctions.hipModuleLaunchKernel = answer


def start() -> Any:
    """Start the best device, and return CuPy."""
    import cupygemm.emulator
    from cupygemm._commands.detect import DEFAULT_TARGET, best_device

    if best_device().kind == "emulated" and not cupygemm.emulator.is_enabled():
        Launches.watch()
        cupygemm.emulator.enable(DEFAULT_TARGET)
    import cupy

    return cupy


def calls(cp: Any, module: Any, dtype: str) -> dict[str, Callable[[], Any]]:
    """Return calls of a module's functions on small arrays."""
    a, b, v = cp.ones((32, 48), dtype), cp.ones((48, 64), dtype), cp.ones(48, dtype)
    turned, stack, out = (
        cp.ones((64, 48), dtype),
        cp.ones((3, 32, 48), dtype),
        cp.zeros((32, 64), dtype),
    )
    bias, c, many = cp.ones(64, dtype), cp.ones((32, 64), dtype), [a] * 16
    outs = [cp.zeros((32, 64), dtype) for _ in many]
    return {
        "matmul": lambda: module.matmul(a, b),
        "matmul out": lambda: module.matmul(a, b, out=out),
        "dot": lambda: module.dot(a, b),
        "inner": lambda: module.inner(a, turned),
        "outer": lambda: module.outer(v, v),
        "tensordot": lambda: module.tensordot(stack, b, 1),
        "einsum": lambda: module.einsum("bij,jk->bik", stack, b),
        "einsum of three": lambda: module.einsum("bij,jk,k->bi", stack, b, bias),
        "vecdot": lambda: module.vecdot(a, a),
        "matvec": lambda: module.matvec(a, v),
        "linear": lambda: module.linear(stack, turned, bias),
        "gemm": lambda: module.gemm(2, a, b, 1, c),
        "grouped_matmul of 16": lambda: module.grouped_matmul(many, [b] * 16, outs),
    }


class HostWarmCall:
    """Host time in seconds of a repeated call."""

    version = "1"
    params: ClassVar[tuple[tuple[str, ...], ...]] = ((*FUNCTIONS, *OURS_ONLY), ("cupygemm", "cupy"))
    param_names = ("function", "of")
    number = 100
    repeat = (3, 10, 5.0)

    def setup(self, function: str, of: str) -> None:
        import cupygemm
        import cupygemm.emulator

        cp = start()
        emulated = cupygemm.emulator.is_enabled()
        if of == "cupy" and function in OURS_ONLY:
            raise NotImplementedError("CuPy has no such function")
        module, dtype = (
            (cupygemm, "float32") if of == "cupygemm" else (cp, "int32" if emulated else "float32")
        )
        Launches.answered_at_once = False
        self.call = calls(cp, module, dtype)[function]
        for _ in range(3):
            self.call()
        cp.cuda.Device().synchronize()
        Launches.answered_at_once = True

    def time_call(self, function: str, of: str) -> None:
        self.call()

    time_call.pretty_name = "Host: warm call"


class HostColdCall:
    """Host time in seconds of the first call for a shape whose kernel is in the cache."""

    version = "1"
    number, repeat, warmup_time = 1, (5, 20, 5.0), 0
    _rows = itertools.count(33)

    def setup(self) -> None:
        import cupygemm

        cp = start()
        self.matmul = cupygemm.matmul
        Launches.answered_at_once = False
        for _ in range(2):  # for the second one, the kernel is compiled and loaded
            self.operands = cp.ones((next(self._rows), 48), "float32"), cp.ones((48, 64), "float32")
            self.matmul(*self.operands)
        cp.cuda.Device().synchronize()
        Launches.answered_at_once = True
        self.operands = cp.ones((next(self._rows), 48), "float32"), self.operands[1]

    def time_call(self) -> None:
        self.matmul(*self.operands)

    time_call.pretty_name = "Host: cold call"
