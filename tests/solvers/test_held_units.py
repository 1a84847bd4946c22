"""Compute units that are held while a panel is factored concurrently with a product."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from cupygemm import linalg
from cupygemm._solvers.common import blocks
from cupygemm._solvers.lu import held_units, panel


def launch(threads, registers, shared_bytes):
    function = SimpleNamespace(resources=lambda: (registers, shared_bytes))
    return SimpleNamespace(threads=threads, function=function)


def test_where_a_panel_has_room():
    assert held_units.has_room([launch(256, 212, 200 << 10)])
    assert held_units.has_room([launch(128, 255, 202 << 10)])
    assert not held_units.has_room([launch(256, 249, 200 << 10)])  # all registers of an SM
    assert not held_units.has_room([launch(256, 212, 200 << 10), launch(128, 255, 203 << 10)])


@pytest.mark.slow
def test_factors_have_the_same_bits_with_units_held(cp, device, monkeypatch):
    if device.kind != "cuda":
        pytest.skip("holds units of Hopper's GPUs only")
    a = cp.random.default_rng(3).standard_normal((4000, 4000))
    held, found = [], []
    hold = panel.held_units
    monkeypatch.setattr(panel, "held_units", lambda *args: held.append(1) or hold(*args))
    for has_room in (held_units.has_room, lambda _: False):
        monkeypatch.setattr(panel, "has_room", has_room)
        # Every product is treated as a long one.
        monkeypatch.setattr(
            blocks, "LIMITS", replace(blocks.Limits(), early=0, ahead=512, tail=512)
        )
        found.append(linalg.lu_factor(a))
        if len(found) == 1:
            assert held
            held.clear()
    assert not held
    assert all((x == y).all() for x, y in zip(*found, strict=True))
