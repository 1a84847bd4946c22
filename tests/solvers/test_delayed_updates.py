"""The order of an LU factorisation's updates."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from cupygemm import linalg
from cupygemm._solvers.common import blocks
from cupygemm._solvers.common.matrices import copied
from cupygemm._solvers.common.panel_steps import Update, joined
from cupygemm._solvers.lu import lu
from cupygemm._solvers.lu.delayed_updates import divided, steps


def panels_of(widths):
    edges = np.cumsum([0, *widths]).tolist()
    return [range(i, j) for i, j in itertools.pairwise(edges)]


@pytest.mark.parametrize(
    ("widths", "n", "most"),
    [
        ([512] * 24 + [256] * 16, 16385, 4),
        ([512] * 24 + [256] * 16, 16384, 8),
        ([512] * 8, 4100, 1),
        ([512] * 9 + [256] * 3 + [100], 5600, 3),
        ([64], 70, 2),
    ],
)
def test_each_panel_updates_each_column_once_and_in_order(widths, n, most):
    panels = panels_of(widths)
    factored, applied, solved = panels[0].stop, np.zeros(n, int), np.zeros(n, int)
    oldest = 0
    for step in steps(panels, n, most):
        assert oldest <= step.read.start
        assert step.read.stop == step.panel.stop
        oldest = step.read.start
        assert step.panel.stop == factored
        for solution in (step.first, step.solved):
            columns = slice(solution.columns.start, solution.columns.stop)
            assert (solved[columns] == solution.panels.start).all()
            solved[columns] = solution.panels.stop
        before, beside = step.solutions()
        assert (before.panels, beside.panels) == (step.first.panels, step.solved.panels)
        assert list(before.columns) + list(beside.columns) == list(step.first.columns) + list(
            step.solved.columns
        )
        if before != step.first:  # all rows that are multiplied are solved for before
            assert all(update.columns.stop <= before.columns.stop for update in step.updates)
            assert beside.columns
        for update in (step.first, *step.updates):
            columns = slice(update.columns.start, update.columns.stop)
            assert (applied[columns] == update.panels.start).all()
            assert (solved[columns] >= update.panels.stop).all()
            assert update.panels.stop <= factored
            assert oldest <= update.panels.start
            applied[columns] = update.panels.stop
        if step.following is not None:
            assert (applied[step.following.start : step.following.stop] == factored).all()
            factored = step.following.stop
    assert factored == sum(widths)
    assert (applied[factored:] == factored).all()
    assert (solved[factored:] == factored).all()
    several = [step for step in steps(panels, n, most) if len(step.first.panels) > widths[0]]
    assert bool(several) == (most > 1 and len(panels) > most)


def test_adjacent_columns_are_one_update():
    a, b, c = range(3), range(3, 9), range(9, 12)
    first, second = Update(a, b), Update(a, c)
    assert joined(first, second) == (Update(a, range(3, 12)),)
    assert joined(first, Update(b, c)) == (first, Update(b, c))
    assert joined(Update(a, range(3, 3)), second) == (second,)


def test_a_long_update_is_divided():
    a, b = Update(range(4), range(300, 900)), Update(range(4), range(900, 1500))
    each = 2 * 4 * 100

    def columns(count, least=1):
        return tuple(
            tuple(len(x.columns) for x in part)
            for part in divided((a, b), 100, count * each, least)
        )

    assert columns(1200) == ((600, 600), (0, 0))
    assert columns(1000) == ((600, 384), (0, 216))
    assert columns(1000, least=217) == ((600, 600), (0, 0))  # too few columns would wait
    assert columns(127) == ((0, 0), (600, 600))
    beside, after = divided((a, b), 100, 1000 * each, 1)
    assert beside[1] == Update(b.panels, range(900, 1284))
    assert after[1] == Update(b.panels, range(1284, 1500))


@pytest.mark.slow
@pytest.mark.parametrize("group", [2, pytest.param(3, marks=pytest.mark.sweep)])
def test_factors_do_not_depend_on_groups(cp, draw, small_blocks, monkeypatch, group):
    grouped = replace(blocks.LIMITS, outer=8, grouped=1, group_of_reals=group)
    monkeypatch.setattr(blocks, "LIMITS", grouped)
    a, b = draw((33, 33)), draw((33, 2))
    lu, pivots = linalg.lu_factor(cp.asarray(a))
    monkeypatch.setattr(blocks, "LIMITS", replace(blocks.LIMITS, group_of_reals=1))
    expected, expected_pivots = linalg.lu_factor(cp.asarray(a))
    assert (pivots.get() == expected_pivots.get()).all()
    np.testing.assert_allclose(lu.get(), expected.get(), rtol=0, atol=1e-12)
    x = linalg.lu_solve((lu, pivots), cp.asarray(b)).get()
    np.testing.assert_allclose(a @ x, b, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [4, 1000])
@pytest.mark.parametrize(("group", "behind"), [(1, 2), (2, 2), (3, 2), (1, 11), (1, 46)])
def test_rows_of_l_stay_where_no_update_reads_them(
    cp, draw, small_blocks, monkeypatch, group, behind, ahead
):
    limits = replace(blocks.LIMITS, outer=8, grouped=1, group_of_reals=group, ahead=ahead)
    monkeypatch.setattr(blocks, "LIMITS", limits)
    k = 46
    identity = k if behind == k else None
    a = cp.asarray(np.hstack([draw((k, k)), np.eye(k) if identity else draw((k, behind))]))

    def factored(keeps_l):
        found = lu.factor(copied(a, a.dtype), k, identity=identity, keeps_l=keeps_l)
        return found.lu.view[0].get(), found.pivots.get()

    (got, pivots), (expected, expected_pivots) = factored(keeps_l=False), factored(keeps_l=True)
    assert (pivots == expected_pivots).all()
    assert (np.triu(got) == np.triu(expected)).all()
    assert (got[:, k:] == expected[:, k:]).all()
    got_l, expected_l = (np.tril(each[:, :k], -1) for each in (got, expected))
    assert (got_l != expected_l).any()
    assert (np.sort(got_l, axis=0) == np.sort(expected_l, axis=0)).all()
