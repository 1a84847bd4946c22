"""The steps in which rows are exchanged: all arrive once, and the model prefers what links suit."""

import itertools
from dataclasses import replace

import pytest

from cupygemm._backends.interconnect import NVLINK_H200, XGMI_MI300X, Interconnect
from cupygemm._distributed.steps import RowWork, balanced, bounds_of, choose_steps, shifted, sliced

MAKERS = {"shifted": shifted, "sliced": lambda rank, bounds: sliced(rank, bounds, 3)}
SLOW = Interconnect(
    name="", pair_gbs=1, total_gbs=2, latency_us=10, tflops=1, figures="modelled", source=""
)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("rows", [[5], [4, 4], [3, 0, 7, 1], [1] * 8])
def test_all_rows_arrive_once_and_sends_match_receives(name, rows):
    bounds, make = bounds_of(rows), MAKERS[name]
    steps = [make(rank, bounds) for rank in range(len(rows))]
    for rank, own in enumerate(steps):
        arrived = [row for step in own for _, part in step.receives for row in range(*part)]
        assert sorted([*arrived, *range(*bounds[rank])]) == list(range(sum(rows)))
    for at_once in zip(*steps, strict=True):
        sent = {(r, peer, rows) for r, step in enumerate(at_once) for peer, rows in step.sends}
        got = {(peer, r, rows) for r, step in enumerate(at_once) for peer, rows in step.receives}
        assert sent == got


def test_balanced_parts_differ_by_one():
    assert balanced(10, 4) == [3, 3, 2, 2]
    assert balanced(2, 3) == [1, 1, 0]
    assert bounds_of([3, 0, 2]) == [(0, 3), (3, 3), (3, 5)]


def chosen(size, m, n, k, link, rank=0):
    bounds = bounds_of(balanced(m, size))
    work = RowWork(nbytes=2 * k, flops=2.0 * n * k, itemsize=2)
    return choose_steps(rank, bounds, work, link=link)


def test_ranks_choose_alike():
    for link, size in itertools.product((NVLINK_H200, XGMI_MI300X), (2, 4, 8)):
        names = {chosen(size, 4099, 512, 1024, link, rank).name for rank in range(size)}
        assert len(names) == 1


def test_links_to_different_peers_are_used_at_once():
    """On a switch one peer fills the link; in a mesh, it leaves the links to others idle."""
    assert chosen(4, 16384, 16384, 16384, NVLINK_H200).name == "shifted"
    assert chosen(8, 8192, 1024, 8192, XGMI_MI300X).name.startswith("sliced")


def test_the_model_agrees_with_what_was_measured():
    """The times of NCCL's all-gather from three peers, from which the row of H200 was made."""
    for megabytes, microseconds in ((25.2, 108), (100.7, 389), (402.7, 1263)):
        modelled = NVLINK_H200.step_seconds([int(megabytes * 1e6 / 3)] * 3)
        assert modelled == pytest.approx(microseconds * 1e-6, rel=0.15)


def test_copies_are_priced_by_figures_of_their_own():
    link = replace(SLOW, copy_gbs=4, copy_latency_us=1)
    assert link.copies.step_seconds([4000, 4000]) == pytest.approx(3e-6)
    assert XGMI_MI300X.copies is None


def test_a_row_of_the_table_says_where_its_figures_come_from():
    assert XGMI_MI300X.figures == "modelled"
    assert NVLINK_H200.figures == "measured"
    assert SLOW.step_seconds([]) == 0
    assert SLOW.step_seconds([0, 1000]) == pytest.approx(11e-6)
    assert SLOW.step_seconds([1000] * 4) == pytest.approx(12e-6)
