"""What `check` accepts and refuses, and in which words; the grid of a launch."""

from dataclasses import replace

import pytest

from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.config import GemmConfig, grid
from cupygemm._backends.cdna.mainloops import configs_for, register_double_buffer
from tests.problems import problem_of

PROBLEM = problem_of(100, 200, 300)
CONFIG = GemmConfig(
    mainloop="register_double_buffer",
    tile_m=128,
    tile_n=128,
    tile_k=64,
    waves_m=2,
    waves_n=2,
    mma_m=16,
    mma_n=16,
    mma_k=16,
)
MI300X = ARCHS["gfx942"]


@pytest.mark.parametrize("arch", ARCHS)
def test_every_problem_has_the_register_double_buffer(arch):
    """Its configurations suit every layout and type, so any problem can fall back on them."""
    for config in register_double_buffer.configs("bf16", arch):
        for a_major in ("k", "m"):
            for b_major in ("k", "n"):
                for dtype in ("bf16", "f16"):
                    problem = replace(
                        PROBLEM, a_major=a_major, b_major=b_major, a_dtype=dtype, b_dtype=dtype
                    )
                    assert check(config, problem, ARCHS[arch]) is None


@pytest.mark.parametrize("arch", ARCHS)
def test_configurations_are_distinct(arch):
    assert (
        len(set(configs_for("bf16", arch)))
        == len({c.name for c in configs_for("bf16", arch)})
        == len(configs_for("bf16", arch))
    )
    assert len({(c.tile_m, c.tile_n) for c in configs_for("bf16", arch)}) >= 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"b_dtype": "f16"}, "A is bf16 and B is f16"),
        ({"a_dtype": "i32", "b_dtype": "i32"}, "inputs of type i32 have no kernel"),
        ({"a_dtype": "i8", "b_dtype": "i8"}, "i8 inputs and an output of type bf16"),
        ({"a_dtype": "i8", "b_dtype": "i8", "out_dtype": "i8", "b_align": 2}, "i8 start at 4"),
        ({"a_dtype": "f32", "b_dtype": "f32"}, "no 16x16x16 instruction for f32: it has 16x16x4"),
        ({"out_dtype": "f8"}, "KeyError"),
        ({"a_align": 1}, "a is aligned to 1 bytes, less than its bf16 elements of 2"),
        ({"out_dtype": "f32", "c_align": 2}, "c is aligned to 2 bytes"),
        ({"m": 0}, "m = 0 is outside"),
        ({"k": 1 << 31}, "k = 2147483648 is outside"),
        ({"batch": (2, 2, 2, 2)}, "4 batch axes"),
        ({"m": (1 << 31) - 1, "n": (1 << 31) - 1}, "more than a grid axis's 2**32 threads"),
        ({"batch": (1 << 31, 2)}, "a grid holds"),
        ({"a_span": 1 << 40}, "rows of A"),
        ({"b_span": 300 * (1 << 28)}, "rows of B"),
        ({"c_span": 1 << 38}, "rows of C"),
    ],
)
def test_problems_that_no_kernel_takes(changes, words):
    problem = replace(PROBLEM, **changes)
    if words == "KeyError":
        words = "output of type f8"
    assert words in check(CONFIG, problem, MI300X)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mma_k": 32}, "gfx942 has no 16x16x32 instruction"),
        ({"tile_k": 32}, "tile_k = 32 is not a multiple of 64"),
        ({"tile_m": 192}, "tile_m = 192 is not a power of two"),
        ({"tile_n": 16, "waves_n": 1}, "tile_n = 16 is not a power of two from 32"),
        ({"waves_m": 16, "waves_n": 1}, "not 16 waves of whole fragments"),
        ({"waves_n": 8}, "16 columns are not blocks of 32"),
        ({"waves_m": 8, "waves_n": 4}, "2048 threads"),
        ({"tile_m": 256, "tile_n": 512}, "98304 bytes of LDS, and gfx942 has 65536"),
        ({"num_stages": 3, "tile_m": 32, "tile_n": 64}, "num_stages = 3"),
        ({"waves_per_simd": 4}, "LDS has room for 2 waves"),
        ({"tile_m": 32, "waves_n": 4, "waves_m": 2}, "at least 1 whole vectors"),
    ],
)
def test_configurations_that_cannot_be(changes, words):
    assert words in check(replace(CONFIG, **changes), PROBLEM, MI300X)


def test_a_row_major_tile_needs_two_vectors_of_each_thread():
    """A transposition takes pairs of k; moving rows of k as they are does not."""
    config = replace(CONFIG, tile_m=32, tile_n=64, waves_n=1, waves_m=2)
    assert check(config, PROBLEM, MI300X) is None
    config = replace(config, waves_n=2)
    assert check(config, PROBLEM, MI300X) is None
    assert "m-major tile of A" in check(config, replace(PROBLEM, a_major="m"), MI300X)


def test_large_matrices_are_fine_if_a_tile_is_within_reach():
    """100 GiB of A, whose rows are 400 KB apart."""
    m = 262144
    problem = replace(PROBLEM, m=m, k=204800, a_span=m * 204800 * 2)
    assert check(CONFIG, problem, MI300X) is None


def test_grid():
    assert grid(CONFIG, PROBLEM) == (2, 1, 1)
    assert grid(CONFIG, replace(PROBLEM, m=129, batch=(7, 5))) == (4, 35, 1)
    assert grid(CONFIG, replace(PROBLEM, batch=(32769,))) == (2, 32768, 2)
