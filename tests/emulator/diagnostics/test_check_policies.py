"""Which severity each check has: defaults, groups, nesting, the environment, the documentation."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cupygemm import emulator
from cupygemm.emulator.diagnostics import checking, table
from cupygemm.emulator.diagnostics.checking import Policy, policy
from cupygemm.emulator.diagnostics.table import CHECKS, GROUPS
from cupygemm.emulator.units.memory.fault_codes import CHECK_OF, FaultCode

ROOT = Path(__file__).resolve().parents[3]


def test_a_policy_starts_from_the_defaults() -> None:
    on = policy(True)
    assert on["alignment"] == "off"
    assert on["wait_states_m0_buffer"] == "warn"
    assert on["bounds"] == "error"
    off = policy(False)
    changed = {name for name in table.UNCHECKED if CHECKS[name].default != "off"}
    assert {name for name in CHECKS if off[name] != on[name]} == changed
    assert not off.records
    assert off.changed({"waits": "warn"}).records


def test_groups_stand_for_their_members() -> None:
    changed = Policy().changed(
        {"wait_states_vskip": "error", "wait_states": "off", "races": "warn"}
    )
    assert changed["wait_states_vskip"] == "error"
    assert {changed[name] for name in GROUPS["wait_states"]} == {"error", "off"}
    assert changed["lds_races"] == changed["global_races"] == "warn"


def test_checks_nest() -> None:
    with emulator.checks(False), emulator.checks(bounds="warn"):
        assert policy()["waits"] == "off"
        assert policy()["bounds"] == "warn"
        with emulator.checks(True, alignment=True):
            assert policy()["waits"] == policy()["bounds"] == policy()["alignment"] == "error"
    assert policy() == Policy()


@pytest.mark.parametrize(
    ("value", "changed"),
    [
        ("", {}),
        ("1", {}),
        ("wait_states=warn", dict.fromkeys(GROUPS["wait_states"], "warn")),
        (" bounds=off , alignment=error", {"bounds": "off", "alignment": "error"}),
    ],
)
def test_the_variable(monkeypatch: Any, value: str, changed: dict[str, str]) -> None:
    monkeypatch.setenv(checking.VARIABLE, value)
    assert policy() == Policy() | changed
    with emulator.checks(True):
        assert policy() == Policy()


def test_the_variable_switches_checks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(checking.VARIABLE, "0")
    assert policy() == policy(False)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("off", "CUPYGEMM_EMULATE_CHECKS='off': 'off' must be 0, 1 or name=severity"),
        ("waits=of", "waits='of': the severity must be one of error, warn, off"),
        ("wait=off", "no check 'wait'; did you mean waits?"),
        ("speed=off", "no check 'speed'; it has bounds, required_alignment"),
    ],
)
def test_mistakes_in_the_variable_are_named(monkeypatch: Any, value: str, message: str) -> None:
    monkeypatch.setenv(checking.VARIABLE, value)
    with pytest.raises(ValueError, match=re.escape(message)):
        policy()


# A kernel with the symbol of one of CuPy's that has a known fault, and with that fault.
DISTANCE = """
__global__ void computeDistance2D(
    const double* points, int n, const long long* a, const long long* b, int* out) {
    out[threadIdx.x] = threadIdx.x ? n + 1 : (int)points[1] + 1;
}
"""


def test_known_faults_of_cupy_are_warnings(cp: ModuleType) -> None:
    module = cp.RawModule(code=DISTANCE, name_expressions=["computeDistance2D"])
    kernel, out = module.get_function("computeDistance2D"), cp.zeros(2, "i4")
    index = cp.zeros(1, "i8")

    def run() -> None:
        kernel((1,), (2,), (cp.empty(2), cp.int32(3), index, index, out))

    with pytest.warns(emulator.KernelWarning, match="known fault, which changes no result: see"):
        run()
    assert out[1] == 4
    with pytest.raises(RuntimeError, match="uninitialised memory"), emulator.checks(all="error"):
        run()
    with pytest.raises(RuntimeError, match="uninitialised memory"):
        cp.ElementwiseKernel("raw T x", "T y", "y = x[i] + 1", "other")(cp.empty(2), cp.zeros(2))


@pytest.mark.parametrize("severity", ["warn", "off"])
def test_undefined_results_are_stored_where_that_is_no_error(cp: ModuleType, severity: str) -> None:
    doubled = cp.ElementwiseKernel("raw T x", "T y", "y = x[i] + x[i]", "doubled")
    x, y = cp.empty(100, "u4"), cp.zeros(100, "u4")
    caught: Any = pytest.warns(emulator.KernelWarning, match="stored to global memory")
    with caught if severity == "warn" else nullcontext(), emulator.checks(uninitialised=severity):
        doubled(x, y)
    assert (y == 0x4B4B4B4A).all()  # a sum of bytes 0xA5, which nothing reports again


def test_a_known_fault_excuses_no_other_check() -> None:
    symbol = "_Z17computeDistance2DPKdiPKxS2_Pi"
    lowered = policy(True).of_kernel(symbol)
    assert {name for name in CHECKS if lowered[name] != policy(True)[name]} == {"uninitialised"}
    off = policy(False)
    assert off.of_kernel(symbol) is off
    assert policy(True).of_kernel(symbol + "i") == policy(True)


def test_the_documentation_lists_the_checks() -> None:
    text = (ROOT / "docs" / "reference" / "checks.rst").read_text()
    rows = re.findall(
        r"^   \* - ``(\w+)``\n     - (.*)\n     - ((?:.|\n {7})*)\n     - ((?:.|\n {7})*)"
        r"\n     - ((?:.|\n {7})*)\n",
        text,
        re.MULTILINE,
    )
    flat = {name: [" ".join(cell.split()) for cell in cells] for name, *cells in rows}
    for name, check in CHECKS.items():
        assert flat.pop(name) == [check.default, check.finds, check.otherwise, check.source]
    assert not flat
    faults = (ROOT / "docs" / "reference" / "faults.rst").read_text()
    for name in [*CHECKS, *GROUPS]:
        assert f"``{name}``" in text
        assert f"``{name}``" in faults or name.startswith("wait_states_") or name in GROUPS


def test_each_fault_of_c_belongs_to_a_check() -> None:
    without = {code.name for code in FaultCode if code not in CHECK_OF}
    typed = {"TYPED_FORMAT", "TYPED_SELECTS", "TYPED_SWIZZLED"}  # always errors
    assert without == {"OK", "NEEDS_FINER_SHADOW", *typed}
    assert set(CHECK_OF.values()) <= set(CHECKS)
