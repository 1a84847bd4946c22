"""Enumerators that Python states again have the values of the native code."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from cupygemm.emulator import native
from cupygemm.emulator.definedness import lanes
from cupygemm.emulator.execution import native_loop
from cupygemm.emulator.units.memory.fault_codes import FaultCode


def enumerators(header: str, name: str) -> list[str]:
    """Return the names of an ``enum`` of a header in order; they count from 0."""
    text = Path(native.__file__).with_name(header).read_text()
    found = re.search(rf"enum {name} {{(.*?)}};", text, re.DOTALL)
    assert found is not None
    return re.findall(r"\w+", re.sub(r"/\*.*?\*/", "", found[1], flags=re.DOTALL))


def test_fault_codes() -> None:
    assert [code.name for code in FaultCode] == enumerators("machine.h", "fault_code")


@pytest.mark.parametrize(
    ("module", "name", "only_native"), [(lanes, "looked_at", 0), (native_loop, "event", 1)]
)
def test_names_of_a_module(module: ModuleType, name: str, only_native: int) -> None:
    names = enumerators("loop.h", name)
    stated = names[: len(names) - only_native]
    assert [getattr(module, each) for each in stated] == list(range(len(stated)))
