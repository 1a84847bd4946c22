"""The history of performance: what is kept, the site, measured runs, and regressions that fail."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asv.results import iter_results_for_machine

from benchmarks.history import commits, install, kept, measured, regressions, run, site
from benchmarks.history.kept import Machine

ROOT = Path(__file__).resolve().parents[2]
ASV_PAGE = Path(sys.modules["asv"].__file__).parent / "www" / "index.html"
CASE = ("gfx942", "bf16", "register_double_buffer")
NAME = "computed.Computed.track_registers"


@pytest.fixture(scope="module")
def suite():
    """The modules of the suite, which asv imports without the name of their folder."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    for name in ("commit", "digest", "kernels"):
        importlib.import_module(f"suite.{name}")
    yield sys.modules["suite"]
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture(scope="module")
def described():
    return site.benchmarks()


# -- What is kept ----------------------------------------------------------------------------------


def test_the_kept_results_stay_within_their_budget():
    files = [path for path in kept.RESULTS.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    assert size <= kept.BUDGET, f"{size} bytes in {len(files)} files: thin out the oldest commits"


def test_each_kept_file_belongs_to_a_commit_and_each_commit_has_its_file():
    for machine in kept.machines():
        named = {line.file for line in machine.lines()} - {kept.ABSENT}
        stored = {path.name.removesuffix(".json.xz") for path in machine.folder.glob("*.xz")}
        assert named == stored, machine.name


@pytest.mark.slow
def test_asv_reads_all_kept_results(tmp_path, described):
    known = {line.commit for machine in kept.machines() for line in machine.lines()}
    count = kept.expand(tmp_path, known)
    found = [
        results
        for machine in kept.machines()
        for results in iter_results_for_machine(str(tmp_path), machine.name)
    ]
    assert len(found) == count > 0
    for results in found:
        keys = set(results.get_result_keys(described))
        assert keys == set(results.get_all_result_keys()), results.commit_hash


def test_equal_results_share_a_file(tmp_path):
    machine = Machine("any", tmp_path)
    machine.describe(arch="gfx942")
    results = {NAME: {"params": [["'a'"]], "result": [1], "version": "1"}}
    other = {NAME: {"params": [["'a'"]], "result": [2], "version": "1"}}
    added = (("b" * 40, 2, results), ("a" * 40, 1, results), ("c" * 40, 3, other))
    names = [machine.add(*commit) for commit in added]
    assert names == ["b" * 10, "b" * 10, "c" * 10]
    assert machine.add("d" * 40, 4, {}) == kept.ABSENT
    assert [line.commit[0] for line in machine.lines()] == ["a", "b", "c", "d"]
    assert machine.results("b" * 10) == results
    assert kept.expand(tmp_path / "asv", {"a" * 40, "d" * 40}, tmp_path) == 1


def test_a_run_computes_what_is_missing_and_nothing_twice(tmp_path, monkeypatch):
    packages = {"a" * 40: "1", "b" * 40: "2", "c" * 40: "2", "d" * 40: None}
    history = [
        commits.Commit(hash=name, date=date, message="ENH: It\n")
        for date, name in enumerate(packages)
    ][::-1]
    measured_commits = []

    def measure(commit: commits.Commit) -> tuple[dict[str, Any], str]:
        measured_commits.append(commit.hash[0])
        return {NAME: {"params": [], "result": [len(measured_commits)], "version": "1"}}, ""

    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(run, "package_of", packages.get)
    for last, expected in ((1, ""), (2, "c"), (4, "ca"), (4, "ca")):
        monkeypatch.setattr(run, "log", lambda *revisions, last=last: history[:last])
        run.run([], folder=tmp_path)
        assert "".join(measured_commits) == expected
    files = {line.commit[0]: line.file[0] for line in Machine(run.MACHINE, tmp_path).lines()}
    assert files == {"a": "a", "b": "c", "c": "c", "d": kept.ABSENT}


# -- The suite -------------------------------------------------------------------------------------


def test_names_of_the_documentation_are_those_of_benchmarks(described):
    for word in ("Computed", "Emulated", "Modelled", "Measured", "Host", "Wheel"):
        assert any(re.search(word, name) for name in described), word


def test_each_benchmark_has_a_unit_and_a_pretty_name(described):
    for name, each in described.items():
        assert each["pretty_name"], name
        assert each["unit"] not in ("unit", ""), name


def test_names_are_found_where_they_are_today(suite):
    places = suite.commit._PLACES
    for name in set(places) - {"CONFIGS"}:
        assert suite.commit.find(name) is not None
    with pytest.raises(suite.commit.MissingError, match="no CONFIGS: No module named"):
        suite.commit.find("CONFIGS")


def test_a_digest_ignores_comments_and_docstrings(suite, tmp_path):
    digests = []
    for text in ('"""A."""\nx = 1  # one\n', '"""B."""\n\n\nx = 1\n', "x = 2\n"):
        (tmp_path / "module.py").write_text(text)
        digests.append(suite.digest.digest(tmp_path))
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.slow
def test_an_installed_commit_lends_no_modules_from_the_checkout(tmp_path):
    install.export("HEAD", tmp_path / "source")
    environment = install.install(tmp_path / "source", tmp_path / "environment")
    assert Path(environment["CUPYGEMM_WHEEL"]).stat().st_size > 100_000
    (tmp_path / "environment/site/cupygemm/_commands/demo.py").unlink()
    code = "import cupygemm; print(cupygemm.__file__)\nimport cupygemm._commands.demo"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith(str(tmp_path))
    assert "No module named 'cupygemm._commands.demo'" in done.stderr


# -- The site --------------------------------------------------------------------------------------


def test_the_site_loads_nothing_from_another_host():
    page = site.localise(ASV_PAGE.read_text())
    tags = re.findall(r"<(?:script|link)[^>]*>", page)
    files = [match[1] for tag in tags if (match := re.search(r'(?:src|href)="([^"]+)"', tag))]
    assert files
    assert not [file for file in files if "//" in file]
    assert "integrity" not in page
    for file in files:
        if file.startswith("scripts/"):
            assert (site.SCRIPTS.parent / file).exists(), file
    for sheet in site.SCRIPTS.glob("*.css"):
        assert "url(http" not in sheet.read_text()


def test_a_script_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"asv's page loads new.js, which .*scripts lacks"):
        site.localise('<script src="https://example.org/new.js" integrity="x"></script>')


