"""The wheel: every file of the package is in it, and it works without a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def tracked_files(*folders: str) -> list[str]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--", *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listing.stdout.split("\0") if name]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that holds the wheel's contents, built from a copy of the tracked files."""
    source = tmp_path_factory.mktemp("source")
    sources = ("cupygemm", "cupygemm_startup", "kernels", "setup.py", "pyproject.toml")
    for name in tracked_files(*sources, "README.md", "LICENSE"):
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"from setuptools.build_meta import build_wheel; build_wheel({str(target)!r})",
        ],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (wheel,) = target.glob("*.whl")
    unpacked = target / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    return unpacked


def run_outside(site: Path, code: str) -> str:
    """Run code that can import from the wheel's contents but not from the checkout."""
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=site.parent,
        env=os.environ | {"PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


@pytest.mark.slow
def test_wheel_holds_every_file_of_the_package(site: Path) -> None:
    python = tracked_files("cupygemm", "cupygemm_startup")
    expected = {name for name in python if (ROOT / name).exists()}
    expected.remove("cupygemm_startup/cupygemm_startup.pth")  # it lies beside the packages:
    expected.add("cupygemm_startup.pth")
    expected |= {f"cupygemm/{n}" for n in tracked_files("kernels") if (ROOT / n).exists()}
    packed = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}
    documentation = {name for name in expected if name.endswith(".md")}
    assert expected - packed - documentation == set()
    strangers = {name for name in packed - expected if ".dist-info/" not in name}
    assert strangers == set()


def test_wheel_carries_version_licence_and_command(site: Path) -> None:
    from cupygemm._version import __version__

    (info,) = site.glob("*.dist-info")
    assert info.name == f"cupygemm-{__version__}.dist-info"
    assert (info / "licenses" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert "cupygemm = cupygemm._commands.cli:main" in (info / "entry_points.txt").read_text()
    metadata = (info / "METADATA").read_text().splitlines()
    assert "Project-URL: Source, https://github.com/cupygemm/cupygemm" in metadata


def test_package_data_is_found_outside_the_checkout(site: Path) -> None:
    code = (
        "import importlib.resources as r, cupygemm\n"
        "print(cupygemm.__file__)\n"
        "print(r.files('cupygemm.kernels'))\n"
        "print(sorted(p.name for p in r.files('cupygemm.kernels').iterdir()))\n"
    )
    module, kernels, names = run_outside(site, code).splitlines()
    assert module == str(site / "cupygemm" / "__init__.py")
    assert kernels == str(site / "cupygemm" / "kernels")
    assert "common" in names
    assert "cdna" in names


def test_importing_the_package_imports_no_cupy(site: Path) -> None:
    code = "import cupygemm, sys; print('cupy' in sys.modules)"
    assert run_outside(site, code) == "False"


def test_solvers_are_imported_when_they_are_used(site: Path) -> None:
    code = (
        "import cupygemm, sys\n"
        "solvers = lambda: any(name.startswith('cupygemm._solvers') for name in sys.modules)\n"
        "print(solvers(), 'linalg' in dir(cupygemm), cupygemm.linalg.solve.__name__, solvers())"
    )
    assert run_outside(site, code) == "False True solve True"


def test_public_modules_are_imported_when_they_are_used(site: Path) -> None:
    code = (
        "import cupygemm, sys\n"
        "for name in ('distributed', 'emulator', 'testing'):\n"
        "    before = f'cupygemm.{name}' in sys.modules\n"
        "    print(before, name in dir(cupygemm), getattr(cupygemm, name).__name__)"
    )
    lines = [f"False True cupygemm.{name}" for name in ("distributed", "emulator", "testing")]
    assert run_outside(site, code).splitlines() == lines


def test_a_block_replaces_the_solvers_of_cupy_too(site: Path) -> None:
    code = (
        "import cupygemm, cupygemm._products.accelerate as accelerate\n"
        "print('solve' in [function.name for function in accelerate.replaced_functions()])"
    )
    assert run_outside(site, code) == "True"


def test_another_checkouts_environment_leaves_a_clone_its_own_kernels(tmp_path: Path) -> None:
    """PYTHONPATH puts the clone's package first; its kernels must be the clone's, too."""
    clone = tmp_path / "clone"
    for folder in ("cupygemm", "kernels"):
        ignored = shutil.ignore_patterns("__pycache__", "emulator")
        shutil.copytree(ROOT / folder, clone / folder, ignore=ignored)
    header = clone / "kernels" / "common" / "platform.hpp"
    header.write_text("// the clone's own\n" + header.read_text())
    code = (
        "import cupygemm; from cupygemm._build.flatten import device_source\n"
        "print(cupygemm.__file__)\n"
        "print(device_source('common/platform.hpp').splitlines()[0])\n"
    )
    environment = os.environ | {"PYTHONPATH": str(clone)}
    environment.pop("CUPYGEMM_EMULATE", None)
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.splitlines() == [
        str(clone / "cupygemm" / "__init__.py"),
        "// the clone's own",
    ]
