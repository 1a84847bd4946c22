"""Which of Hopper's configurations the cost model prefers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cupygemm._backends.hopper.choice.check import check, check_divisions
from cupygemm._backends.hopper.choice.configurations import (
    configs_for_product,
    short_widths,
    transposed_widths,
)
from cupygemm._backends.hopper.choice.orientation import as_computed
from cupygemm._backends.hopper.choice.select import (
    best_in_one_order,
    in_other_orders,
    select,
    sums_in_one_order,
)
from cupygemm._backends.hopper.choice.tile_rows import width_step
from cupygemm._backends.hopper.choice.tile_shapes import CONFIGS
from cupygemm._backends.hopper.config import step_group
from cupygemm._backends.hopper.cost.fixed import fixed_costs
from cupygemm._backends.hopper.cost.model import kernel_cost
from cupygemm._backends.hopper.cost.shapes import shapes_of
from cupygemm._backends.hopper.launch import launch_grid
from cupygemm._backends.hopper.other_products.grouped import choose_config
from cupygemm._records.problem import Epilogue
from tests.backends.hopper.test_hopper_config import ARCH, PROBLEM

EXTENT = st.integers(0, 14).map(lambda bits: 2**bits) | st.integers(1, 20000)


@given(m=EXTENT, n=EXTENT, k=EXTENT, count=st.integers(1, 40))
def test_some_configuration_runs_every_problem(m, n, k, count):
    problem = replace(PROBLEM, m=m, n=n, k=k, batch=(count,) if count > 1 else ())
    selection = select(problem, ARCH)
    config = selection.config
    problem = as_computed(problem, transposed_c=config.transposed_c)
    assert check(config, problem, ARCH) is None
    assert selection.candidates[0].config == config
    assert config.split_k <= -(-k // config.tile_k)
    grid = launch_grid(config, config.num_units(problem), ARCH.num_sms)
    assert grid[0] % config.cluster_size == 0
    assert 1 <= grid[0] <= ARCH.num_sms


@pytest.mark.parametrize(("cluster_m", "cluster_n"), [(3, 1), (1, 6), (2, 3), (2, 4)])
def test_clusters_of_any_size_have_a_cost(cluster_m, cluster_n):
    """`check` lets them through wherever the shares of tiles are whole: 3 of 192 rows are."""
    square = next(config for config in CONFIGS if (config.tile_m, config.tile_n) == (192, 192))
    config = replace(square, cluster_m=cluster_m, cluster_n=cluster_n)
    assert check(config, PROBLEM, ARCH) is None
    assert select(PROBLEM, ARCH, (config,)).candidates[0].cycles > 0


def test_equal_parts_of_tiles_wait_less_than_others():
    """Clusters with equal parts end together, so even a shorter k takes longer in unequal ones."""
    whole = next(c for c in CONFIGS if (c.tile_m, c.tile_n, c.cluster_size) == (64, 64, 2))
    halves = replace(whole, stream_k=ARCH.num_clusters(2))
    tiles = halves.stream_k // 2
    rows, columns = 64 * whole.cluster_m, 64 * whole.cluster_n * tiles
    problem = replace(PROBLEM, m=rows, n=columns, k=112 * 64, b_major="k")
    equal, unequal = (
        kernel_cost(halves, replace(problem, k=k), ARCH).cycles for k in (112 * 64, 111 * 64)
    )
    assert check(halves, problem, ARCH) is None
    assert equal < unequal


def test_rows_that_tma_cannot_store_have_no_tile_with_too_many_sums():
    problem = replace(PROBLEM, m=4096, n=3072, k=8192, b_major="k")
    widest = {
        align: max(
            each.config.accumulators
            for each in select(replace(problem, c_align=align), ARCH).candidates
            if not each.config.transposed_c
        )
        for align in (16, 2)
    }
    assert widest == {16: 192, 2: 176}


def test_groups_leave_registers_to_look_up_products():
    products = [replace(PROBLEM, m=4096, n=3072, k=8192, b_major="k")] * 3
    assert select(products[0], ARCH).config.accumulators > 160
    assert choose_config(products, ARCH)[0].accumulators <= 160


def test_large_products_share_tiles_in_clusters_and_small_ones_split():
    large = select(PROBLEM, ARCH).config
    assert large.cluster_size == 2
    assert large.tile_m * large.tile_n * large.num_consumers / large.num_sharing >= 128 * 256
    deep = replace(PROBLEM, m=256, n=256, k=65536)
    assert select(deep, ARCH).config.split_k > 8
    assert "parts of k" in select(deep, ARCH).reason


def test_tiles_that_fill_the_gpu_unevenly_are_cut():
    """It is the fastest of the measured kernels (H200, 2026-11-28): 103 us, 107 without cuts."""
    odd = replace(PROBLEM, m=700, n=7168, k=7168, b_major="k")
    selection = select(odd, ARCH)
    assert selection.config.stream_k * selection.config.cluster_size == ARCH.num_sms
    assert "dealt evenly" in selection.reason
    assert launch_grid(selection.config, 1, ARCH.num_sms)[0] == ARCH.num_sms


@pytest.mark.parametrize(
    ("m", "n", "k", "tile_n", "cluster"),
    [(384, 7168, 5120, 112, (2, 1)), (550, 7168, 20480, 168, (1, 2))],
)
def test_rows_near_multiples_of_192_have_tiles_of_192_rows(m, n, k, tile_n, cluster):
    """The fastest measured kernels, H200, 2026-11-28: 0.94 and 0.97 of the time of the next."""
    config = select(replace(PROBLEM, m=m, n=n, k=k, b_major="k"), ARCH).config
    assert (config.tile_m, config.tile_n, config.transposed_c) == (192, tile_n, False)
    assert (config.cluster_m, config.cluster_n) == cluster


@pytest.mark.parametrize("k", [4096, 6144, 8192])
def test_steps_that_loads_and_tensor_cores_bound_alike_leave_few_sms_idle(k):
    """128x128 on 112 SMs takes 5 % longer than 128x112 on 128 (measured, H200, 2026-11-28)."""
    problem = replace(PROBLEM, m=512, n=3584, k=k, a_major="k", b_major="k")
    chosen = select(problem, ARCH).config
    assert chosen.num_units(problem) * chosen.cluster_size == 128


def test_the_order_of_tiles_is_told_and_is_no_matter_where_all_run_at_once():
    config = select(PROBLEM, ARCH).config
    assert all(each.config.raster == "grouped" for each in select(PROBLEM, ARCH).candidates)
    (other,) = in_other_orders(config, PROBLEM, ARCH)
    assert other == replace(config, raster="hilbert")
    assert in_other_orders(other, PROBLEM, ARCH) == (config,)
    assert other.name == config.name.replace(f"g{config.group_m}", "hilbert") != config.name
    assert "Hilbert's order" in other.summary
    assert "Hilbert" not in config.summary
    few = replace(PROBLEM, m=512, n=512)
    assert in_other_orders(select(few, ARCH).config, few, ARCH) == ()
    fours = next(c for c in CONFIGS if (c.tile_m, c.cluster_m, c.cluster_n) == (128, 4, 1))
    once = replace(PROBLEM, m=512 * 30, n=fours.tile_n)  # of such clusters, 30 run at a time
    assert in_other_orders(fours, once, ARCH) == ()
    assert in_other_orders(fours, replace(once, m=512 * 31), ARCH) != ()


@pytest.mark.parametrize("extent", [2304, 2816])
def test_results_between_the_tiles_are_turned(extent):
    """2304 x 2304 is 132 tiles of 192 x 216 or less, one for each SM."""
    problem = replace(PROBLEM, m=extent, n=extent, k=extent)
    selection = select(problem, ARCH)
    assert selection.config.transposed_c
    assert "of the transpose" in selection.reason
    assert {candidate.config.transposed_c for candidate in selection.candidates} == {False, True}
    for change in (
        {"epilogue": Epilogue(activation="relu")},
        {"out_dtype": "f32"},
        {"a_major": "m"},
    ):
        ranked = select(replace(problem, **change), ARCH).candidates
        assert not any(candidate.config.transposed_c for candidate in ranked)


def test_a_result_that_little_more_than_a_tile_fills_gets_another_tile_or_is_cut():
    """2047 x 2049 is 136 tiles of 256 x 128, for 66 clusters, or 121 of 192 x 192, for 132 SMs."""
    for m, n, k in ((2047, 2049, 2051), (1536, 1536, 1536), (3072, 3072, 3072)):
        config = select(replace(PROBLEM, m=m, n=n, k=k), ARCH).config
        assert 192 in (config.tile_m, config.tile_n) or config.stream_k or config.transposed_c
    for extent in (512, 1024, 2048, 4096):
        config = select(replace(PROBLEM, m=extent, n=extent, k=extent), ARCH).config
        assert config.num_consumers < 3


@pytest.mark.parametrize("epilogue", [None, Epilogue(activation="relu")], ids=["plain", "relu"])
@pytest.mark.parametrize(
    "types",
    [
        {},
        {"a_dtype": "i8", "b_dtype": "i8", "out_dtype": "i32"},
        {"a_dtype": "e4m3fn", "b_dtype": "e4m3fn"},
        {"a_dtype": "tf32", "b_dtype": "tf32", "out_dtype": "f32", "a_major": "m"},
    ],
)
def test_divisions_are_checked_together_as_they_are_alone(types, epilogue):
    problem = replace(PROBLEM, b_major="k", epilogue=epilogue, **types)
    outcomes = set()
    for config in configs_for_product(problem):
        ways = [config.changed(**each) for each in ({}, {"split_k": 2}, {"stream_k": 7})]
        expected = [check(way, problem, ARCH) is None for way in ways]
        assert check_divisions(ways, problem) == expected, config.name
        outcomes.add(tuple(expected))
    assert len(outcomes) > 1 or epilogue is not None


@pytest.mark.parametrize(
    ("shape", "majors", "short"),
    [  # microseconds of tiles of 128x128 or 64x256 and of narrow ones, an H200 (2026-11-29)
        ((376, 992, 16, 80), ("m", "n"), 16),  # 33.8, 21.0
        ((203, 1432, 8, 104), ("m", "n"), 8),  # 32.6, 21.7
        ((335, 16, 304, 208), ("m", "k"), 16),  # 18.2, 12.8
        ((742, 8, 2544, 32), ("m", "k"), 8),  # 55.5, 44.4
    ],
)
def test_tiles_of_batches_are_as_wide_as_their_short_side(shape, majors, short):
    batch, m, n, k = shape
    a_major, b_major = majors
    problem = replace(PROBLEM, m=m, n=n, k=k, batch=(batch,), a_major=a_major, b_major=b_major)
    config = select(problem, ARCH).config
    assert config.transposed_c == (m < n)
    assert config.tile_n in (short, 16)


def slow_candidates(problem):
    """Return what `check` accepts of all divisions of k of all configurations."""
    found = set()
    for base in configs_for_product(problem):
        computed = as_computed(problem, transposed_c=base.transposed_c)
        if any(
            blocks > 1 and -(-extent // tile) <= blocks // 2
            for extent, tile, blocks in (
                (computed.m, base.tile_m, base.cluster_m),
                (computed.n, base.tile_n, base.cluster_n),
            )
        ):
            continue
        step, short = width_step(base), any(base is each for each in short_widths())
        if short and computed.n > base.tile_n:
            continue
        has_narrower = base in transposed_widths() or (short and base.tile_n > step)
        narrower = replace(base, tile_n=base.tile_n - step) if has_narrower else None
        if narrower is not None and narrower.num_tiles(computed) == base.num_tiles(computed):
            continue
        units, clusters = base.num_units(computed), ARCH.num_clusters(base.cluster_size)
        steps = -(-computed.k // base.tile_k)
        parts = {min(times * clusters // units, steps // 4) for times in (1, 2)}
        if (base.ping_pong and units <= clusters) or (base.cluster_k > 1 and units > clusters):
            continue
        parts = {each for each in parts if each > 1 and not base.ping_pong}
        ways = [base, *(replace(base, split_k=each) for each in parts)]
        if units % clusters:
            ways.append(replace(base, stream_k=clusters))
        found |= {config for config in ways if check(config, computed, ARCH) is None}
    return found


@pytest.mark.parametrize(
    "types",
    [
        {},
        {"a_dtype": "i8", "b_dtype": "i8", "out_dtype": "i32"},
        {"a_dtype": "e4m3fn", "b_dtype": "e4m3fn"},
        {"a_dtype": "tf32", "b_dtype": "tf32", "out_dtype": "f32", "a_major": "m"},
        {"a_dtype": "f64", "b_dtype": "f64", "out_dtype": "f64"},
        {"epilogue": Epilogue(activation="relu")},
        {"b_major": "k"},
        {"batch": (30,), "a_major": "m"},
        {"batch": (30,), "b_major": "k"},
        {"batch": (30,), "c_align": 2},
    ],
)
@pytest.mark.parametrize(
    "shape", [(4096, 4096, 4096), (128, 4096, 4096), (8, 5120, 2880), (3, 5, 7), (256, 256, 65536)]
)
def test_the_columns_hold_what_check_accepts(types, shape):
    """The selector decides about extents in columns; `check` decides one by one."""
    m, n, k = shape
    problem = replace(PROBLEM, m=m, n=n, k=k, **types)
    ranked = select(problem, ARCH).candidates
    assert {candidate.config for candidate in ranked} == slow_candidates(problem)
    assert [each.cycles for each in ranked] == sorted(each.cycles for each in ranked)


@pytest.mark.parametrize(
    "types",
    [
        {},
        {"batch": (3,), "a_major": "m"},
        {"a_dtype": "e4m3fn", "b_dtype": "e4m3fn"},
        {"a_dtype": "tf32", "b_dtype": "tf32", "out_dtype": "f32", "a_major": "m"},
        {"a_dtype": "f64", "b_dtype": "f64", "out_dtype": "f64"},
    ],
)
@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (128, 4104, 4096), (72, 72, 65536)])
def test_the_selector_costs_a_kernel_as_if_it_were_alone(types, shape):
    """It keeps what no extent changes, and counts tiles before it divides k."""
    m, n, k = shape
    problem = replace(PROBLEM, m=m, n=n, k=k, **types)
    ranking = select(problem, ARCH).ranking
    for index in range(len(ranking.cycles)):
        config = ranking.config(index)
        computed = as_computed(problem, transposed_c=config.transposed_c)
        alone = kernel_cost(config, computed, ARCH)
        assert ranking.cost.cycles[index] == pytest.approx(alone.cycles, rel=1e-12)
        assert ranking.cost.memory[index] == pytest.approx(alone.memory, rel=1e-12)


@pytest.mark.parametrize(
    "types",
    [
        {},
        {"a_dtype": "e4m3fn", "b_dtype": "e4m3fn"},
        {"a_dtype": "tf32", "b_dtype": "tf32", "out_dtype": "f32", "a_major": "m"},
        {"a_dtype": "tf32x3", "b_dtype": "tf32x3", "out_dtype": "f32"},
    ],
)
def test_the_cost_model_groups_steps_as_kernels_do(types):
    ranking = select(replace(PROBLEM, **types), ARCH).ranking
    for config in {ranking.config(index) for index in range(len(ranking.cycles))}:
        computed = as_computed(replace(PROBLEM, **types), transposed_c=config.transposed_c)
        fixed = fixed_costs(config, shapes_of(computed))
        assert fixed.step_group == step_group(config, computed)


@pytest.mark.parametrize(
    "name",
    [
        "choice.admissible.check_divisions",
        "choice.admissible.fixed_costs",
        "choice.admissible.config_features",
        "cost.model.fixed_costs",
        "cost.model.tiles_of",
        "cost.correction.config_features",
    ],
)
def test_what_no_extent_changes_is_costed_once_for_a_kind_of_product(name, monkeypatch):
    select(PROBLEM, ARCH)
    other = replace(PROBLEM, m=PROBLEM.m + 8)
    select.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(f"cupygemm._backends.hopper.{name}", lambda *_: pytest.fail(name))
        chosen = select(other, ARCH)
    select.cache_clear()
    assert select(other, ARCH) == chosen


@pytest.mark.parametrize(("n", "parts"), [(33 * 64, 2), (22 * 64, 3)])
def test_tiles_that_are_cut_into_equal_parts_cost_less(n, parts):
    """No cluster begins a second tile then; one step of k more makes the parts uneven."""
    base = next(
        config
        for config in CONFIGS
        if (config.tile_m, config.tile_n, config.tile_k) == (64, 64, 64)
        and (config.cluster_m, config.cluster_n) == (2, 1)
    )
    config = base.changed(stream_k=ARCH.num_clusters(2))

    def cycles(steps):
        problem = replace(PROBLEM, m=128, n=n, k=64 * steps)
        assert config.stream_k == parts * base.num_units(problem)
        return kernel_cost(config, problem, ARCH).cycles

    assert cycles(36 * parts) < 0.95 * cycles(36 * parts + 1)
    assert cycles(36 * parts + parts) < cycles(36 * parts + 1)


def test_types_without_a_kernel_are_refused_with_the_reason():
    tf32 = {"a_dtype": "tf32", "b_dtype": "tf32", "out_dtype": "f32", "a_major": "k"}
    problem = replace(PROBLEM, **tf32, epilogue=Epilogue())
    with pytest.raises(ValueError, match="no kernel for "):
        select(problem, ARCH)


def test_parts_take_the_best_kernel_that_does_not_split_k():
    problem = replace(PROBLEM, m=128, n=128, k=16384)
    assert not sums_in_one_order(select(problem, ARCH).config, problem)
    config = best_in_one_order(problem, ARCH)
    assert sums_in_one_order(config, problem)
    assert not sums_in_one_order(replace(config, split_k=2), problem)
    assert not sums_in_one_order(replace(config, promote=True), problem)
    assert not sums_in_one_order(config, replace(problem, a_dtype="e4m3fn", b_dtype="e4m3fn"))
