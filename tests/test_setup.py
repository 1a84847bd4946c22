"""The set-up script of the Makefile: what it checks, prints and skips. Nothing is installed."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
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


# Syntax that Python 2.7 lacks.
YOUNGER = (
    ast.JoinedStr,
    ast.AnnAssign,
    ast.NamedExpr,
    ast.Nonlocal,
    ast.AsyncFunctionDef,
    ast.Await,
    ast.YieldFrom,
    ast.MatMult,
    ast.Match,
)


def younger_syntax(tree: ast.Module) -> list[str]:
    """Return the syntax of a file that Python 2.7 does not parse."""
    found = [node for node in ast.walk(tree) if isinstance(node, YOUNGER)]
    for node in ast.walk(tree):
        match node:
            case ast.List() | ast.Tuple() | ast.Set():
                found += [item for item in node.elts if isinstance(item, ast.Starred)]
            case ast.Dict():
                found += [node] * (None in node.keys)
            case ast.Call():
                starred = [isinstance(item, ast.Starred) for item in node.args]
                found += [node] * any(starred[:-1])
            case ast.Raise():
                found += [node] * (node.cause is not None)
            case ast.arguments():
                found += node.kwonlyargs + node.posonlyargs
            case ast.arg():
                found += [node] * (node.annotation is not None)
            case ast.FunctionDef():
                found += [node] * (node.returns is not None)
    return [f"line {node.lineno}: {type(node).__name__}" for node in found]


def test_python_2_parses_the_script() -> None:
    text = SCRIPT.read_text()
    assert text.isascii()
    assert younger_syntax(ast.parse(text)) == []
    assert "from __future__ import print_function" in text


@pytest.mark.parametrize(
    "code",
    ["f'{x}'", "x: int = 1", "def f(*, a): pass", "[*x]", "f(*x, 1)", "def f() -> int: pass"],
)
def test_syntax_younger_than_python_2_is_recognised(code: str) -> None:
    assert younger_syntax(ast.parse(code))


@pytest.mark.parametrize("name", ["python2.7", "python3.6", "python3.10"])
def test_an_old_interpreter_prints_what_to_do(name: str, tmp_path: Path) -> None:
    old = shutil.which(name)
    if old is None or subprocess.run([old, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"no {name} on PATH")
    where = [old, "-c", "import sys; print(sys.executable)"]
    old = subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()
    process = subprocess.run(
        [old, str(SCRIPT), str(tmp_path / "env"), "emulator"],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    assert f"Python {name.removeprefix('python')}." in process.stderr
    assert "too old" in process.stderr
    assert "Traceback" not in process.stderr
    assert "uv python install" in process.stderr


@pytest.mark.parametrize(
    ("version", "word"), [((2, 7, 18), "old"), ((3, 10, 13), "old"), ((3, 15, 0), "new")]
)
def test_an_unsupported_python_is_told_what_to_do(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], word: str
) -> None:
    monkeypatch.setattr(script.sys, "version_info", version)
    monkeypatch.setattr(script, "which", lambda name: None)
    text = ".".join(map(str, version))
    with pytest.raises(SystemExit, match=rf"(?s)Python {text} is too {word}.*sudo apt install"):
        script.use_supported_python()


def test_an_unsupported_python_continues_with_a_supported_one(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script.sys, "version_info", (3, 10, 13))
    monkeypatch.setattr(script.sys, "argv", ["setup", "env", "emulator"])
    monkeypatch.setattr(script, "which", lambda name: f"/opt/{name}")
    monkeypatch.setattr(script, "succeeds", lambda command: "python3.12" in command[0])

    def execv(path: str, arguments: list[str]) -> None:
        raise SystemExit([path, *arguments])

    monkeypatch.setattr(script.os, "execv", execv)
    with pytest.raises(SystemExit) as error:
        script.use_supported_python()
    other = "/opt/python3.12"
    assert error.value.code == [other, other, "setup", "env", "emulator"]


def test_a_missing_venv_module_is_told(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(script, "succeeds", lambda command: False)
    with pytest.raises(
        SystemExit, match=r"(?s)venv or ensurepip.*sudo apt install python3\.\d+-venv"
    ):
        script.create(tmp_path / "env")


def test_a_full_disk_is_told(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk = SimpleNamespace(f_bavail=50 << 8, f_frsize=4096)
    monkeypatch.setattr(script.os, "statvfs", lambda path: disk)
    with pytest.raises(SystemExit, match=r"(?s)has 50 MB free.*make setup VENV="):
        script.check_space(tmp_path, ["emulator"])


@pytest.mark.parametrize(
    ("system", "machine", "message"),
    [
        ("Linux", "aarch64", "Linux on aarch64.*docker run"),
        ("Darwin", "arm64", "macOS on arm64.*docker run"),
        ("Windows", "AMD64", "Windows on AMD64.*wsl --install"),
    ],
)
def test_a_machine_without_wheels_is_told_what_to_do(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, system: str, machine: str, message: str
) -> None:
    monkeypatch.setattr(script.platform, "system", lambda: system)
    monkeypatch.setattr(script.platform, "machine", lambda: machine)
    with pytest.raises(SystemExit, match=f"(?s){message}"):
        script.check_machine()


@pytest.mark.parametrize(
    ("log", "remedy"),
    [
        ("OSError: [Errno 28] No space left on device", "make room"),
        ("Temporary failure in name resolution", "PIP_INDEX_URL"),
        ("ERROR: No matching distribution found for cupy", "glibc"),
        ("PermissionError: [Errno 13] Permission denied", "VENV="),
        ("something else", "read the lines above"),
    ],
)
def test_a_failure_of_pip_names_its_remedy(script: ModuleType, log: str, remedy: str) -> None:
    assert remedy in script.hint(log)


@pytest.mark.parametrize("change", [None, "build", "prefix", "extras"])
def test_a_finished_set_up_is_not_repeated(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: str | None
) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy(sys.executable, tmp_path / "bin" / "python")
    sources = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "setup.py")]
    build = hashlib.sha256(b"".join(sources)).hexdigest()
    stamp = {"build": build, "prefix": str(tmp_path), "extras": ["emulator", "test"]}
    if change is not None:
        stamp[change] = ["test"] if change == "extras" else "another"
    (tmp_path / script.STAMP).write_text(json.dumps(stamp))
    installed = []
    monkeypatch.setattr(script, "install", lambda directory, extras: installed.append(extras))
    monkeypatch.setattr(script, "has_pip", lambda python: True)
    monkeypatch.setattr(script.sys, "argv", ["setup", str(tmp_path), "emulator,test"])
    script.main()
    assert installed == ([] if change is None else [["emulator", "test"]])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (":env:.default-timeout='180'\n", {}),
        ("", {}),
        (
            "global.index-url='https://mirror.example/simple'\n:env:.cert='/etc/ssl/ca.crt'\n",
            {
                "UV_DEFAULT_INDEX": "https://mirror.example/simple",
                "SSL_CERT_FILE": "/etc/ssl/ca.crt",
            },
        ),
        ("global.find-links='\\n/a\\n/b'\n", {"UV_FIND_LINKS": "/a,/b"}),
        ("global.index-url='https://a'\nuser.index-url='https://b'\n", None),
        (
            ":env:.index-url='https://a'\nuser.index-url='https://b'\n",
            {"UV_DEFAULT_INDEX": "https://a"},
        ),
        ("global.extra-index-url='file:///a file:///b'\n", {"UV_INDEX": "file:///a file:///b"}),
        (
            "global.constraint='/etc/a.txt /etc/b.txt'\n",
            {
                "UV_CONSTRAINT": "/etc/a.txt /etc/b.txt",
                "UV_BUILD_CONSTRAINT": "/etc/a.txt /etc/b.txt",
            },
        ),
        (":env:.proxy='http://proxy:3128'\n", None),
    ],
)
def test_uv_is_told_the_settings_of_pip_that_it_has(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    settings: str,
    told: dict[str, str] | None,
) -> None:
    monkeypatch.setattr(script, "run", lambda command: (0, settings))
    expected = None if told is None else {"UV_INDEX_STRATEGY": "unsafe-best-match", **told}
    assert script.uv_settings("python") == expected


@pytest.mark.parametrize("installs", [True, False])
def test_uv_is_installed_where_it_is_missing(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, installs: bool
) -> None:
    def pip_install(python: str, requirement: list[str]) -> tuple[int, str]:
        assert requirement == ["uv"]
        if installs:
            (tmp_path / "uv").touch()
        return int(not installs), ""

    monkeypatch.setattr(script, "pip_install", pip_install)
    monkeypatch.setattr(script, "which", lambda name: None)
    assert script.find_uv(str(tmp_path / "python")) == (str(tmp_path / "uv") if installs else None)
    monkeypatch.setattr(script, "which", lambda name: str(tmp_path / "python"))
    (tmp_path / "python").touch()
    assert script.find_uv("another/python") == str(tmp_path / "python")


def test_pip_installs_where_uv_fails(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands = []

    def run(command: list[str], log: str = "", variables: object = ()) -> tuple[int, str]:
        commands.append(command)
        return int(command[0] == "/opt/uv"), ""

    monkeypatch.setattr(script, "uv_settings", lambda python: {})
    monkeypatch.setattr(script, "find_uv", lambda python: "/opt/uv")
    monkeypatch.setattr(script, "run", run)
    script.install(str(tmp_path), ["emulator"])
    python = str(tmp_path / "bin" / "python")
    assert [command[:3] for command in commands] == [
        ["/opt/uv", "pip", "install"],
        [python, "-m", "pip"],
    ]
    assert all(command[-1] == f"{ROOT}[emulator]" for command in commands)


def test_the_demo_installs_no_packages_of_the_tests() -> None:
    makefile = (ROOT / "Makefile").read_text()
    demo = re.search(r"^demo:.*\n\t@\$\(SETUP\) (\S+)\n", makefile, re.MULTILINE)
    assert demo is not None
    assert demo[1] == "emulator"
