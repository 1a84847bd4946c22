"""The speeds on MI355X that the page of the timing model states are those that the model gives."""

import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/explanation/timing_model.rst"


@pytest.mark.sweep
def test_the_page_has_the_speeds_and_ranks_them_as_published():
    command = [sys.executable, "-m", "benchmarks.cdna4_speeds"]
    printed = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=PAGE.parents[2]
    ).stdout.splitlines()[1:]
    rows = [line.split() for line in printed]
    assert len(rows) == 15
    page = [line.replace(" %", "%").split() for line in PAGE.read_text().splitlines()]
    assert [row for row in rows if row not in page] == []
    for one, other in combinations(rows, 2):
        (published, modelled), others = ([float(x) for x in row[3:5]] for row in (one, other))
        if one[:2] == other[:2] and abs(published / others[0] - 1) >= 0.05:
            assert (published > others[0]) == (modelled > others[1])
