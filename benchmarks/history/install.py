"""Build a commit's package as a wheel, and unpack it into a folder.

The dependencies are those of the running Python, so a commit takes a few seconds and no network.
The folder comes first on the path. The editable install of this checkout would provide modules that
a commit lacks, so `SITECUSTOMIZE`, which Python runs when it starts, removes it from the path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITECUSTOMIZE = """\
import sys

sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
"""
_BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


class InstallError(Exception):
    """The package of a commit cannot be built."""


def export(commit: str, folder: Path) -> None:
    """Write the files of a commit below a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with subprocess.Popen(["git", "-C", ROOT, "archive", commit], stdout=subprocess.PIPE) as git:
        subprocess.run(["tar", "x", "-C", folder], stdin=git.stdout, check=True)


def install(source: Path, folder: Path) -> dict[str, str]:
    """Build the wheel of `source`, unpack it below `folder`, and return environment variables.

    Raises
    ------
    InstallError
        The wheel cannot be built; the message ends with the last lines of the build.
    """
    shutil.rmtree(folder, ignore_errors=True)
    site = folder / "site"
    site.mkdir(parents=True)
    command = [sys.executable, "-c", _BUILD, str(folder)]
    built = subprocess.run(
        command, cwd=source, capture_output=True, text=True, check=False, timeout=300
    )
    wheels = list(folder.glob("*.whl"))
    if built.returncode or not wheels:
        raise InstallError("\n".join(built.stderr.splitlines()[-5:]))
    with zipfile.ZipFile(wheels[0]) as archive:
        archive.extractall(site)
    (site / "sitecustomize.py").write_text(SITECUSTOMIZE)
    found = {
        "PYTHONPATH": str(site),
        "ASV_PYTHONPATH": str(site),  # without it, asv drops the other variable
        "CUPYGEMM_WHEEL": str(wheels[0]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return {**os.environ, **found}
