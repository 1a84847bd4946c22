"""The mainloop for at most 16 rows or columns: every type, order of memory and tail, exactly.

A product is long in n ("wide", with few rows) or in m ("tall", with few columns).
"""

from dataclasses import replace

import pytest

from cupygemm import testing
from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.compile import compile_kernel
from cupygemm._backends.cdna.mainloops import direct_to_register
from cupygemm._records.dtypes import ITEMSIZE
from tests.kernels.gemm import Case, Placement, with_layout

RESULTS = {
    "bf16": "bf16",
    "f16": "f32",
    "f32": "f32",
    "f64": "f64",
    "i8": "i32",
    "tf32": "f32",
    "e4m3fnuz": "bf16",
    "e5m2fnuz": "e5m2fnuz",
    "e4m3fn": "e4m3fn",
    "e5m2": "f16",
}
LAYOUTS = ["kk", "kn", "mk", "mn"]
PLACE = Placement(64, 64, (0, 0, 0), 0)


def skinny(config, arch, dtype, layout, *, short=5, k=None, **changes):
    """Return a case with two ragged tiles along the long side, rows that start at odd dwords."""
    wide = config.tile_m == direct_to_register.SHORT_TILE
    long = max(config.tile_m, config.tile_n) + 9
    m, n = (short, long) if wide else (long, short)
    k = 3 * config.tile_k + 37 if k is None else k
    case = Case(config, arch, m=m, n=n, k=k, dtype=dtype, out_dtype=RESULTS[dtype])
    case = with_layout(replace(case, **changes), layout)
    per_dword = max(1, 4 // ITEMSIZE[dtype])
    rows = (case.k if layout[0] == "k" else m, case.n if layout[1] == "n" else k)
    pads = tuple(-extent % per_dword + per_dword for extent in rows)
    return replace(case, pads=(*pads, 3), offsets=(per_dword, per_dword, 1))


def takes(config, arch, dtype, layout):
    case = skinny(config, arch, dtype, layout)
    return check(config, case.problem(PLACE, PLACE, PLACE), ARCHS[arch]) is None


def every_kind():
    """Yield each type's configurations of gfx942 with two layouts, dealt in turn; a few of others.

    A tile of 128 bytes' rows takes the layout of an operand that is adjacent along k.
    """
    for number, dtype in enumerate(RESULTS):
        for turn, config in enumerate(direct_to_register.configs(dtype, "gfx942")):
            if dtype == "e5m2fnuz" and turn % 2 == 0:  # the other format has its tile
                continue
            layouts = [x for x in LAYOUTS if takes(config, "gfx942", dtype, x)]
            for extra in range(2):
                layout = layouts[(number + 2 * extra + turn) % len(layouts)]
                yield pytest.param(
                    "gfx942", dtype, config, layout, id=f"gfx942-{dtype}-{layout}-{turn}"
                )
    for arch, dtype, layout, turn in (
        ("gfx90a", "bf16", "kn", 0),
        ("gfx90a", "i8", "kk", 1),
        ("gfx950", "bf16", "mn", 1),
        ("gfx950", "i8", "kk", 0),
        ("gfx950", "e4m3fn", "mk", 0),
        ("gfx950", "e5m2", "mn", 3),
    ):
        config = direct_to_register.configs(dtype, arch)[turn]
        yield pytest.param(arch, dtype, config, layout, id=f"{arch}-{dtype}-{layout}-{turn}")


@pytest.mark.slow
@pytest.mark.one_in(6)
@pytest.mark.covering(apart_from=("tile_m", "tile_n", "waves_m", "waves_n", "waves_per_simd"))
@pytest.mark.parametrize(("arch", "dtype", "config", "layout"), list(every_kind()))
def test_exact_without_spills(arch, dtype, config, layout):
    case = skinny(config, arch, dtype, layout)
    case.run().check_exact()
    resources = compile_kernel(case.problem(PLACE, PLACE, PLACE), config, arch).resources
    assert resources.scratch_bytes == resources.vgpr_spills == resources.sgpr_spills == 0


@pytest.mark.one_in(4)
@pytest.mark.covering
@pytest.mark.parametrize("layout", ["kn", "mk"])
@pytest.mark.parametrize("turn", [0, 1], ids=["wide", "tall"])
def test_every_extent_of_the_short_side_and_tail_of_k(turn, layout):
    """One to sixteen rows; k ends in each step and each wave's slice, after whole tiles or not."""
    config = direct_to_register.configs("bf16", "gfx942")[turn]
    for short, k in ((1, 1), (2, 31), (15, 33), (16, 64), (16, 200), (3, config.tile_k), (1, 520)):
        skinny(config, "gfx942", "bf16", layout, short=short, k=k, seed=k).run().check_exact()


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("layout", "short", "k"), [("kk", 1, 1), ("kn", 16, 67), ("mn", 15, 333), ("mk", 3, 258)]
)
def test_rows_of_bytes_end_in_any_dword(layout, short, k):
    """K ends a dword, a vector and a wave's slice anywhere; rows are one, a few and sixteen."""
    config = direct_to_register.configs("e4m3fnuz", "gfx942")[2]
    skinny(config, "gfx942", "e4m3fnuz", layout, short=short, k=k, seed=k).run().check_exact()


