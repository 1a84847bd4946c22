"""Enabling the emulated device: once, before CuPy, under its ROCm build, and without ROCm."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import pytest

from cupygemm.emulator import _session
from cupygemm.emulator.host_libraries.connected import LIBRARIES
from cupygemm.emulator.runtime.libraries import OTHERS

Run = Callable[..., str]

REPORT = """
from cupygemm import emulator
try:
    {statement}
except Exception as error:
    print(f"{{type(error).__name__}}: {{error}}")
else:
    print("no error")
"""


def outcome(run_python: Run, statement: str, before: str = "") -> str:
    return run_python(before + REPORT.format(statement=statement))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("target", "name", "lds"),
    [
        ("gfx90a", "AMD Instinct MI250X", 65536),
        ("gfx942", "AMD Instinct MI300X", 65536),
        ("gfx950", "AMD Instinct MI355X", 163840),
    ],
)
def test_cupy_sees_the_target(run_python: Run, target: str, name: str, lds: int) -> None:
    printed = run_python(
        """
        import sys
        import cupygemm.emulator as emulator
        import cupy as cp
        print([name for name in ("linalg", "fft", "sparse") if f"scipy.{name}" in sys.modules])
        p = cp.cuda.runtime.getDeviceProperties(0)
        print(emulator.target(), emulator.is_enabled(), p["gcnArchName"].decode().split(":")[0])
        print(p["name"].decode(), p["sharedMemPerBlock"], p["warpSize"])
        print((cp.arange(4) + 1).get().tolist())
        """.replace("\n        ", "\n"),
        target=target,
    )
    assert printed.splitlines() == [
        "[]",  # SciPy, which replaces ROCm's libraries, takes half a second to import
        f"{target} True {target}",
        f"{name} {lds} 64",
        "[1, 2, 3, 4]",
    ]


def test_enabling_twice_is_one_device(run_python: Run) -> None:
    both = "emulator.enable('gfx942'); emulator.enable('gfx942'); import cupy; cupy.zeros(1)"
    assert outcome(run_python, both) == "no error\n"


def test_a_second_target_is_refused(run_python: Run) -> None:
    both = "emulator.enable('gfx942'); emulator.enable('gfx950')"
    printed = outcome(run_python, both)
    assert printed.startswith("EmulatorSetupError: gfx942 is already enabled in this process")


def test_an_unknown_target_lists_those_there_are(run_python: Run) -> None:
    printed = outcome(run_python, "emulator.enable('gfx1100')")
    assert printed == (
        "ValueError: target 'gfx1100' cannot be emulated; use one of gfx90a, gfx942, gfx950\n"
    )


def test_an_unknown_order_of_waves_is_refused_at_once(run_python: Run) -> None:
    setting = "import os; os.environ['CUPYGEMM_EMULATE_ORDER'] = 'random:1'"
    printed = outcome(run_python, f"{setting}; emulator.enable('gfx942')")
    assert printed.startswith("ValueError: CUPYGEMM_EMULATE_ORDER='random:1': write lockstep")


def test_a_loaded_cupy_is_refused(run_python: Run) -> None:
    before = "import sys, types; sys.modules['cupy'] = types.ModuleType('cupy')\n"
    printed = outcome(run_python, "emulator.enable()", before)
    assert printed.startswith("EmulatorSetupError: CuPy is imported already")
    assert "before `import cupy`" in printed


AFTER_A_FAILURE = """
import sys
sys.meta_path = [each for each in sys.meta_path if "startup" not in type(each).__module__]
try:
    import cupy
