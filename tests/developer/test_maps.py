"""The pages that say where things are name files that exist, and each module of the emulator."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.developer.steps import ROOT, Copy, blocks, page_text

EMULATOR = ROOT / "cupygemm" / "emulator"


def test_each_module_of_the_emulator_is_on_its_map_once() -> None:
    lines = page_text("emulator_map.rst").splitlines()
    terms = [line for line in lines if re.fullmatch(r"``[\w/]+``(, ``[\w/]+``)*", line)]
    named = [name for line in terms for name in re.findall(r"[\w/]+", line)]
    # The map names either all modules of a folder, or the folder alone.
    apart = {name.partition("/")[0] for name in named if "/" in name}
    folders = {path.name for path in EMULATOR.iterdir() if path.is_dir()} - {"__pycache__"}
    paths = [
        *EMULATOR.glob("*.py"),
        *(path for folder in apart for path in EMULATOR.glob(f"{folder}/*.py")),
    ]
    modules = [
        path.relative_to(EMULATOR).with_suffix("").as_posix()
        for path in paths
        if path.stem != "__init__"
    ]
    assert sorted(named) == sorted([*modules, *(folders - apart)])


@pytest.mark.parametrize(
    ("page", "folders"),
    [
        ("emulator_map.rst", (ROOT, EMULATOR)),
        ("read_a_kernel.rst", (ROOT, ROOT / "kernels", ROOT / "kernels" / "common" / "solvers")),
    ],
)
def test_the_files_on_a_map_exist(page: str, folders: tuple[Path, ...]) -> None:
    paths = re.findall(r"``([\w/*]+(?:\.\w+|/))``", page_text(page))
    assert len(paths) > 20
    for path in paths:
        assert any(any(folder.glob(path.rstrip("/"))) for folder in folders), path


@pytest.mark.sweep  # `make test` performs the steps of another page, "Add an activation"
def test_the_source_of_a_kernel_is_shown(tmp_path: Path) -> None:
    (show,) = blocks("read_a_kernel.rst", "python")
    done = Copy(tmp_path).run(show, "gfx942")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("struct Config {\n    using ElementA = f16;\n")
