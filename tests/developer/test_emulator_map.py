"""The developer's map of the emulator names each of its modules, and only files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "developer" / "emulator_map.rst").read_text()
EMULATOR = ROOT / "cupygemm" / "emulator"


def test_each_module_is_on_the_map_once() -> None:
    terms = [line for line in PAGE.splitlines() if re.fullmatch(r"``\w+``(, ``\w+``)*", line)]
    named = [name for line in terms for name in re.findall(r"\w+", line)]
    modules = [path.stem for path in EMULATOR.glob("*.py") if path.stem != "__init__"]
    folders = [path.name for path in EMULATOR.iterdir() if path.is_dir()]
    assert sorted(named) == sorted({*modules, *folders} - {"__pycache__"})


def test_the_files_on_the_map_exist() -> None:
    paths = re.findall(r"``([\w/*]+(?:\.\w+|/))``", PAGE)
    paths = [path for path in paths if not path.startswith(("cupygemm/", "pyproject"))]
    assert len(paths) > 20
    assert [path for path in paths if not any(EMULATOR.glob(path.rstrip("/")))] == []
