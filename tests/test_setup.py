"""The set-up script of `make setup`: what it checks, says and skips. Nothing is installed."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "tools" / "setup_environment.py"


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_environment", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_parses_under_the_pythons_that_it_turns_down() -> None:
    ast.parse(SCRIPT.read_text(), feature_version=(3, 6))


def test_a_python_too_old_is_told(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(script.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=r"(?s)Python 3\.9\.2 is too old.*make setup PYTHON="):
        script.use_recent_python()


def test_a_missing_venv_module_is_told(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(script.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        SystemExit, match=r"(?s)venv or ensurepip.*sudo apt install python3\.\d+-venv"
    ):
        script.create(tmp_path / "env")


def test_a_full_disk_is_told(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(script.shutil, "disk_usage", lambda path: SimpleNamespace(free=50 << 20))
    with pytest.raises(SystemExit, match=r"(?s)50 MB are free.*make setup VENV="):
        script.check_space(tmp_path, ["emulator"])


@pytest.mark.parametrize(("system", "machine"), [("Linux", "aarch64"), ("Darwin", "x86_64")])
def test_a_machine_without_wheels_is_told(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, system: str, machine: str
) -> None:
    monkeypatch.setattr(script.platform, "system", lambda: system)
    monkeypatch.setattr(script.platform, "machine", lambda: machine)
    with pytest.raises(SystemExit, match=f"{system} on {machine}"):
        script.check_machine()


@pytest.mark.parametrize(
    ("log", "mend"),
    [
        ("OSError: [Errno 28] No space left on device", "make room"),
        ("Temporary failure in name resolution", "PIP_INDEX_URL"),
        ("ERROR: No matching distribution found for cupy", "glibc"),
        ("PermissionError: [Errno 13] Permission denied", "VENV="),
        ("something else", "read the lines above"),
    ],
)
def test_a_failure_of_pip_names_what_mends_it(script: ModuleType, log: str, mend: str) -> None:
    assert mend in script.hint(log)


@pytest.mark.parametrize("change", [None, "pyproject", "prefix", "extras"])
def test_a_finished_set_up_is_not_repeated(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: str | None
) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy(sys.executable, tmp_path / "bin" / "python")
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    stamp = {"pyproject": digest, "prefix": str(tmp_path), "extras": ["emulator", "test"]}
    if change is not None:
        stamp[change] = ["test"] if change == "extras" else "another"
    (tmp_path / script.STAMP).write_text(json.dumps(stamp))
    installed = []
    monkeypatch.setattr(script, "install", lambda directory, extras: installed.append(extras))
    monkeypatch.setattr(script, "has_pip", lambda python: True)
    monkeypatch.setattr(script.sys, "argv", ["setup", str(tmp_path), "emulator,test"])
    script.main()
    assert installed == ([] if change is None else [["emulator", "test"]])
