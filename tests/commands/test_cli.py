"""The command line: what it prints as text and as JSON, and its exit status."""

import io
import json
import os

import pytest
from rich.console import Console
from typer.testing import CliRunner

import cupygemm
from cupygemm import testing
from cupygemm._commands import cli as _cli
from cupygemm._commands import demo as _demo
from cupygemm._commands import detect as _detect

COUNTS = ("kernel", "MFMA", "instructions")
HEADINGS = ("shape", "dtype", "layout", "kernel", "error", "bound", "time", "MFMA", "instructions")


@pytest.fixture
def invoke():
    """Return a function that runs a command line and returns its result."""
    return lambda *arguments: CliRunner().invoke(_cli.app, arguments)


def test_version(invoke):
    assert invoke("--version").output == f"cupygemm {cupygemm.__version__}\n"


@pytest.mark.slow
def test_demo_for_machines(run_python):
    """The command runs in its own process, without a choice of device."""
    code = "import sys; sys.argv = ['cupygemm', 'demo', '--json']; import cupygemm.__main__"
    report = json.loads(run_python(code))
    assert report["ok"] is True
    assert report["seconds"] > 0
    products = report["products"]
    assert len(products) == len(_demo.CASES)
    for product in products:
        assert product["ok"]
        assert 0 <= product["error"] <= product["bound"]
        assert product["seconds"] > 0
        if report["emulated"]:
            assert product["backend"] == "cupygemm"
            assert product["mfma"] > 0
            assert product["instructions"] > product["mfma"]
    assert {product["dtype"] for product in products} >= {"bf16 -> bf16", "fp16 -> fp32"}


def test_demo_for_people(invoke, device, monkeypatch):
    monkeypatch.setattr(_demo, "CASES", _demo.CASES[3:5])
    result = invoke("demo")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert device.target in lines[0] or not device.emulated
    lines = lines[1 + device.emulated :]
    assert lines[0].split()[:4] == ["shape", "dtype", "layout", "kernel"]
    assert ("instructions" in lines[0]) == device.emulated
    assert lines[1].startswith("129x65x257")
    assert "all 2 products are within their bounds" in lines[-1]


@pytest.mark.parametrize(("width", "hidden"), [(130, ()), (110, ("kernel",)), (80, COUNTS)])
def test_the_table_of_the_demo_fits_the_terminal(monkeypatch, width, hidden):
    """The widest row of the demonstration takes one line, also in 80 columns."""
    outcome = _demo.Outcome(
        shape="1024x1024x1024",
        dtype="bf16 -> bf16",
        layout="sub-matrix views",
        config="32x128x256 w1x4 mma16x16x16",
        backend="cupygemm",
        error=0.25,
        bound=0.5,
        seconds=0.2,
        mfma=98304,
        instructions=864768,
    )
    terminal = Console(width=width, file=io.StringIO())
    _cli._print_outcomes(terminal, [outcome], emulated=True)
    header, row, *legend = terminal.file.getvalue().splitlines()
    assert legend[0] == ""
    assert header.split() == [name for name in HEADINGS if name not in hidden]
    assert max(map(len, legend)) <= width
    assert row.split()[0] == outcome.shape


@pytest.mark.parametrize("arguments", [("demo",), ("demo", "--json")])
def test_an_error_beyond_its_bound_fails_the_demo(invoke, cp, monkeypatch, arguments):
    def too_far(*args):
        errors, bounds = testing.errors_and_bounds(*args)
        return errors + 2 * bounds, bounds

    monkeypatch.setattr(_demo, "CASES", _demo.CASES[3:5])
    monkeypatch.setattr(_demo, "errors_and_bounds", too_far)
    result = invoke(*arguments)
    assert result.exit_code == 1
    if "--json" in arguments:
        assert json.loads(result.stdout)["ok"] is False
    else:
        assert "2 of 2 products exceed their bound" in result.output


def test_demo_without_any_device(invoke, monkeypatch):
    monkeypatch.setattr(cupygemm.emulator, "is_enabled", lambda: False)
    monkeypatch.setattr(_detect, "cupy_builds", lambda: ())
    monkeypatch.setattr(_detect.importlib.util, "find_spec", lambda _: None)
    result = invoke("demo")
    assert result.exit_code == 2
    assert "emulated: CuPy's ROCm build, but no CuPy is installed" in result.stderr
    assert 'pip install "cupygemm[emulator]"' in result.stderr


def test_info_for_people(invoke, tmp_path, monkeypatch):
    monkeypatch.setenv("CUPYGEMM_CACHE_DIR", str(tmp_path))
    (tmp_path / "hsaco").mkdir()
    (tmp_path / "hsaco" / "kernel.hsaco").write_bytes(bytes(3 << 20))
    output = invoke("info").output
    assert cupygemm.__version__ in output
    for title in ("Versions", "Devices", "Emulator", "Compilers", "Cache"):
        assert title in output
    assert "1 files, 3.0 MiB" in output


def test_info_while_other_processes_change_the_cache(invoke, tmp_path, monkeypatch):
    """A file and a directory of a build disappear between being listed and being looked at."""
    monkeypatch.setenv("CUPYGEMM_CACHE_DIR", str(tmp_path))
    for name in ("stays", "file_goes", "directory_goes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(bytes(1000))
    scandir, stat = os.scandir, os.stat

    def scan(path="."):
        if str(path) == str(tmp_path / "directory_goes"):
            (tmp_path / "directory_goes" / "file").unlink()
            (tmp_path / "directory_goes").rmdir()
        return scandir(path)

    def look_at(path, **options):
        if str(path) == str(tmp_path / "file_goes" / "file"):
            (tmp_path / "file_goes" / "file").unlink(missing_ok=True)
        return stat(path, **options)

    monkeypatch.setattr(os, "scandir", scan)
    monkeypatch.setattr(os, "stat", look_at)
    result = invoke("info", "--json")
    monkeypatch.undo()
    assert result.exit_code == 0, result.exception
    cache = json.loads(result.stdout)["cache"]
    assert (cache["files"], cache["bytes"]) == (1, 1000)


def test_info_for_machines(invoke):
    result = invoke("info", "--json")
    assert result.exit_code == 0, result.stderr or result.exception
    account = json.loads(result.stdout)
    assert [entry["kind"] for entry in account["devices"]] == ["rocm", "cuda", "emulated"]
    for entry in account["compilers"]:
        assert ("version" in entry) != ("missing" in entry)
    found = any("version" in entry for entry in account["compilers"])
    assert sum(entry["used"] for entry in account["compilers"]) == found
    assert account["versions"]["cupygemm"] == cupygemm.__version__


def test_info_without_a_compiler(invoke, monkeypatch):
    monkeypatch.setenv("CUPYGEMM_TOOLCHAIN", "rocm")
    monkeypatch.setenv("ROCM_HOME", "/nowhere")
    account = json.loads(invoke("info", "--json").output)
    rocm = account["compilers"][0]
    assert rocm["name"] == "rocm"
    assert ("missing" in rocm) != ("version" in rocm)


def test_info_refuses_a_cache_that_others_can_write_to(invoke, tmp_path, monkeypatch):
    monkeypatch.setenv("CUPYGEMM_CACHE_DIR", str(tmp_path))
    tmp_path.chmod(0o777)
    result = invoke("info")
    assert result.exit_code == 2
    assert f"cupygemm info: {tmp_path} has mode 0777" in result.stderr
