"""The cost model: sensible choices, consistent figures, and readable reasons."""

from dataclasses import replace

import pytest

from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.mainloops import configs_for, raster_group, resident_workgroups
from cupygemm._backends.cdna.select import estimate, partitions, select
from tests.problems import problem_of

MI300X = ARCHS["gfx942"]


def problem(m, n, k, batch=(), **changes):
    made = problem_of(m, n, k, batch=batch)
    return replace(made, **changes)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (1, 4096, 4096), (300, 5, 7), (1000, 1000, 1000), (8192, 8192, 8192)],
)
def test_the_choice_can_run_and_is_the_cheapest(arch, shape):
    selection = select(problem(*shape), ARCHS[arch])
    assert check(selection.config, problem(*shape), ARCHS[arch]) is None
    costs = [candidate.cycles for candidate in selection.candidates]
    assert costs == sorted(costs)
    assert selection.candidates[0].config == selection.config


@pytest.mark.parametrize("arch", ARCHS)
def test_large_products_take_large_tiles(arch):
    config = select(problem(8192, 8192, 8192), ARCHS[arch]).config
    assert config.tile_m * config.tile_n >= 128 * 128


@pytest.mark.parametrize("arch", ARCHS)
def test_products_that_fill_the_device_take_turns_at_the_matrix_units(arch):
    """A 256x256 tile for each CU, deep in k: where two workgroups a CU would idle now and then."""
    selection = select(problem(ARCHS[arch].num_cus // 2 * 256, 512, 8192), ARCHS[arch])
    assert selection.config.mainloop == "ping_pong"
    assert selection.candidates[0].bound == "MFMA"
    assert "ping_pong" in selection.reason
    few = select(problem(512, 512, 8192), ARCHS[arch]).config
    assert few.mainloop != "ping_pong"


@pytest.mark.parametrize("arch", ARCHS)
def test_skinny_products_waste_little(arch):
    """The tile is not much wider than the narrow side, and the long side is cut finely."""
    wide = select(problem(16, 8192, 8192), ARCHS[arch])
    assert wide.config.tile_m == 32
    assert wide.candidates[0].tiles >= ARCHS[arch].num_cus / 3
    assert select(problem(8192, 16, 8192), ARCHS[arch]).config.tile_n == 32


@pytest.mark.parametrize("b_major", ["k", "n"])
@pytest.mark.parametrize("short", [1, 4, 16])
def test_few_rows_or_columns_are_read_to_registers(short, b_major):
    """A long operand is read once, by as many CUs as there are: memory decides."""
    for m, n in ((short, 8192), (8192, short)):
        selection = select(problem(m, n, 8192, b_major=b_major), MI300X)
        assert selection.config.mainloop == "direct_to_register"
        assert selection.candidates[0].bound == "memory"
        assert selection.candidates[0].tiles >= 0.8 * MI300X.num_cus
        assert selection.reason.startswith("tile ") or "direct_to_register" in selection.reason
    other = select(problem(17, 8192, 8192, b_major=b_major), MI300X)
    assert other.config.mainloop != "direct_to_register"


def test_long_k_is_cut_where_tiles_are_few():
    """256 x 256 is 4 tiles of 128 x 128, or 64 of 32 x 32: neither fills 304 CUs."""
    deep = select(problem(256, 256, 65536), MI300X)
    assert deep.config.split_k > 4
    assert deep.candidates[0].tiles >= MI300X.num_cus
    assert f"({deep.config.split_k} parts of k, added by a second kernel)" in deep.reason
    whole = next(c for c in deep.candidates if c.config.partition == "tiles")
    assert whole.cycles > 2 * deep.candidates[0].cycles
    assert select(problem(256, 256, 256), MI300X).config.partition == "tiles"


def test_large_products_are_not_cut():
    for arch in ARCHS.values():
        assert select(problem(8192, 8192, 8192), arch).config.split_k == 1
    assert select(problem(4096, 4096, 4096), MI300X).config.split_k == 1


def test_a_persistent_grid_evens_out_a_last_round():
    """512 tiles of 128 x 256 are 1.7 rounds of 304 workgroups; the deeper k, the more that costs.

    At a depth of 512 the second kernel would cost more than it saves.
    """
    deep = select(problem(4096, 4096, 16384), MI300X)
    assert deep.config.stream_k == 304
    assert "208 of 512 tiles cut along k" in deep.reason
    assert deep.candidates[0].tiles == 512
    assert select(problem(4096, 4096, 512), MI300X).config.partition == "tiles"
    even = problem(128 * 32, 128 * 38, 16384)  # 2 rounds
    assert select(even, MI300X).config.partition == "tiles"


def test_parts_fill_the_compute_units():
    config = next(c for c in configs_for("bf16", "gfx942") if (c.tile_m, c.tile_n) == (64, 64))
    made = list(partitions(config, problem(256, 256, 65536), MI300X))
    resident = resident_workgroups(config, MI300X, 2)
    assert made[0] == config
    assert [c.split_k for c in made[1:-1]] == sorted({19, 19 * resident, 38 * resident})
    assert made[-1].stream_k == 304 * resident
    assert not any(c.atomic for c in made)


def test_atomic_parts_are_for_those_who_ask():
    deep = select(problem(256, 256, 65536), MI300X, reproducible=False)
    assert any(c.config.atomic for c in deep.candidates)
    assert (
        deep.candidates[0].cycles <= select(problem(256, 256, 65536), MI300X).candidates[0].cycles
    )


def test_sums_that_are_added_to_the_result_need_no_second_pass():
    """An fp32 result of a bf16 product holds its own sums; a bf16 one, or an epilogue's, cannot."""
    wide = problem(256, 256, 16384, out_dtype="f32")
    kept, added = (select(wide, MI300X, reproducible=r).candidates[0] for r in (True, False))
    assert added.config.atomic
    assert added.cycles < 0.8 * kept.cycles
    rounded = replace(wide, out_dtype="bf16")
    more = estimate(added.config, rounded, MI300X).cycles - added.cycles
    assert more > 6000


def test_small_products_fill_the_device():
    """At 1024 cubed a 128 x 128 tile would use 64 of 304 CUs."""
    assert select(problem(1024, 1024, 1024), MI300X).candidates[0].tiles >= 256
    assert select(problem(256, 256, 256), MI300X).candidates[0].tiles == 64


def test_a_batch_counts_as_more_tiles():
    alone = select(problem(256, 256, 1024), MI300X)
    together = select(problem(256, 256, 1024, (64,)), MI300X)
    assert (
        together.config.tile_m * together.config.tile_n > alone.config.tile_m * alone.config.tile_n
    )


def test_quantisation_is_seen():
    """One tile more than the CUs hold at once costs a whole round more."""
    config = next(c for c in configs_for("bf16", "gfx942") if (c.tile_m, c.tile_n) == (256, 128))
    assert resident_workgroups(config, MI300X, 2) == 1
    full = estimate(config, problem(256 * 16, 128 * 19, 4096), MI300X)
    over = estimate(config, problem(256 * 16, 128 * 20, 4096), MI300X)
    assert (full.tiles, over.tiles) == (304, 320)
    assert over.cycles > 1.8 * full.cycles


def test_the_raster_suits_the_workgroups_that_run_together():
    """On each of 8 XCDs 38 CUs: two 128 x 128 tiles each are a block of 8 x 9.5."""
    groups = {
        (c.tile_m, c.tile_n, c.tile_k): (resident_workgroups(c, MI300X, 2), c.group_m)
        for c in configs_for("bf16", "gfx942")
        if c.mainloop == "register_double_buffer" and c.mma_m == 16
    }
    assert groups[128, 128, 64] == (2, 8)
    assert groups[256, 128, 64] == (1, 4)
    assert groups[128, 256, 64] == (1, 8)
    assert groups[64, 64, 64] == (4, 16)
    tall = replace(configs_for("bf16", "gfx942")[0], tile_m=256, tile_n=32)
    assert raster_group(tall, MI300X, 2) < 4


def test_costs_grow_with_the_work():
    config = configs_for("bf16", "gfx942")[2]
    costs = [
        estimate(config, problem(4096, 4096, k), MI300X).cycles for k in (64, 512, 4096, 32768)
    ]
    assert costs == sorted(costs)


def test_efficiency_is_the_share_inside_the_matrices():
    config = next(c for c in configs_for("bf16", "gfx942") if (c.tile_m, c.tile_n) == (128, 128))
    assert estimate(config, problem(128, 128, 64), MI300X).efficiency == 1
    assert estimate(config, problem(64, 129, 64), MI300X).efficiency == 129 / 512


def test_the_reason_is_a_sentence():
    reason = select(problem(4096, 4096, 4096), MI300X).reason
    assert reason.startswith(
        "ping_pong, tile 256x256x64: 256 workgroups on 304 CUs, 100% of the work useful"
    )
    assert "(modelled)" in reason
    assert "the next, " in reason


def test_no_kernel_says_why():
    with pytest.raises(ValueError, match=r"no kernel for .* on gfx942: A is bf16 and B is f16"):
        select(problem(8, 8, 8, b_dtype="f16"), MI300X)
