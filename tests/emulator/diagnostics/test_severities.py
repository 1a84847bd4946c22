"""Each check finds its seeded fault, and its finding is an error, a warning or dropped.

This holds for every way to set severities, and while profiling.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from cupygemm import emulator
from cupygemm._commands import cli
from cupygemm._commands.severities import severities
from cupygemm.emulator.diagnostics import checking, findings
from cupygemm.emulator.diagnostics.table import CHECKS, SEVERITIES
from cupygemm.emulator.errors import EmulatorError
from tests.emulator import seeded_faults

PROGRAM = seeded_faults.__file__
# One check of each kind; the others run in the sweep.
SOME = ["stream_races", "wait_states_m0_buffer"]
SAMPLES = [SOME, pytest.param([c for c in CHECKS if c not in SOME], marks=pytest.mark.sweep)]


def test_each_check_has_a_seeded_fault() -> None:
    sources = {"uninitialised_source", "wave_masks", "stream_races", "partial_barriers"}
    sources |= {"argument_types", "argument_views", "warp_idioms", "shared_arrays"}
    sources |= {"pending_copies", "restricted_arguments", "sync_masks", "constant_variables"}
    sources |= {"write_backs", "invalidations", "polling"}
    assert {*seeded_faults.SEEDS, *sources} == set(CHECKS)


def found(check: str, severity: str, run: Callable[[], int]) -> None:
    """Run the fault of a check, and compare the findings with those expected for the severity."""
    with warnings.catch_warnings(), findings.observing() as seen:
        warnings.simplefilter("ignore")
        try:
            stored = run()
        except (EmulatorError, RuntimeError):
            stored = 0
    checks = [{each.check for each in kind} for kind in (seen.errors, seen.warnings)]
    expected = {"error": [{check}, set()], "warn": [set(), {check}], "off": [set(), set()]}
    assert (check, severity, checks) == (check, severity, expected[severity])
    assert stored == (0 if severity == "error" else 7)


def command(*words: str) -> int:
    """Run a command on the program of seeded faults; 7 if it succeeds."""
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code in (0, 1), result.output
    return 0 if result.exit_code else 7


@pytest.fixture
def emulated(cp: ModuleType, device: Any) -> None:
    """Skip where kernels do not run on the emulated gfx942, whose code objects the seeds are."""
    if device.target != "gfx942":
        pytest.skip("the seeded faults are code objects for gfx942")
    cp.zeros(1)


@pytest.mark.slow
@pytest.mark.parametrize("profile", [False, pytest.param(True, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_severities_inside_a_with_statement(emulated: None, severity: str, profile: bool) -> None:
    for check in CHECKS:
        how = emulator.profile() if profile else contextlib.nullcontext()
        with emulator.checks(**{check: severity}), how:
            found(check, severity, lambda check=check: seeded_faults.run(check))


def test_a_severity_without_the_name_of_a_check_is_refused() -> None:
    words = r"name the checks that have this severity, such as checks\(lds_races='warn'\)"
    with pytest.raises(TypeError, match=words), emulator.checks("warn"):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize("profile", [False, True])
@pytest.mark.parametrize("checks", SAMPLES)
def test_severities_in_the_environment(
    emulated: None, monkeypatch: pytest.MonkeyPatch, checks: list[str], profile: bool
) -> None:
    for check, severity in itertools.product(checks, SEVERITIES):
        monkeypatch.setenv(checking.VARIABLE, f"{check}={severity}")
        with emulator.profile() if profile else contextlib.nullcontext():
            found(check, severity, lambda check=check: seeded_faults.run(check))


@pytest.mark.parametrize("name", ["check", "profile"])
@pytest.mark.parametrize("checks", SAMPLES)
def test_severities_on_the_command_line(
    emulated: None, monkeypatch: pytest.MonkeyPatch, checks: list[str], name: str
) -> None:
    monkeypatch.delenv(checking.VARIABLE, raising=False)
    for check, severity in itertools.product(checks, SEVERITIES):
        words = ["profile", PROGRAM, "--args", check] if name == "profile" else ["check"]
        words += [f"--{severity}", check]
        words += [] if name == "profile" else [PROGRAM, check]
        found(check, severity, lambda words=words: command(*words))


def test_severities_are_added_to_checks_that_the_environment_switches_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(checking.VARIABLE, "0")
    with severities(None, ["waits"], None):
        assert checking.policy() == checking.policy(False).changed({"waits": "warn"})
    assert checking.policy() == checking.policy(False)
