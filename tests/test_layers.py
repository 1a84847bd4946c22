"""Imports run one way: no cycles among the package's files, and no imports of higher layers.

The layers are written down in pyproject.toml, for import-linter. Imports inside functions and those
for type checkers count like all others.
"""

from __future__ import annotations

import graphlib
from pathlib import Path

import grimp
import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]
BELOW_THE_EMULATOR = ("cupygemm._build", "cupygemm._version")


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """Return the modules that each module of the package imports."""
    graph = grimp.build_graph("cupygemm", cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def test_no_import_leads_to_a_higher_layer(capsys: pytest.CaptureFixture[str]) -> None:
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert status == 0, capsys.readouterr().out


def test_no_files_import_each_other(imports: dict[str, set[str]]) -> None:
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as err:
        pytest.fail("an import cycle: " + " -> ".join(reversed(err.args[1])))


def test_the_emulator_imports_no_room_of_the_library_but_build(
    imports: dict[str, set[str]],
) -> None:
    emulator = [module for module in imports if module.startswith("cupygemm.emulator")]
    assert len(emulator) > 50
    for module in emulator:
        outside = {name for name in imports[module] if not name.startswith("cupygemm.emulator")}
        assert all(name.startswith(BELOW_THE_EMULATOR) for name in outside), (module, outside)
