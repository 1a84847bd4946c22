"""`benchmarks.several_gpus` on two emulated devices: its cases, checks, report, and chart."""

import json

import pytest

from benchmarks.several_gpus import chart, report
from benchmarks.several_gpus.cases import GATHER, SCATTER, Case, parse
from tests.conftest import ROOT


def record(function, extent, seconds, ranks=4):
    case = Case(function, extent, extent, extent)
    return {**case._asdict(), "ranks": ranks, "seconds": seconds, "errors": {}, "failed": {}}


TIMES = {"ideal, cupygemm": 1e-3, "ideal, cuBLAS": 2e-3, "cupygemm, auto": 2e-3}


def test_blocks_of_all_ranks_make_the_operands():
    for function, axis in ((GATHER, (0, 1)), (SCATTER, (1, 0))):
        case = parse(function, "8x12x16", 4)
        for operand, extents in enumerate(((8, 16), (16, 12))):
            parts = [case.blocks(rank, 4)[operand][axis[operand]] for rank in range(4)]
            covered = [index for part in parts for index in range(*part.indices(99))]
            assert covered == list(range(extents[axis[operand]]))
    assert parse(GATHER, "8x12x16", 4).result(4) == (8, 3)
    assert parse(SCATTER, "8x12x16", 4).result(4) == (2, 12)


@pytest.mark.parametrize("shape", ["8x8", "6x8x8", "8x8x0"])
def test_a_shape_that_ranks_cannot_share_is_named(shape):
    with pytest.raises(ValueError, match=f"the shape {shape} must be m x n x k, multiples of 4"):
        parse(GATHER, shape, 4)


def test_efficiency_is_that_beside_the_fastest_product_on_one_gpu():
    times = {**TIMES, "cupygemm, auto, float32 parts": 1.1e-3, "NCCL and cuBLAS": 4e-3}
    found = record(SCATTER, 1024, times)
    assert report.efficiencies(found)["cupygemm, auto"] == pytest.approx(0.5)
    assert report.fastest_of_ours(found) == "cupygemm, auto"
    found["bits_of_one_gpu"] = None
    found["host_seconds"] = {"cupygemm, auto": 5e-5}
    assert "ideal 1.000 ms: cupygemm, auto 2.000 (50%)" in report.line(found)
    assert report.line(found).endswith("; host: cupygemm, auto 0.050")
    table = list(report.tables([found]))
    assert table[-1].startswith("1024x1024x1024 | 1.000 | 2.000")
    assert chart.curve([found], "NCCL and cuBLAS") == [(1024, pytest.approx(0.25))]


@pytest.mark.slow
def test_the_chart_has_a_panel_for_each_function(tmp_path):
    records = [record(each, n, TIMES) for each in (GATHER, SCATTER) for n in (1024, 2048)]
    document = {"environment": {"device": "H200", "date": "today"}, "records": records}
    figures, output = tmp_path / "figures.json", tmp_path / "chart.png"
    figures.write_text(json.dumps(document))
    chart.main([str(figures), str(output)])
    assert output.read_bytes()[:4] == b"\x89PNG"


PROGRAM = """
from benchmarks.several_gpus.__main__ import main
if __name__ == "__main__":
    main(["--ranks", "2", "--shapes", "64x32x48", "--rounds", "1", "--without-torch"])
"""


@pytest.mark.sweep
def test_two_emulated_devices_are_checked_and_timed(run_python, device, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    code = f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')"
    printed = str(run_python(code, target=f"{device.target}:2", env={"PYTHONPATH": str(ROOT)}))
    assert "all_gather_matmul 64x32x48 on 2: ideal" in printed
    assert "bits True" in printed
    assert "matmul_reduce_scatter, 2 GPUs, ms" in printed