def test_local_scripts_are_those_that_asv_names():
    """asv's page has hashes. npm has flot readable, and a later stupidtable."""
    checked = 0
    pattern = r'/([^/"]+\.(?:js|css))" integrity="(sha\d+)-([^"]+)"'
    for name, kind, expected in re.findall(pattern, ASV_PAGE.read_text()):
        path = site.SCRIPTS / site._RENAMED.get(name, name)
        if ("flot" in name and "orderBars" not in name) or "stupid" in name:
            continue
        digest = hashlib.new(kind, path.read_bytes()).digest()
        assert base64.b64encode(digest).decode() == expected, name
        checked += 1
    assert checked >= 5


# -- Measured runs ---------------------------------------------------------------------------------


def _document(tmp_path: Path, **environment: str) -> Path:
    record = {
        "dtype": "bf16",
        "case": "512x512x512",
        "flops": 2.0 * 512**3,
        "seconds": {"cupygemm": {"device": 3e-6, "call": 8e-6}, "torch": {"device": 4e-6}},
    }
    path = tmp_path / "figures.json"
    path.write_text(json.dumps({"environment": environment, "records": [record]}))
    return path


def test_a_measured_run_is_kept_beside_others_of_its_commit(tmp_path):
    head = commits.git("rev-parse", "HEAD").strip()
    facts = {"device": "NVIDIA H200", "driver": "580", "date": "2026-11-22", "commit": head}
    folder = tmp_path / "results"
    measured.add([_document(tmp_path, **facts)], folder=folder)
    other = {"benchmark": "measured.MeasuredEpilogue.track_device_time", "value": 2e-4}
    second = tmp_path / "second.json"
    figures = [other | {"params": ["4096x4096x4096", "bias"]}]
    second.write_text(json.dumps({"environment": facts, "figures": figures}))
    (line,) = measured.add([second], folder=folder)
    assert line == f"NVIDIA H200: 1 figures of 2026-11-22 at {head[:10]}"
    machine = Machine("NVIDIA H200", folder)
    results = machine.results(head[:10])
    times = regressions.figures(results["measured.Measured.track_device_time"])
    case = "bf16 512x512x512"
    assert times == {(case, "cupygemm"): 3e-6, (case, "torch"): 4e-6}
    assert len(regressions.figures(results["measured.MeasuredEpilogue.track_device_time"])) == 1
    assert [each["driver"] for each in machine.document(head[:10])["runs"]] == ["580", "580"]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "does not say device, date, commit"),
        ({"device": "a", "date": "b"}, "does not say commit; --commit names a commit"),
        ({"device": "a", "date": "b", "commit": "c-dirty"}, "measured with changes to c-dirty"),
    ],
)
def test_a_run_that_does_not_say_what_it_measured_is_refused(tmp_path, environment, message):
    with pytest.raises(ValueError, match=message):
        measured.add([_document(tmp_path, **environment)], folder=tmp_path / "results")


def test_another_programs_output_is_refused(tmp_path):
    facts = {"device": "NVIDIA H200", "date": "2026-11-23", "commit": "HEAD"}
    path = tmp_path / "models.json"
    path.write_text(json.dumps({"environment": facts, "records": [{"us": {}}]}))
    with pytest.raises(
        ValueError, match=r"the output of benchmarks.compare and benchmarks.solvers"
    ):
        measured.add([path], folder=tmp_path / "results")


