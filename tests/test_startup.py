"""The start-up file: CUPYGEMM_EMULATE works whatever a program imports first."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.environments import ROOT, Environment

STARTUP_FILE = ROOT / "cupygemm_startup" / "cupygemm_startup.pth"
HERE = {"PYTHONSAFEPATH": "1", "CUPYGEMM_EMULATE": "gfx950"}
WAYS = {
    "editable": ["--editable"],
    "strict": ["--config-settings", "editable_mode=strict", "--editable"],
}


class Installed(dict[str, Environment]):
    """An environment for each way to install, created at its first use.

    The wheel's is shared with other tests.
    """

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self.factory = factory

    def __missing__(self, way: str) -> Environment:
        if way == "wheel":
            return self.setdefault(way, Environment.shared(self.factory))
        return self.setdefault(way, Environment.make(self.factory.mktemp(way), WAYS[way]))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory)


TRIED = ["wheel", *(pytest.param(way, marks=pytest.mark.sweep) for way in ("editable", "strict"))]


@pytest.fixture(params=TRIED)
def environment(request: pytest.FixtureRequest, installed: Installed) -> Environment:
    return installed[request.param]


@pytest.fixture
def wheel(installed: Installed) -> Environment:
    return installed["wheel"]


@pytest.mark.slow
def test_cupy_can_be_imported_first(environment: Environment) -> None:
    code = (
        "import sys\n"
        "assert 'numpy' not in sys.modules and 'cupygemm' not in sys.modules\n"
        "import cupy\n"
        "print(cupy.cuda.runtime.getDeviceProperties(0)['gcnArchName'].decode()[:6],\n"
        "      int(cupy.arange(10).sum()), sys.modules['cupygemm'].emulator.target())\n"
        "print([f for f in sys.meta_path if type(f).__module__ == 'cupygemm_startup'])"
    )
    assert environment.output(code, **HERE).splitlines() == ["gfx950 45 gfx950", "[]"]


def test_without_the_variable_nothing_is_imported(environment: Environment) -> None:
    code = "import sys; print([name for name in sys.modules if name.startswith('cupygemm')])"
    assert environment.output(code) == "[]"
    assert environment.output(code, CUPYGEMM_EMULATE="") == "[]"


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["cupyx", "cupyx.scipy.special", "cupy_backends", "cupygemm"])
def test_any_package_of_cupy_enables_the_device(wheel: Environment, name: str) -> None:
    code = f"import {name}, cupy, cupygemm\nprint(cupygemm.emulator.target())"
    assert wheel.output(code, **HERE) == "gfx950"


def test_looking_for_cupy_does_not_enable_the_device(wheel: Environment) -> None:
    code = (
        "import importlib.util, sys\n"
        "spec = importlib.util.find_spec('cupy')\n"
        "print(spec.loader.get_filename('cupy') == spec.origin, 'cupygemm' in sys.modules)"
    )
    assert wheel.output(code, **HERE) == "True False"


@pytest.mark.slow
def test_a_folder_of_the_same_name_does_not_hide_the_package(environment: Environment) -> None:
    """``git clone`` leaves such a folder, and programs are run next to it."""
    (environment.folder / "cupygemm").mkdir(exist_ok=True)
    code = "import cupygemm, cupygemm.kernels\nprint(cupygemm.matmul.__name__)"
    assert environment.output(code) == "matmul"
    code = "import cupy, cupygemm\nprint(cupygemm.emulator.target())"
    assert environment.output(code, CUPYGEMM_EMULATE="gfx950") == "gfx950"


def test_a_missing_runtime_names_the_emulated_device(wheel: Environment) -> None:
    code = (
        "import sys\n"
        "import cupygemm\n"
        "for _ in range(2):\n"
        "    try:\n"
        "        import cupy\n"
        "    except ImportError as err:\n"
        "        print('libamdhip64' in str(err), *err.__notes__)\n"
        "cupygemm.emulator.enable('gfx950')\n"
        "import cupy\n"
        "print(int(cupy.arange(3).sum()))"
    )
    note = "cupygemm: This CuPy is built for AMD GPUs, and found no ROCm runtime (libamdhip64)."
    lines = wheel.output(code, PYTHONSAFEPATH="1").splitlines()
    assert [line for line in lines if not line.startswith("  ")] == [f"True {note}"] * 2 + ["3"]
    assert "  or call cupygemm.emulator.enable" in "\n".join(lines)


def test_other_errors_of_cupy_have_no_note(wheel: Environment, tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("import a_module_that_is_missing")
    code = (
        "import cupygemm\n"
        "try:\n"
        "    import cupy\n"
        "except ImportError as err:\n"
        "    print(err.name, hasattr(err, '__notes__'))"
    )
    assert wheel.output(code, PYTHONPATH=str(tmp_path)) == "a_module_that_is_missing False"


def test_a_loaded_cupy_has_its_own_loader(wheel: Environment, tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("")
    code = (
        "import sys\n"
        "import cupygemm, cupy\n"
        "print(type(cupy.__spec__.loader).__name__, type(cupy.__loader__).__name__)\n"
        "print([f for f in sys.meta_path if type(f).__module__.startswith('cupygemm')])"
    )
    lines = wheel.output(code, PYTHONPATH=str(tmp_path)).splitlines()
    assert lines == ["SourceFileLoader SourceFileLoader", "[]"]


def test_an_unknown_target_is_named_by_each_import(wheel: Environment) -> None:
    code = (
        "for _ in range(2):\n"
        "    try:\n"
        "        import cupy\n"
        "    except ValueError as err:\n"
        "        print(err)"
    )
    lines = wheel.output(code, PYTHONSAFEPATH="1", CUPYGEMM_EMULATE="gfx1100").splitlines()
    assert lines == ["target 'gfx1100' cannot be emulated; use one of gfx90a, gfx942, gfx950"] * 2


def test_the_devices_allocator_is_installed(wheel: Environment) -> None:
    """The loader of the start-up file calls the one that installs the allocator."""
    code = "import cupy\nprint(cupy.cuda.get_allocator().__module__.startswith('cupygemm'))"
    assert wheel.output(code, **HERE) == "True"


@pytest.mark.slow
@pytest.mark.parametrize("way", TRIED)
def test_uninstalling_removes_the_file(installed: Installed, way: str, tmp_path: Path) -> None:
    environment = installed[way].copy(tmp_path)
    assert environment.output("import cupygemm_startup") == ""  # leaves it compiled
    assert (environment.site / STARTUP_FILE.name).exists()
    environment.pip("uninstall", "--yes", "cupygemm")
    left = {path.name for path in environment.site.iterdir()}
    assert left == {"packages_of_the_tests.pth"}
    assert environment.output("print('silent')", **HERE) == "silent"


def test_the_line_costs_nothing_without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads one variable, and imports only os, which Python has already loaded."""
    monkeypatch.delenv("CUPYGEMM_EMULATE", raising=False)
    (line,) = STARTUP_FILE.read_text().splitlines()
    assert line.startswith("import os; os.environ.get(")
    before = set(sys.modules)
    exec(line, {})
    assert set(sys.modules) == before
