"""The timing model against published figures: what must rank as published, and how far it is off.

The bounds on errors are a little above what they were when the figures were entered; a change of
the model that makes it worse fails here.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from cupygemm.emulator import calibration, code_object, run
from cupygemm.emulator.calibration import ladder, lds, order, products, statistics, turns
from cupygemm.emulator.calibration.figures import Figure
from cupygemm.emulator.calibration.kernels import build
from cupygemm.emulator.device import Memory
from cupygemm.emulator.profiling.timing.power import POWER
from cupygemm.emulator.targets import TARGETS

KERNELS = [("ladder.hip", f"ladder_{name}", 128, 256) for name in (*ladder.PUBLISHED, "shallow")]
KERNELS += [("turns.hip", name, 256, 64 * waves) for waves, name in turns.KERNELS.items()]


@pytest.mark.parametrize(("source", "name", "tile", "threads"), KERNELS)
def test_the_kernels_multiply(source: str, name: str, tile: int, threads: int) -> None:
    """What is timed is a product: two tiles of C side by side, three tiles deep."""
    rng, memory = np.random.default_rng(0), Memory()
    m, n, k = tile, 2 * tile, 192
    a, b = (rng.integers(-3, 4, shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
    addresses = [memory.malloc(2 * size) for size in (m * k, n * k, m * n)]
    for address, operand in zip(addresses, (a, b), strict=False):
        memory.write(address, operand.tobytes())
    kernel = code_object.load(build(source, "gfx942").read_bytes(), memory).kernels[name]
    arguments = [address.to_bytes(8, "little") for address in addresses]
    arguments += [extent.to_bytes(4, "little") for extent in (m, n, k)]
    run.launch(kernel, (2, 1, 1), (threads, 1, 1), 0, arguments, memory, TARGETS["gfx942"])
    c = np.frombuffer(memory.read(addresses[2], 2 * m * n), ml_dtypes.bfloat16).reshape(m, n)
    expected = (a.astype(np.float32) @ b.astype(np.float32).T).astype(ml_dtypes.bfloat16)
    # turns.hip rounds ties away from zero: the result may be the next number.
    error = np.abs(c.astype(np.float32) - expected.astype(np.float32))
    assert (error <= np.abs(expected.astype(np.float32)) / 128).all()


@pytest.fixture(scope="module")
def steps() -> dict[str, Figure]:
    return {figure.name: figure for figure in ladder.figures()}


def test_the_steps_of_the_ladder_are_in_their_order(steps: dict[str, Figure]) -> None:
    speeds = [steps[name].modelled for name in ("tile", "padded", "swizzled", "buffered", "wide")]
    assert speeds == sorted(speeds)
    assert len(set(speeds)) == len(speeds)
    # Padding and swizzling are the large steps, the others small ones.
    gains = [b / a for a, b in pairwise(speeds)]
    assert min(gains[:2]) > max(gains[2:])


def test_the_ladder_is_near_its_figures(steps: dict[str, Figure]) -> None:
    for name, published in ladder.PUBLISHED.items():
        assert steps[name].published == published
        assert abs(steps[name].error) < 0.15
        assert 1300 < steps[name].clock_mhz < 2100


def test_deep_tiles_beat_two_stages_of_shallow_ones(steps: dict[str, Figure]) -> None:
    shallow = steps["shallow over wide"]
    assert shallow.modelled < 95
    assert abs(shallow.error) < 0.1


@pytest.fixture(scope="module")
def turned() -> list[Figure]:
    return list(turns.figures())


def test_eight_waves_in_turns_are_above_four_that_interleave(turned: list[Figure]) -> None:
    eight, four = (
        {figure.name: figure.modelled for figure in turned if f"{waves} waves" in figure.group}
        for waves in (8, 4)
    )
    assert len(eight) == len(four) == 4
    assert all(eight[name] > four[name] for name in eight)


def test_turns_keep_the_matrix_units_busy(turned: list[Figure]) -> None:
    busy = {figure.name: figure.modelled for figure in turned if figure.unit == "%"}
    assert 96 < busy["8 waves"] < 99.5  # as published
    assert 85 < busy["4 waves"] < 98


def test_products_are_near_their_figures(turned: list[Figure]) -> None:
    speeds = [figure for figure in turned if figure.unit == "TFLOP/s"]
    assert len(speeds) == len(products.rows()) > 30
    assert max(abs(figure.error) for figure in speeds) < 0.19
    assert statistics.mean_error(speeds) < 0.08
    assert statistics.error_within_sources(speeds) < 0.04
    alike, total = statistics.ordered(speeds)
    assert alike / total > 0.86


def test_the_documented_table_is_the_generated_one(
    turned: list[Figure], steps: dict[str, Figure]
) -> None:
    path = Path(__file__).parents[2] / "docs/explanation/published_figures.csv"
    documented = path.read_text().splitlines()
    generated = calibration.to_csv([*steps.values(), *order.figures(), *turned]).splitlines()
    assert set(generated) <= set(documented)
    assert len(documented) == len(generated) + sum(
        len(strides) for widths in lds.PUBLISHED.values() for strides in widths.values()
    )


def test_the_clock_of_a_board_is_the_published_one() -> None:
    board = POWER["MI300X", "bf16", "sine"]
    assert board.clock_mhz(board.published_share) == pytest.approx(1207)
    assert board.published_share == pytest.approx(0.942, abs=0.001)  # AMD: up to 94 %
    assert board.clock_mhz(0) == 2100


def figure(group: str, name: str, source: str, published: float, modelled: float) -> Figure:
    return Figure(
        group=group,
        name=name,
        unit="TFLOP/s",
        published=published,
        source=source,
        modelled=modelled,
    )


def test_statistics() -> None:
    figures = [
        figure("a, MI300X, bf16", "p", "one", 100, 110),
        figure("a, MI300X, bf16", "q", "one", 200, 220),
        figure("b, MI300X, bf16", "p", "two", 120, 105),
        figure("b, MI325X, bf16", "p", "two", 1000, 1),
        figure("a, MI300X, bf16", "p", "two", 104, 104),
    ]
    assert statistics.mean_error(figures[:2]) == pytest.approx(0.1)
    assert statistics.error_within_sources(figures[:2]) == pytest.approx(0)
    # Of the pairs on MI300X, 100 and 104 are too near; 120 is above both and modelled between.
    assert statistics.ordered(figures) == (4, 5)
    assert statistics.repeated(figures) == pytest.approx([0.04])
    assert any("5 speeds" in line for line in statistics.summary(figures))


@pytest.mark.parametrize(("width", "error"), [(4, 0.15), (8, 0.08), (16, 0.08)])
def test_reads_of_lds_without_conflicts(width: int, error: float) -> None:
    assert lds.read_cycles("gfx942", width, width) == pytest.approx(
        lds.PUBLISHED["gfx942"][width][width], rel=error
    )


def test_reads_of_lds_with_conflicts() -> None:
    for stride in (32, 128):
        published = lds.PUBLISHED["gfx942"][4][stride]
        assert lds.read_cycles("gfx942", 4, stride) == pytest.approx(published, rel=0.22)
    wide = lds.read_cycles("gfx950", 8, 8)
    assert wide == pytest.approx(lds.PUBLISHED["gfx950"][8][8], rel=0.08)
    assert wide < lds.read_cycles("gfx942", 8, 8)


def test_table_and_json(steps: dict[str, Figure]) -> None:
    text = calibration.render(steps.values())
    (row,) = (line for line in text.splitlines() if line.startswith("padded"))
    assert row.split()[1] == "245"
    assert row.split()[3].endswith("%")
    assert "gau-nernst/learn-cuda" in text
    assert "fitted on the ladder" in text
    entry = json.loads(json.dumps(calibration.figures_to_dict(steps.values())))["calibration"][0]
    assert (entry["name"], entry["published"], entry["unit"]) == ("tile", 122.21, "TFLOP/s")
    assert entry["error"] == pytest.approx(entry["modelled"] / 122.21 - 1)
