"""Fresh virtual environments into which this checkout is installed, from a copy and offline.

The packages that cupygemm needs are those of the environment that runs the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

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


class Environment:
    """A virtual environment with this checkout installed in it."""

    def __init__(self, folder: Path, options: list[str]) -> None:
        source = folder / "source"
        for name in SOURCES:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            source.mkdir(exist_ok=True)
            copy(ROOT / name, source / name)
        venv.create(folder / "venv", with_pip=False)
        self.python = folder / "venv" / "bin" / "python"
        (self.site,) = (folder / "venv" / "lib").glob("python*/site-packages")
        (self.site / "packages_of_the_tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
        self.folder = folder
        # Without --no-compile, pip compiles every module; few of them are imported.
        how = ("--no-deps", "--no-index", "--no-build-isolation", "--no-compile")
        self.pip("install", *how, *options, str(source))

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
