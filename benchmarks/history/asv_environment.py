"""asv's environment of a commit: its wheel, unpacked, before the dependencies of this Python.

asv's virtualenv would download the dependencies, a gigabyte with the compilers, and install them
once more. Loaded by asv.conf.json.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from asv import environment, util

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.history.install import install  # the checkout is not on asv's path


class UnpackedWheel(environment.Environment):
    """The commits of a matrix without requirements."""

    tool_name = "unpacked-wheel"

    def __init__(self, conf: Any, python: str, requirements: Any, variables: Any) -> None:
        self._variables: dict[str, str] = {}
        self._requirements = requirements  # asv reads them before it sets them
        super().__init__(conf, python, requirements, variables)

    @classmethod
    def matches(cls, python: str) -> bool:
        return python == f"{sys.version_info.major}.{sys.version_info.minor}"

    def check_presence(self) -> bool:
        return Path(self._path).is_dir()

    def _setup(self) -> None:
        Path(self._path).mkdir(parents=True, exist_ok=True)

    def install_project(self, conf: Any, repo: Any, commit_hash: str) -> None:
        del conf
        self.checkout_project(repo, commit_hash)
        self._variables = install(Path(self._build_root), Path(self._path) / "installed")

    def find_executable(self, executable: str) -> str:
        return sys.executable if executable == "python" else util.which(executable)

    def run(self, args: list[str], **options: Any) -> Any:
        variables = {**os.environ, **options.pop("env", {}), **self._variables}
        return util.check_output([sys.executable, *args], env=variables, **options)

    def run_executable(self, executable: str, args: list[str], **options: Any) -> Any:
        if executable == "python":
            return self.run(args, **options)
        return super().run_executable(executable, args, **options)
