"""The page "Found in CuPy": each program on it shows what the page says."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cupygemm.emulator.diagnostics.known_faults import KNOWN_FAULTS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "found_in_cupy.rst"
BLOCK = re.compile(
    r"\.\. code-block:: python\n\n((?:   .*\n|\n)+)\n?\.\. code-block:: text\n\n((?:   .*\n|\n)+)"
)
CASES = [tuple(map(textwrap.dedent, match.groups())) for match in BLOCK.finditer(PAGE.read_text())]
# CuPy's modules of many kernels take long to compile.
MARKED = [
    pytest.param(*case, marks=pytest.mark.sweep if "cupyx" in case[0] else ()) for case in CASES
]


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("program", "shown"), MARKED, ids=range(len(CASES)))
def test_program(run_python: Callable[..., Any], program: str, shown: str) -> None:
    done = run_python(program, target="gfx942", check=False)
    for line in filter(None, shown.splitlines()):
        assert line in done.stdout + done.stderr


def test_each_known_fault_has_a_section() -> None:
    for fault in KNOWN_FAULTS:
        assert f"\n{fault.section}\n{'-' * len(fault.section)}\n" in PAGE.read_text()


def test_every_program_is_run() -> None:
    assert len(CASES) == PAGE.read_text().count("code-block:: python") > 0
