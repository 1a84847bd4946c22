"""Plans of sharded products: everybody gets what it multiplies, and the model's choices."""

import itertools

import numpy as np
import pytest

from cupygemm._backends.interconnect import NVLINK_H200
from cupygemm._distributed.layouts import Grid, Region, extents_of, parse_layout
from cupygemm._distributed.sharded_plan import Cube, Piece, make_plan


def pieces(grid, shape):
    return [Piece(rank, region) for rank, region in enumerate(grid.regions(shape))]


def plan(m, n, k, grids, size=4, **options):
    a, b, out = (Grid(*grid) for grid in grids)
    owned = out.regions((m, n))
    return make_plan(
        pieces(a, (m, k)),
        pieces(b, (k, n)),
        owned,
        size=size,
        itemsize=2,
        sum_itemsize=4,
        link=NVLINK_H200,
        **options,
    )


def block(array, region):
    return array[slice(*region.rows), slice(*region.columns)]


@pytest.mark.parametrize("cube", [(4, 1, 1), (1, 4, 1), (1, 1, 4), (2, 2, 1), (2, 1, 2), (1, 2, 2)])
@pytest.mark.parametrize("grids", [((4, 1), (4, 1), (4, 1)), ((2, 2), (1, 4), (2, 2))])
def test_a_plan_computes_the_product(cube, grids):
    """NumPy carries out the moves, with NaN where nothing has arrived."""
    m, n, k = 11, 7, 13
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (m, k)).astype("f8"), rng.integers(-9, 9, (k, n)).astype("f8")
    made = plan(m, n, k, grids, cube=Cube(*cube), panels=2)
    sums = [np.zeros(task.result.shape) for task in made.tasks]
    for panel in range(2):
        held = {}
        for name, whole, moves in (("a", a, made.a_moves), ("b", b, made.b_moves)):
            for rank, task in enumerate(made.tasks):
                held[name, rank] = np.full(getattr(task, name)[panel].shape, np.nan)
            for move in moves[panel]:
                assert move.source.region.intersection(move.region) == move.region
                need = getattr(made.tasks[move.target], name)[panel]
                held[name, move.target][move.region.within(need)] = block(whole, move.region)
        for rank in range(4):
            sums[rank] += held["a", rank] @ held["b", rank]
    for rank, region in enumerate(made.owned):
        if made.sums:
            parts = np.full((cube[2], *region.shape), np.nan)
            for move in made.sums:
                if move.target == rank:
                    source = made.tasks[move.source.rank]
                    parts[source.part][move.region.within(region)] = sums[move.source.rank][
                        move.region.within(source.result)
                    ]
            got = parts.sum(0)
        else:
            got = sums[rank]
        np.testing.assert_array_equal(got, block(a @ b, region))


def test_nothing_moves_that_is_there():
    made = plan(8, 8, 8, ((4, 1), (1, 4), (4, 1)), cube=Cube(4, 1, 1), panels=1)
    assert all(move.source.rank == move.target for move in made.a_moves[0])
    assert not made.sums


@pytest.mark.parametrize(
    ("grids", "shape", "algorithm"),
    [
        (((4, 1), (4, 1), (4, 1)), (65536, 1024, 1024), "1-D"),
        (((2, 2), (2, 2), (2, 2)), (32768, 32768, 32768), "SUMMA"),
        (((1, 4), (4, 1), (4, 1)), (1024, 1024, 262144), "1-D"),
        (((2, 4), (2, 4), (2, 4)), (8192, 8192, 65536), "2.5-D"),
    ],
)
def test_the_model_chooses_by_what_moves(grids, shape, algorithm):
    size = grids[0][0] * grids[0][1]
    made = plan(*shape, grids, size=size)
    assert made.cube.algorithm == algorithm, made.cube


def test_replicas_are_taken_from_where_they_are_needed():
    everywhere = [Piece(rank, Region((0, 6), (0, 6)), rank) for rank in range(2)]
    made = make_plan(
        everywhere, everywhere, None, size=2, itemsize=4, sum_itemsize=4, link=NVLINK_H200
    )
    for move in itertools.chain(*made.a_moves, *made.b_moves):
        assert move.source.rank == move.target


def test_layouts():
    assert parse_layout("a", "rows", 6) == Grid(6, 1)
    assert parse_layout("a", "columns", 6) == Grid(1, 6)
    assert parse_layout("a", (2, 3), 6).regions((5, 7))[4] == Region((3, 5), (3, 5))
    with pytest.raises(ValueError, match=r"a layout is 'rows', 'columns', or"):
        parse_layout("a", "diagonal", 6)
    with pytest.raises(ValueError, match=r"layouts\[0\] is \(2, 2\), and the group has 6 ranks"):
        parse_layout("layouts[0]", (2, 2), 6)
    with pytest.raises(ValueError, match=r"rank 1 has a block of a of shape \(3, 4\); .* \(3, 3\)"):
        extents_of("a", Grid(2, 1), [(3, 3), (3, 4)])