except ImportError as err:
    print("libamdhip64" in str(err))
{enable}
import cupy
print((cupy.arange(3) * 2).get().tolist())
"""


@pytest.mark.slow
@pytest.mark.parametrize("by_environment", [True, False])
def test_cupy_can_be_imported_after_it_has_failed(run_python: Run, by_environment: bool) -> None:
    """For example, in a checkout on PYTHONPATH, where the start-up file is not installed."""
    enable = "from cupygemm import emulator; emulator.enable('gfx942')"
    if by_environment:
        enable = "import cupygemm"
    target = "gfx942" if by_environment else None
    printed = run_python(AFTER_A_FAILURE.format(enable=enable), target=target)
    assert printed == "True\n[0, 2, 4]\n"


def test_a_loaded_rocm_runtime_is_refused(run_python: Run, tmp_path: Path) -> None:
    from cupygemm._build.host_compiler import host_shared_library

    source, library = tmp_path / "a.c", tmp_path / "libamdhip64.so.7"
    source.write_text("int hipInit(void) { return 0; }\n")
    host_shared_library([source], library, options=["-nostdlib"])
    printed = outcome(
        run_python, "emulator.enable()", f"import ctypes; ctypes.CDLL({str(library)!r})\n"
    )
    assert "a ROCm runtime (libamdhip64) is loaded in this process already" in printed


def test_a_machine_with_rocm_is_refused(run_python: Run) -> None:
    before = "from cupygemm.emulator import _session; _session._has_rocm = lambda: True\n"
    printed = outcome(run_python, "emulator.enable()", before)
    assert printed.startswith("EmulatorSetupError: this machine has ROCm and an AMD GPU (/dev/kfd)")


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        ([], "CuPy is not installed; the emulated device needs its ROCm build, cupy-rocm-7-0"),
        (["cupy-cuda13x"], "CuPy here is cupy-cuda13x; the emulated device needs its ROCm build"),
        (["cupy-rocm-7-0", "cupy-cuda13x"], "several builds of CuPy are installed"),
    ],
)
def test_another_cupy_is_refused(
    monkeypatch: pytest.MonkeyPatch, installed: list[str], expected: str
) -> None:
    monkeypatch.setattr(
        importlib.metadata,
        "packages_distributions",
        lambda: {"cupy": installed, "numpy": ["numpy"]},
    )
    monkeypatch.setattr(_session, "_named_like_cupy", lambda _: set(installed))
    with pytest.raises(_session.EmulatorSetupError, match=expected):
        _session._check_cupy()


def test_builds_of_cupy_are_found_by_their_folders(tmp_path: Path) -> None:
    for place, name in (
        ("a", "cupy_rocm_7_0-14.2.0.dist-info"),
        ("a", "cupygemm-0.1.0.dist-info"),
        ("b", "CuPy-13.0-py3.11.egg-info"),
        ("b", "cupyx"),
    ):
        (tmp_path / place / name).mkdir(parents=True)
    folders = [str(tmp_path / place) for place in ("a", "b", "missing")]
    assert _session._named_like_cupy(folders) == {"cupy-rocm-7-0", "cupy"}


def test_without_a_device_there_is_nothing_to_tell(run_python: Run) -> None:
    questions = "is_enabled(), emulator.target(), emulator.last_fault(), emulator.last_launch()"
    printed = outcome(run_python, f"print(emulator.{questions})")
    assert printed == "False None None None\nno error\n"


def test_an_empty_cache_is_filled(run_python: Run, tmp_path: Path) -> None:
    printed = run_python(
        "import cupygemm, cupy; print(cupy.asarray([1, 2]))",
        target="gfx942",
        env={"CUPYGEMM_CACHE_DIR": str(tmp_path / "c"), "CUPY_CACHE_DIR": str(tmp_path / "k")},
    )
    assert printed == "[1 2]\n"
    assert len(list((tmp_path / "c" / "runtime").rglob("*.so"))) == 2 + len(OTHERS) + len(LIBRARIES)


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_replaced_with_a_warning(
    run_python: Run, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    process = run_python(
        "import cupygemm, cupy; print(cupy.asarray([1, 2]))",
        target="gfx942",
        env={"CUPYGEMM_CACHE_DIR": str(tmp_path / "file" / "c"), "TMPDIR": str(tmp_path)},
        check=False,
    )
    assert (process.returncode, process.stdout) == (0, "[1 2]\n")
    assert "set CUPYGEMM_CACHE_DIR to a directory that can be written to" in process.stderr
    assert process.stderr.count("CacheWarning") == 1


def test_a_cache_of_another_user_is_not_executed(run_python: Run, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c").chmod(0o777)
    process = run_python(
        "import cupygemm",
        target="gfx942",
        env={"CUPYGEMM_CACHE_DIR": str(tmp_path / "c")},
        check=False,
    )
    assert process.returncode == 1
    assert f"{tmp_path / 'c'} has mode 0777" in process.stderr
