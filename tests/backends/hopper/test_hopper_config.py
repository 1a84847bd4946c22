"""What Hopper's configurations can do, and what `check` says of others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cupygemm._backends.hopper.choice.check import check
from cupygemm._backends.hopper.choice.configurations import configs_for, transposed_widths
from cupygemm._backends.hopper.choice.orientation import transposed
from cupygemm._backends.hopper.choice.tile_shapes import (
    CONFIGS,
    NARROW_CONFIGS,
    PART_CONFIGS,
    TRANSPOSED_CONFIGS,
)
from cupygemm._backends.hopper.config import SHARED_BYTES, HopperArch, step_group
from cupygemm._records.problem import Epilogue
from tests.problems import problem_of

ARCH = HopperArch()
PROBLEM = problem_of(4096, 4096, 4096)


@pytest.mark.parametrize("config", [*CONFIGS, *NARROW_CONFIGS], ids=lambda config: config.name)
def test_the_configurations_fit(config):
    """Those of odd multiples of eight columns read only a B along k."""
    major = "k" if config.tile_n % 16 else "n"
    assert check(config, replace(PROBLEM, b_major=major), ARCH) is None
    assert config.shared_bytes(2, major) <= SHARED_BYTES


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"stream_k": 132}, "leaves no registers"),
        ({"tile_n": 128, "stream_k": 128}, "1024 tiles fill the 128 clusters evenly"),
        ({"tile_n": 128, "stream_k": 132, "split_k": 2}, "tiles are cut one way"),
        ({"tile_n": 128, "stream_k": 65537}, "cannot be cut over 65537 clusters"),
        ({"tile_k": 48}, "tile_k = 48"),
        ({"num_consumers": 4}, "4 consumers"),
        ({"tile_m": 192}, "tile_m = 192"),
        ({"tile_n": 100}, "tile_n = 100 is not a multiple of 16"),
        ({"tile_m": 384, "tile_n": 64, "num_stages": 3}, "boxes of 384 rows"),
        ({"cluster_m": 4, "cluster_n": 4}, "4 x 4 blocks: at most 8"),
        ({"tile_n": 64, "num_stages": 5, "cluster_m": 16}, "16 x 1 blocks: at most 8"),
        ({"tile_n": 64, "num_stages": 5, "cluster_n": 3}, "3 blocks do not load 128 rows"),
        ({"tile_m": 256}, "256 accumulators"),
        ({"num_stages": 6}, "bytes; a block has"),
        ({"split_k": 65}, "exceeds the 64 steps"),
        ({"cluster_k": 16}, "1 x 1 x 16 blocks: at most 8"),
        ({"cluster_k": 2, "split_k": 2}, "not divided another way"),
        ({"cluster_k": 2, "tile_n": 112}, "112 columns are not 2 shares"),
        ({"cluster_k": 2, "num_stages": 2}, "does not hold the sums"),
        ({"raster": "row-major"}, "raster = 'row-major' is none of grouped, hilbert"),
    ],
)
def test_check_says_why_not(change, why):
    assert why in check(replace(CONFIGS[0], **change), PROBLEM, ARCH)


def test_tiles_of_odd_multiples_of_eight_columns_load_rows_of_k_and_store_halves():
    config, halves = replace(CONFIGS[0], tile_n=120), replace(PROBLEM, b_major="k")
    assert check(config, halves, ARCH) is None
    why = "tile_n = 120 is not a multiple of 16 up to 256"
    assert check(config, PROBLEM, ARCH) == why
    assert check(config, replace(halves, out_dtype="e4m3fn"), ARCH) == why


def test_as_many_clusters_fit_as_the_driver_says():
    """Of an H200, from one block to eight; a cluster more waits until another one has ended."""
    found = [ARCH.num_clusters(size) for size in range(1, 9)]
    assert found == [132, 66, 39, 30, 22, 17, 15, 15]
    fewer = replace(ARCH, num_sms=100)
    assert [fewer.num_clusters(size) for size in (1, 2, 3, 8)] == [100, 50, 29, 11]
    assert replace(ARCH, num_sms=8).num_clusters(4) == 1


def test_check_says_which_types_have_no_kernel():
    assert "f32 and f32" in check(CONFIGS[0], replace(PROBLEM, a_dtype="f32", b_dtype="f32"), ARCH)
    assert "bf16 and f16" in check(CONFIGS[0], replace(PROBLEM, b_dtype="f16"), ARCH)


def test_check_says_that_integers_are_not_split():
    problem = replace(PROBLEM, a_dtype="i8", b_dtype="i8", out_dtype="i32", b_major="k")
    assert "integers" in check(replace(configs_for("i8")[0], split_k=2), problem, ARCH)
    assert "output of f32" in check(CONFIGS[0], replace(problem, out_dtype="f32"), ARCH)
    assert "output of i8" in check(CONFIGS[0], replace(PROBLEM, out_dtype="i8"), ARCH)


@pytest.mark.parametrize(
    "config", [*TRANSPOSED_CONFIGS, *transposed_widths()], ids=lambda config: config.name
)
def test_the_configurations_that_turn_fit(config):
    assert check(config, transposed(PROBLEM), ARCH) is None
    assert config.shared_bytes(2, "k") <= SHARED_BYTES
    assert config.tile_n % config.stored_rows == 0
    assert config.stored_rows <= 64


@pytest.mark.parametrize("config", transposed_widths(), ids=lambda config: config.name)
def test_rings_of_tiles_of_every_width_are_as_long_as_their_buffers_allow(config):
    """A stage more does not fit; in tiles of 192 rows, not with one buffer either."""
    longer = replace(config, num_stages=config.num_stages + 1)
    assert config.num_stages == 16 or longer.shared_bytes(2, "k") > SHARED_BYTES
    if config.tile_m == 192:
        fewer = replace(longer, epilogue_buffers=1)
        assert fewer.shared_bytes(2, "k") > SHARED_BYTES


@pytest.mark.parametrize(
    ("change", "given", "why"),
    [
        ({}, {"epilogue": Epilogue(activation="relu")}, "without an epilogue"),
        ({}, {"out_dtype": "f32"}, "from an A in shared memory, blocks of 32 bits"),
        ({"split_k": 2}, {}, "from an A in shared memory, blocks of 32 bits"),
        ({"tile_n": 84}, {}, "tile_n = 84 is not a multiple of 8 up"),
        ({}, {"a_major": "m"}, "bytes; a block has"),
        ({"tile_n": 72, "cluster_m": 5}, {}, "5 blocks do not load 72 rows"),
    ],
)
def test_check_says_what_is_not_turned(change, given, why):
    config = replace(next(c for c in TRANSPOSED_CONFIGS if c.tile_n == 80), **change)
    assert why in check(config, transposed(replace(PROBLEM, **given)), ARCH)


def test_three_consumers_have_registers_for_sums_only():
    three = next(config for config in CONFIGS if config.num_consumers == 3)
    assert check(three, PROBLEM, ARCH) is None
    fused = replace(PROBLEM, epilogue=Epilogue(activation="relu"))
    turned = replace(PROBLEM, a_dtype="tf32", b_dtype="tf32", a_major="m", b_major="k")
    assert "too few for" in check(three, fused, ARCH)
    assert "too few for" in check(replace(three, tile_k=32), turned, ARCH)
    assert check(replace(three, split_k=2), fused, ARCH) is None  # the sum of the parts has it
    assert all(config.num_consumers < 3 for config in configs_for("tf32"))


def test_wide_sums_of_a_cluster_have_no_epilogue_beside_two_consumers():
    """It would spill; test_exchanges_of_sums_do_not_spill compiles the others."""
    fused = replace(PROBLEM, epilogue=Epilogue(activation="relu"))
    wide = [c for c in PART_CONFIGS if c.cluster_k > 1 and c.num_consumers == 2 and c.tile_n == 192]
    assert wide
    for config in wide:
        assert check(config, PROBLEM, ARCH) is None
        assert "epilogue do not fit the registers" in check(config, fused, ARCH)


@pytest.mark.parametrize("config", configs_for("f64"), ids=lambda config: config.name)
def test_fp64_takes_two_registers_a_sum_and_any_order_of_memory(config):
    problem = replace(PROBLEM, a_dtype="f64", b_dtype="f64", out_dtype="f64")
    for majors in (("k", "k"), ("k", "n"), ("m", "k"), ("m", "n")):
        assert check(config, replace(problem, a_major=majors[0], b_major=majors[1]), ARCH) is None
    assert "mma.sync m16n8k8" in config.summary
    wide = replace(config, tile_m=config.num_consumers * 64, tile_n=256)
    assert "leave no registers" in check(wide, problem, ARCH)
    assert "wgmma does not multiply f64" in check(replace(config, mma_sync=False), problem, ARCH)
    assert "mma.sync does not multiply bf16" in check(config, PROBLEM, ARCH)


def test_steps_that_are_promoted_together_are_256_bytes():
    for config in configs_for("e4m3fn"):
        problem = replace(PROBLEM, k=600, a_dtype="e4m3fn", b_dtype="e5m2", b_major="k")
        assert config.tile_k * step_group(config, problem) == 256
        assert check(replace(config, split_k=3), problem, ARCH) is None
        assert "exceeds the 3 steps" in check(replace(config, split_k=4), problem, ARCH)


def test_steps_of_an_a_in_registers_come_in_pairs():
    problem = replace(PROBLEM, k=96, a_dtype="tf32", b_dtype="tf32", a_major="m", b_major="k")
    config = replace(configs_for("tf32")[0], split_k=3)
    assert "exceeds the 2 steps" in check(config, problem, ARCH)
    assert check(config, replace(problem, a_major="k"), ARCH) is None


@pytest.mark.parametrize("dtype", ["e4m3fn", "tf32x3"])
def test_sums_that_are_promoted_have_registers(dtype):
    assert configs_for(dtype)
    for config in configs_for(dtype):
        assert config.promote
        problem = replace(PROBLEM, a_dtype=dtype, b_dtype=dtype, b_major="k")
        assert check(config, problem, ARCH) is None
    wide = replace(CONFIGS[0], tile_k=configs_for(dtype)[0].tile_k, promote=True)
    assert "leave no registers" in check(wide, problem, ARCH)


def test_8_bit_floats_may_differ_and_others_may_not():
    problem = replace(PROBLEM, a_dtype="e4m3fn", b_dtype="e5m2", b_major="k")
    assert check(configs_for("e4m3fn")[0], problem, ARCH) is None
    assert "e4m3fn and i8" in check(CONFIGS[0], replace(problem, b_dtype="i8"), ARCH)


@pytest.mark.parametrize(
    ("kilohertz", "bits", "bytes_per_clock"),
    [(3201000, 6144, 2500), (2619000, 5120, 1704), (0, 6144, 2500)],
    ids=["H200", "H100", "not reported"],
)
def test_the_bandwidth_is_that_of_the_device(kilohertz, bits, bytes_per_clock):
    values = {"multiProcessorCount": 114, "memoryClockRate": kilohertz, "memoryBusWidth": bits}
    arch = HopperArch.of_device("a GPU", values)
    assert arch == HopperArch(part="a GPU", num_sms=114, hbm_bytes_per_clock=bytes_per_clock)


def test_the_size_of_l2_is_that_of_the_device():
    values = {"multiProcessorCount": 114, "l2CacheSize": 50 << 20}
    assert HopperArch.of_device("a GPU", values).l2_bytes == 50 << 20
    assert HopperArch.of_device("a GPU", {**values, "l2CacheSize": 0}).l2_bytes == 60 << 20


def test_a_changed_configuration_is_another_configuration():
    for base in (CONFIGS[0], replace(CONFIGS[1], split_k=3), TRANSPOSED_CONFIGS[0]):
        assert base.cluster_size  # which is kept with the configuration
        for changes in ({}, {"split_k": 2}, {"stream_k": 66}, {"tile_n": 40, "num_stages": 3}):
            expected = replace(base, **changes)
            found = base.changed(**changes)
            assert found == expected
            assert hash(found) == hash(expected)
            assert found.cluster_size == expected.cluster_size
