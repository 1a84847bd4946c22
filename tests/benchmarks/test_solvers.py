"""`benchmarks.solvers` without a GPU: its cases, and what it writes."""

import json
from types import SimpleNamespace

from benchmarks import compare, solvers
from benchmarks.suite.measured import MeasuredSolver


def test_the_history_knows_each_figure_that_is_written(tmp_path, monkeypatch, capsys):
    times = dict.fromkeys(solvers.LIBRARIES, 2e-3)
    monkeypatch.setattr(compare, "environment", lambda: {"device": "NVIDIA H200"})
    monkeypatch.setattr(solvers, "contenders", lambda case: SimpleNamespace(case=case))
    monkeypatch.setattr(solvers, "measure", lambda calls, rounds: times)
    path = tmp_path / "solvers.json"
    solvers.main(["--output", str(path)])
    document = json.loads(path.read_text())
    assert document["environment"] == {"device": "NVIDIA H200"}
    computations, libraries = MeasuredSolver.params
    written = {tuple(figure["params"]) for figure in document["figures"]}
    assert written == {(case, library) for case in computations for library in libraries}
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "solve float64 4096: cupygemm 2.000, CuPy 2.000, PyTorch 2.000 ms"


def test_names_of_cases_are_distinct_and_can_be_chosen(tmp_path, monkeypatch, capsys):
    assert all(case.name == name for name, case in solvers.CASES.items())
    monkeypatch.setattr(compare, "environment", dict)
    monkeypatch.setattr(solvers, "measure", lambda calls, rounds: {"CuPy": 1.0})
    monkeypatch.setattr(solvers, "contenders", lambda case: None)
    solvers.main(["--cases", "inv float32 1024 of 64"])
    assert capsys.readouterr().out == "inv float32 1024 of 64: CuPy 1000.000 ms\n"
