"""Fresh virtual environments into which this checkout is installed, from a copy and offline.

The packages that cupygemm needs are those of the environment that runs the tests.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (
    "cupygemm",
    "cupygemm_startup",
    "kernels",
    "setup.py",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)


@dataclass(frozen=True)
class Environment:
    """A virtual environment with this checkout installed in it.

    Attributes
    ----------
    venv : pathlib.Path
    folder : pathlib.Path
        The working directory of its programs.
    """

    venv: Path
    folder: Path

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def site(self) -> Path:
        (found,) = (self.venv / "lib").glob("python*/site-packages")
        return found

    @classmethod
    def make(cls, folder: Path, options: Sequence[str] = ()) -> Environment:
        """Create an environment, and install a copy of this checkout with these pip options."""
        source = folder / "source"
        for name in SOURCES:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            source.mkdir(parents=True, exist_ok=True)
            copy(ROOT / name, source / name)
        venv.create(folder / "venv", with_pip=False)
        made = cls(folder / "venv", folder)
        (made.site / "packages_of_the_tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
        # Without --no-compile, pip compiles every module; few of them are imported.
        how = ("--no-deps", "--no-index", "--no-build-isolation", "--no-compile")
        made.pip("install", *how, *options, str(source))
        return made

    @classmethod
    def shared(cls, factory: pytest.TempPathFactory) -> Environment:
        """Return the environment with the wheel, which all tests of a session share.

        The first worker that needs it creates it, and the others wait. Tests must not change it.
        """
        session = factory.getbasetemp()
        if "PYTEST_XDIST_WORKER" in os.environ:
            session = session.parent
        folder = session / "shared_environment"
        with (session / "shared_environment.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "made").exists():
                shutil.rmtree(folder, ignore_errors=True)  # left by a worker that failed
                cls.make(folder)
                (folder / "made").touch()
        return cls(folder / "venv", folder)

    def copy(self, folder: Path) -> Environment:
        """Return a copy that a test may change, without the compiled modules."""
        compiled = shutil.ignore_patterns("__pycache__")
        shutil.copytree(self.venv, folder / "venv", symlinks=True, ignore=compiled)
        return Environment(folder / "venv", folder)

    def pip(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self.python), *arguments]
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        assert process.returncode == 0, process.stdout + process.stderr

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the environment's Python without the variables of the emulated device."""
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("CUPYGEMM_EMUL")
        }
        return subprocess.run(
            [self.python, *arguments],
            cwd=self.folder,
            env=environment | env,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def output(self, code: str, **env: str) -> str:
        process = self.run("-c", code, **env)
        assert process.returncode == 0, process.stderr
        return process.stdout.strip()
