"""The steps of a developer page, applied to a copy of the package.

A page shows its changes as ``code-block:: diff`` and their use as ``code-block:: python``. A hunk
begins with ``@@``, without line numbers: its context must occur exactly once in the file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^\.\. code-block:: (\w+)\n\n((?:   .*\n| *\n)+)", re.MULTILINE)


def page_text(page: str) -> str:
    """Return the text of a page of ``docs/developer``."""
    return (ROOT / "docs" / "developer" / page).read_text()


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a page of ``docs/developer`` in a language."""
    matches = _BLOCK.findall(page_text(page))
    found = [textwrap.dedent(body) for name, body in matches if name == language]
    assert found, f"{page} has no block of {language}"
    return found


class Copy:
    """A copy of the package and of its kernels in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("cupygemm", "kernels"):
            # With what is compiled: it is used where the source's time and size are the same.
            shutil.copytree(ROOT / name, folder / name)

    def apply(self, diff: str, *, undo: bool = False) -> None:
        """Change the files that a diff names, or undo the change."""
        added, removed = "-+" if undo else "+-"
        for part in re.split(r"^--- a/", diff, flags=re.MULTILINE)[1:]:
            head, *hunks = re.split(r"^@@.*\n", part, flags=re.MULTILINE)
            path = self.folder / head.split("\n", 1)[0]
            text = path.read_text()
            for hunk in hunks:
                lines = hunk.rstrip().split("\n")
                before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith(added))
                after = "".join(f"{line[1:]}\n" for line in lines if not line.startswith(removed))
                if not before:
                    text += after
                    continue
                count = text.count(before)
                assert count == 1, f"found {count} times in {path}:\n{before}"
                text = text.replace(before, after)
            path.write_text(text)

    def run(self, code: str, target: str) -> subprocess.CompletedProcess[str]:
        """Run Python code that imports the copy, on an emulated target."""
        environment = os.environ | {
            "PYTHONPATH": str(self.folder),
            "CUPYGEMM_EMULATE": target,
            # Python takes bytecode for current where the source's size and time in whole seconds
            # are the same, as after two changes of one size within a second.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        check = f"import cupygemm; assert cupygemm.__file__.startswith({str(self.folder)!r})\n"
        script = self.folder / "use.py"
        script.write_text(check + code)
        return subprocess.run(
            [sys.executable, "-W", "error", str(script)],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
