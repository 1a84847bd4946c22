"""The order of a QR factorisation's updates."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cupygemm._solvers.qr.updates import steps


@pytest.mark.parametrize(
    ("widths", "n", "least"),
    [
        ([256] * 32, 8192, 1024),
        ([256] * 32, 9000, 1024),
        ([256] * 15 + [100], 4000, 1024),
        ([256] * 7, 1792, 256),
        ([16] * 5, 200, 8),
        ([64], 70, 1),
        ([64, 64], 128, 1),
        ([256] * 32, 8192, 8192),
    ],
)
def test_each_panel_updates_each_column_once_and_in_order(widths, n, least):
    edges = np.cumsum([0, *widths]).tolist()
    panels = [range(i, j) for i, j in itertools.pairwise(edges)]
    factored, applied, pairs = panels[0].stop, np.zeros(n, int), 0
    for step in steps(panels, n, least):
        assert step.panel.stop == factored
        for update in (step.first, *step.updates):
            columns = slice(update.columns.start, update.columns.stop)
            assert (applied[columns] == update.panels.start).all()
            assert update.panels.stop <= factored
            applied[columns] = update.panels.stop
            pairs += len(update.panels) > widths[0] and len(update.columns) > 0
        if step.following is not None:
            assert (applied[step.following.start : step.following.stop] == factored).all()
            factored = step.following.stop
    assert (applied[factored:] == factored).all()
    assert bool(pairs) == (len(panels) >= 4 and n - panels[3].stop >= least)


def test_most_work_is_done_for_two_panels_at_once():
    """In equal parts during two panels, so that neither waits for the other."""
    panels = [range(i, i + 256) for i in range(0, 8192, 256)]
    beside = [sum(u.operations(8192) for u in step.updates) for step in steps(panels, 8192, 1024)]
    single = sum(
        update.operations(8192)
        for step in steps(panels, 8192, 1024)
        for update in step.updates
        if len(update.panels) == 256
    )
    assert single < 0.25 * sum(beside)
    for one, other in zip(beside[1:19:2], beside[2:20:2], strict=True):
        assert 0.7 < one / other < 1.4
