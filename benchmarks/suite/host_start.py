"""Host: the time before the first product: imports, and the compilation of a kernel."""

from __future__ import annotations

import os
import sys
import tempfile

from suite.commit import find
from suite.kernels import TARGETS, _cases

MAINLOOP = "register_double_buffer"


class HostCompile:
    """Seconds to make a bf16 kernel: source, compiler, code object, with an empty cache."""

    version = "1"
    params = TARGETS
    param_names = ("architecture",)
    number, repeat, warmup_time = 1, 3, 0
    timeout = 120

    def setup(self, target: str) -> None:
        self.cache = tempfile.TemporaryDirectory()
        os.environ["CUPYGEMM_CACHE_DIR"] = self.cache.name
        arch = find("ARCHS")[target]
        self.case = next(
            (problem, config)
            for config, problem in _cases(target, "bf16", MAINLOOP)
            if find("check")(config, problem, arch) is None
        )

    def teardown(self, target: str) -> None:
        self.cache.cleanup()

    def time_compile(self, target: str) -> None:
        compile_kernel = find("compile_kernel")
        sys.modules[compile_kernel.__module__].compile_source.cache_clear()
        compile_kernel(*self.case, target)

    time_compile.pretty_name = "Host: compilation of a kernel"


class HostImport:
    """Seconds of an import in a new process."""

    version = "1"

    def timeraw_import_cupygemm(self) -> str:
        return "import cupygemm"

    def timeraw_enable_and_import_cupy(self) -> str:
        return "import cupygemm.emulator; cupygemm.emulator.enable('gfx942'); import cupy"

    timeraw_import_cupygemm.pretty_name = "Host: import of cupygemm"
    timeraw_enable_and_import_cupy.pretty_name = "Host: import of CuPy on the emulated device"