def test_documented_runs_of_the_h200_are_kept():
    machine = Machine("NVIDIA H200")
    runs = [each for line in machine.lines() for each in machine.document(line.file)["runs"]]
    assert len(runs) >= 10
    for each in runs:
        assert {"device", "driver", "clocks", "date", "commit"} <= set(each)


# -- Regressions -----------------------------------------------------------------------------------


def _results(*values: float | None) -> dict[str, Any]:
    return {"params": [["'gfx942'"], ["'bf16'", "'f16'"]], "result": list(values), "version": "1"}


def _worse(before: list[Any], after: list[Any], name: str = NAME) -> list[regressions.Regression]:
    found = {name: _results(*after)} if after else {}
    return regressions.regressions({name: _results(*before)}, found, {name: "registers"})


def test_two_percent_are_tolerated():
    assert _worse([100, 50], [102, 40]) == []
    assert [str(each) for each in _worse([100, 0], [103, 1])] == [
        f"{NAME}(gfx942, f16): 0 -> 1 registers",
        f"{NAME}(gfx942, bf16): 100 -> 103 registers (+3.0%)",
    ]


def test_a_figure_that_is_gone_is_a_regression():
    for after in ([100, None], []):
        worse = _worse([None, 50], after)
        assert [str(each) for each in worse] == [
            f"{NAME}(gfx942, f16): 50 registers, and no figure any more"
        ]


def test_the_host_and_the_wheel_fail_nothing():
    for name in ("host_calls.HostWarmCall.time_call", "wheel.Wheel.track_size"):
        assert _worse([100, 50], [200, 100], name) == []


def test_a_regression_fails_and_says_how_to_accept_it():
    lines, status = regressions.report(_worse([100, 50], [104, 50]), [], "c0c6181777 (ENH: It)")
    text = "\n".join(lines)
    assert status == 1
    assert "1 figures are more than 2 % worse than at c0c6181777 (ENH: It)" in text
    assert f"{NAME}(gfx942, bf16): 100 -> 104 registers (+4.0%)" in text
    assert f"Accept-regression: {NAME}(gfx942, bf16): <why>" in text
    assert 'kept = "c0c6181777"' in text


def test_a_message_or_the_file_accepts_a_regression(tmp_path):
    worse = _worse([100, 50], [104, 60])
    message = f"ENH: It\n\nAccept-regression: {NAME}(gfx942, bf16): checks one more bound\n"
    file = tmp_path / "accepted.toml"
    file.write_text('[[accepted]]\nkept = "c0c61"\nfigures = "*f16)"\nreason = "of need"\n')
    known = regressions.accepted([("abc", message)], "c0c6181777", file)
    lines, status = regressions.report(worse, known[:1], "c0c6181777")
    assert status == 1
    assert "accepted (abc: checks one more bound)" in lines[0]
    lines, status = regressions.report(worse, known, "c0c6181777")
    assert status == 0
    assert any("accepted.toml: of need" in line for line in lines)
    assert regressions.accepted([], "0123", file) == []  # of another commit's results


@pytest.mark.slow
def test_a_seeded_regression_fails_the_comparison(suite, monkeypatch, capsys):
    """The whole way: a kernel with too few registers is compiled, run, read and compared."""
    kernels, name = suite.kernels, "computed.Computed.track_mfma_issue"

    def results() -> dict[str, dict[str, Any]]:
        loop = kernels.figures(*CASE).loop
        params = [[repr(part)] for part in CASE]
        return {name: {"params": params, "result": [loop], "version": "1"}}

    before, configs = results(), kernels.configs

    def starved(*arguments: str) -> tuple[Any, ...]:
        return tuple(replace(config, waves_per_simd=4) for config in configs(*arguments))

    monkeypatch.setattr(kernels, "configs", starved)
    after = results()
    line = kept.Line(commit="c0c6181777", date=0, file="kept")
    monkeypatch.setattr(regressions, "last_kept", lambda machine: line)
    monkeypatch.setattr(regressions, "log", lambda *revisions: [])
    monkeypatch.setattr(regressions, "_warm", lambda: None)
    monkeypatch.setattr(Machine, "results", lambda machine, file: before)
    monkeypatch.setattr(regressions, "evaluate", lambda: after)
    assert regressions.check() == 1
    text = capsys.readouterr().out
    values = rf"{before[name]['result'][0]:.10g} -> {after[name]['result'][0]:.10g} issue cycles"
    assert f"{name}({', '.join(CASE)}): {values}" in text
    assert "than at c0c6181777" in text
    assert "Accept-regression: " in text
    monkeypatch.setattr(regressions, "evaluate", lambda: before)
    assert regressions.check() == 0


def test_the_comparison_uses_an_ancestor():
    machine = Machine(run.MACHINE)
    line = run.last_kept(machine)
    if line is None:
        pytest.skip("a shallow clone")
    assert line.commit in run.known_commits()
