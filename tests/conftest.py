"""The device that tests run on, which is chosen once per session, before CuPy is imported.

A test takes the fixture `device`, which describes what runs the kernels, or `cp`, which is CuPy on
that device. The same test then runs on the emulated device, on ROCm and on CUDA. CuPy can use one
emulated target per process, so a test of another target starts a process through `run_python`.
`cupygemm.emulator.run.launch` takes any target.
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.pathlib import import_path
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers as hypothesis_providers

# The workers of pytest-xdist use all cores, and idle threads of NumPy's BLAS spin while they wait
# for the next product. NumPy reads this when it is imported, also in processes that tests start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from cupygemm.emulator.targets import TARGETS

HERE = Path(__file__).parent
# Failing assertions of helper modules then show their operands, like those of test modules.
pytest.register_assert_rewrite(
    *(f"tests.{path.stem}" for path in HERE.iterdir() if path.name != "conftest.py")
)

from tests.tables import (  # noqa: E402, after its assertions are registered
    fail_for_broken_tables,
    mark_drawn,
    mark_sweeps,
)

ROOT = HERE.resolve().parent


@dataclass(frozen=True)
class Device:
    """The device that runs the kernels of this session: its kind and its target, such as `gfx942`.

    The modelled GPU counts as a CUDA device.
    """

    kind: str
    target: str
    backend: str = "default"

    @property
    def emulated(self) -> bool:
        """Whether the device is the emulated one."""
        return self.kind == "emulated"

    @property
    def has_kernels(self) -> bool:
        """Whether kernels of this library multiply; otherwise `cupy.matmul` or the backend does."""
        return self.backend == "default" and (self.kind != "cuda" or self.target == "sm_90")

    @property
    def runs_cdna(self) -> bool:
        """Whether the kernels for CDNA multiply."""
        return self.backend == "default" and self.kind != "cuda"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cupygemm")
    group.addoption(
        "--device",
        choices=("auto", "emulated", "rocm", "cuda", "modelled"),
        default="auto",
        help="device under CuPy; auto takes a GPU that the installed CuPy can use, else emulates; "
        "modelled is the model of a Hopper GPU in tests/hopper_model",
    )
    group.addoption(
        "--target",
        choices=tuple(TARGETS),
        default=os.environ.get("CUPYGEMM_EMULATE") or "gfx942",
        help="target of the emulated device",
    )

    group.addoption(
        "--backend",
        choices=("default", "numpy"),
        default="default",
        help="what multiplies: the device's own backends, or tests/backends/numpy_backend.py",
    )

    group.addoption(
        "--turn",
        type=int,
        help='which part of the sweeps -m "not sweep or drawn" runs; CI counts commits',
    )


_DEVICE = pytest.StashKey[str]()
_FIRST_STATES = pytest.StashKey[dict[str, dict]]()  # of each module's random numbers


# Random cases are the same in each run, and none fails because the machine is busy.
settings.register_profile(
    "cupygemm",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("cupygemm")
# Hypothesis also draws constants of those modules of ours that are imported so far: others in each
# worker and in each run of fewer tests. To look for them takes up to two seconds a process.
if hasattr(hypothesis_providers, "_get_local_constants"):  # absent from versions that draw none
    NO_CONSTANTS = hypothesis_providers.Constants()
    hypothesis_providers._get_local_constants = lambda: NO_CONSTANTS


def pytest_configure(config: pytest.Config) -> None:
    # Tests and decoded kernels are many small objects that stay, and at Python's thresholds a fifth
    # of a session's processor time is spent on looking for garbage among them.
    gc.set_threshold(50_000, 20, 50)
    kind = config.getoption("--device")
    if kind == "auto":
        kind = _best_device()
    config.stash[_DEVICE] = kind
    config.stash[_FIRST_STATES] = {}
    _share_host_compilations()
    if kind == "emulated":
        import cupygemm.emulator

        cupygemm.emulator.enable(config.getoption("--target"))
    if config.getoption("--backend") == "numpy":
        from cupygemm._backends import registry
        from tests.backends import numpy_backend

        asked_first = registry.registered(numpy_backend.create)
        asked_first.__enter__()
        config.add_cleanup(lambda: asked_first.__exit__(None, None, None))


def _share_host_compilations() -> None:
    """Provide the emulator's compiled C to tests with their own kernel cache."""
    from cupygemm._build.cache import cache_dir

    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        os.environ.setdefault(name, str(cache_dir() / "zig"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Make every other worker import the test modules in reverse order.

    Each module and its imports are then compiled by the worker that imports it first, and loaded by
    the others. In the same order, all workers would compile the same modules simultaneously.
    """
    config = session.config
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    if worker % 2 == 0 or config.args_source is not config.ArgsSource.TESTPATHS:
        return
    for path in sorted(HERE.rglob("test_*.py"), reverse=True):
        # Errors are reported when the module is collected.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            import_path(
                path,
                mode="importlib",
                root=config.rootpath,
                consider_namespace_packages=False,
            )


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_sweeps(items)
    turn = config.getoption("--turn")
    if turn is not None:
        mark_drawn(items, turn)


def pytest_collection_finish() -> None:
    _keep_from_the_collector()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    result = yield
    if nextitem is not None and nextitem.path != item.path:
        _keep_from_the_collector()
    return result


def _keep_from_the_collector() -> None:
    """Exclude all live objects from garbage collection.

    The tests and the decoded kernels in the emulator's caches are millions of objects that live
    until the session ends, and each full collection visited them all, for up to ten seconds. Now a
    collection visits only objects that are new since the last module.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    fail_for_broken_tables(item)
    _restart_random_numbers(item)


def _restart_random_numbers(item: pytest.Item) -> None:
    """Make a module's `RNG` give a test the same numbers, whichever tests ran before it."""
    module = getattr(item, "module", None)
    generator = getattr(module, "RNG", None)
    if generator is not None:
        first = item.config.stash[_FIRST_STATES].setdefault(
            module.__name__, generator.bit_generator.state
        )
        generator.bit_generator.state = first


def pytest_report_header(config: pytest.Config) -> str:
    kind = config.stash[_DEVICE]
    target = f" {config.getoption('--target')}" if kind == "emulated" else ""
    return f"device: {kind}{target}"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if config.getoption("--backend") == "numpy":
        from tests.backends.numpy_backend import NumpyBackend

        terminalreporter.write_line(f"NumPy backend: {NumpyBackend.num_products} products")


def _best_device() -> str:
    """Return the kind of device that `cupygemm demo` would use."""
    from cupygemm._commands.detect import best_device

    return "emulated" if os.environ.get("CUPYGEMM_EMULATE") else best_device().kind


@pytest.fixture(scope="session")
def cp(pytestconfig: pytest.Config) -> Iterator[ModuleType]:
    """CuPy, on the session's device."""
    if pytestconfig.stash[_DEVICE] == "modelled":
        from tests.hopper_model.device import modelled

        with modelled() as (cupy, _):
            yield cupy
    else:
        import cupy

        yield cupy


@pytest.fixture(autouse=True)
def finished_streams() -> Iterator[None]:
    """Prevent races between a test's remaining work in streams and the next test."""
    yield
    if "cupygemm.emulator._session" in sys.modules:
        sys.modules["cupygemm.emulator._session"].finish_streams()


@pytest.fixture(scope="session")
def device(pytestconfig: pytest.Config, cp: ModuleType) -> Device:
    """The session's device."""
    kind = pytestconfig.stash[_DEVICE]
    if kind == "emulated":
        return Device(kind, pytestconfig.getoption("--target"), pytestconfig.getoption("--backend"))
    properties = cp.cuda.runtime.getDeviceProperties(0)
    if kind == "rocm":
        return Device(kind, properties["gcnArchName"].decode().split(":")[0])
    return Device("cuda", f"sm_{properties['major']}{properties['minor']}")


@pytest.fixture(scope="session")
def cdna_compiler(pytestconfig: pytest.Config) -> None:
    """Skip a test on another GPU's machine that has no compiler for CDNA."""
    from cupygemm._build.toolchain import ToolchainError, find_toolchain

    if pytestconfig.stash[_DEVICE] == "cuda":
        try:
            find_toolchain()
        except ToolchainError as err:
            pytest.skip(str(err))


@pytest.fixture(scope="session")
def emulated_targets(pytestconfig: pytest.Config) -> None:
    """Skip a test on another GPU's machine that has no CuPy for ROCm."""
    from cupygemm._commands.detect import find_devices

    *_, emulated = find_devices()
    if pytestconfig.stash[_DEVICE] == "cuda" and not emulated.usable:
        pytest.skip(f"no emulated device: {emulated.reason}")


@pytest.fixture(scope="session")
def run_python() -> Callable[..., str]:
    """Run Python code in a new process and return its output.

    ``run_python(code, target="gfx950", env={...}, check=True)`` emulates `target` in the process;
    with None, the code chooses. ``check=False`` returns the completed process.
    """

    def run(
        code: str,
        *,
        target: str | None = None,
        env: dict[str, str] | None = None,
        check: bool = True,
        timeout: float = 600,  # ends a hang; no machine takes this long
    ) -> str | subprocess.CompletedProcess[str]:
        environment = {key: value for key, value in os.environ.items() if key != "CUPYGEMM_EMULATE"}
        if target is not None:
            environment["CUPYGEMM_EMULATE"] = target
        environment |= env or {}
        process = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if not check:
            return process
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    return run