@pytest.mark.slow
@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("arch", "a", "b"), [("gfx942", "e5m2fnuz", "e4m3fnuz"), ("gfx950", "e4m3fn", "e5m2")]
)
def test_pairs_of_8_bit_formats(arch, a, b):
    """Whichever of the two is the long operand, which the instruction takes first."""
    for config, layout in zip(direct_to_register.configs(a, arch)[2:], ("kn", "mk"), strict=True):
        skinny(config, arch, a, layout, b_dtype=b, out_dtype="f32").run().check_exact()


def test_xf32_cuts_its_operands():
    config = direct_to_register.configs("tf32", "gfx942")[0]
    case = skinny(config, "gfx942", "tf32", "kn", integers=False)
    result = case.run()
    testing.assert_gemm_close(result.c, *case.operands(), precision="xf32")
    with pytest.raises(AssertionError, match="are wrong"):
        testing.assert_gemm_close(result.c, *case.operands())


@pytest.mark.one_in(4)
@pytest.mark.parametrize("partition", [{"split_k": 3}, {"split_k": 2, "atomic": True}], ids=str)
def test_parts_of_k(partition):
    config = replace(direct_to_register.configs("bf16", "gfx942")[0], **partition)
    skinny(config, "gfx942", "bf16", "kn", batch=(2,)).run().check_exact()


def test_error_bound_in_the_same_bits_each_time():
    """The waves' sums are added in one order, whichever wave is the first."""
    config = direct_to_register.configs("bf16", "gfx942")[0]
    case = skinny(config, "gfx942", "bf16", "kk", integers=False, out_dtype="f32")
    results = [case.run(order=order) for order in ("lockstep", "reverse", ("random", 1))]
    testing.assert_gemm_close(results[0].c, *case.operands())
    assert len({result.buffer.tobytes() for result in results}) == 1


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("turn", "layout"), [(0, "kk"), (0, "kn"), (1, "kk"), (1, "mk")])
def test_the_long_operand_moves_by_16_bytes_in_whole_lines(turn, layout):
    """In the loop, one wave reads each whole line of 128 bytes, once from L2.

    Adjacent along k, two loads of a wave have half a line each.
    """
    config = direct_to_register.configs("bf16", "gfx942")[turn]
    long = 128
    m, n = (16, long) if turn == 0 else (long, 16)
    case = with_layout(Case(config, "gfx942", m=m, n=n, k=9 * config.tile_k), layout)
    stats = case.run(profile=True).stats
    along_k = layout[1 if turn == 0 else 0] == "k"
    line = 64 if along_k else 128
    loads = [
        counts
        for pc, counts in stats.global_lines.items()
        if stats.executions[pc] == 4 * stats.num_waves and counts[0]
    ]
    of_long = [
        lanes for _, lanes, num_bytes, _, lines in loads if num_bytes == 16 * lanes == line * lines
    ]
    assert len(of_long) >= 32  # two stages of two steps of eight vectors
    # The loads of the last two tiles, which do not exist, have no lanes.
    assert all(lanes == 3 * stats.num_waves * 64 for lanes in of_long)


def test_what_is_refused():
    config = direct_to_register.configs("bf16", "gfx942")[0]
    problem = skinny(config, "gfx942", "bf16", "kn").problem(PLACE, PLACE, PLACE)
    for changes, other, message in (
        ({}, {"m": 17}, "m = 17: direct_to_register is for at most 16"),
        ({}, {"a_align": 2}, "a is aligned to 2 bytes"),
        ({"waves_n": 2}, {}, "4 waves on the other"),
        ({"tile_k": 96}, {}, "tile_k = 96 is not 4 slices"),
        ({"mma_m": 32, "mma_n": 32, "mma_k": 8}, {}, "the short side is 16"),
        ({"tile_n": 96}, {}, "tile_n = 96 is not whole vectors of 128 rows"),
    ):
        objection = check(replace(config, **changes), replace(problem, **other), ARCHS["gfx942"])
        assert objection is not None
        assert message in objection


def test_a_step_must_feed_the_instruction():
    """16x16x128 of 8-bit floats takes two steps of 64 bytes: it used to be built, and in vain."""
    base = direct_to_register.configs("e4m3fn", "gfx950")[0]
    case = skinny(base, "gfx950", "e4m3fn", "kk")
    problem = case.problem(PLACE, PLACE, PLACE)
    objection = check(replace(base, mma_k=128), problem, ARCHS["gfx950"])
    assert objection == "a 16x16x128 instruction takes 128 bytes of a row, and a step has 64"
