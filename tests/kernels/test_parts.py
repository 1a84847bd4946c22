"""Tiles that workgroups share: split_k and stream_k, with each mainloop, type and order of memory.

The kernel that adds the parts runs after the GEMM, as it does for users (tests.kernels.gemm).
"""

import ctypes
import functools
import itertools
from dataclasses import replace

import pytest

from cupygemm import testing
from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.compile import compile_kernel
from cupygemm._backends.cdna.mainloops import MAINLOOPS, configs_for
from cupygemm._backends.cdna.split import num_slots, slots_written, stream_tiles
from cupygemm._records.problem import Epilogue
from tests.kernels.gemm import Case, Placement, config_of, with_layout
from tests.kernels.host import compile_for_host
from tests.problems import problem_of

LAYOUTS = ["kk", "kn", "mk", "mn"]
RESULTS = {"bf16": "bf16", "f16": "f32", "f32": "f32", "f64": "f64", "i8": "i32"}
# Six parts are more than the adding waves; 5 workgroups share 6 tiles as one round and a tile in 5
# pieces, 4 as one round and two tiles that are cut at their ends and within.
PARTITIONS = {
    "two": {"split_k": 2},
    "six": {"split_k": 6},
    "atomic": {"split_k": 3, "atomic": True},
    "stream4": {"stream_k": 4},
    "stream5": {"stream_k": 5},
    "stream40": {"stream_k": 40},
}


def shared(config, arch, dtype, layout, partition, **changes):
    """Return a case of six tiles, ragged on every side, seven steps deep, rows at odd addresses."""
    m, n, k = 2 * config.tile_m + 5, config.tile_n + 3, 6 * config.tile_k + 9
    case = Case(
        replace(config, **partition), arch, m=m, n=n, k=k, dtype=dtype, out_dtype=RESULTS[dtype]
    )
    case = with_layout(replace(case, **changes), layout)
    if dtype != "i8":
        return replace(case, pads=(1, 3, 5), offsets=(1, 1, 1))
    rows = (case.k if layout[0] == "k" else case.m, case.n if layout[1] == "n" else case.k)
    return replace(case, pads=(-rows[0] % 4, -rows[1] % 4 + 4, 5), offsets=(4, 4, 1))


def every_kind():
    """Yield each type's partitions on gfx942, and a third on the others, layouts dealt in turn.

    Partitions that differ in numbers alone have a kernel in common, and so a layout.
    """
    for number, dtype in enumerate(RESULTS):
        for turn, kind in enumerate(("split_k", "atomic", "stream_k")):
            names = [name for name, changes in PARTITIONS.items() if list(changes)[-1] == kind]
            for place, arch in enumerate(ARCHS):
                if arch == "gfx942" or turn == (number + place) % 3:
                    layout = LAYOUTS[(number + turn + place) % 4]
                    for name in names:
                        yield pytest.param(
                            arch, dtype, layout, name, id=f"{arch}-{dtype}-{layout}-{name}"
                        )


@pytest.mark.slow
@pytest.mark.one_in(4)
@pytest.mark.covering
@pytest.mark.parametrize(("arch", "dtype", "layout", "partition"), list(every_kind()))
def test_exact(arch, dtype, layout, partition):
    config = config_of(arch, 32, 32, dtype=dtype)
    shared(config, arch, dtype, layout, PARTITIONS[partition]).run().check_exact()


def suitable(name, arch, partition):
    """Return a case of a mainloop's smallest tiles, six or two, in a layout that it takes."""
    place = Placement(64, 64, (0, 0, 0), 0)
    configs = sorted(MAINLOOPS[name].configs("bf16", arch), key=lambda c: c.tile_m * c.tile_n)
    for base, layout in itertools.product(configs, LAYOUTS):
        config = replace(base, **partition)
        m, n = 2 * config.tile_m + 8, config.tile_n + 8
        for rows in (m, 12):  # of few rows, two tiles
            case = Case(config, arch, m=rows, n=n, k=6 * config.tile_k + 16)
            case = with_layout(case, layout)
            if check(config, case.problem(place, place, place), ARCHS[arch]) is None:
                return case
    return None


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize("partition", ["stream5", "six"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", MAINLOOPS)
def test_every_mainloop_takes_part(name, arch, partition):
    """Its LDS and its barriers must be as they were when a persistent kernel begins a tile."""
    case = suitable(name, arch, PARTITIONS[partition])
    if case is None:
        pytest.skip(f"{name} on {arch} has none for {PARTITIONS[partition]}")
    case.run().check_exact()


@pytest.mark.one_in(4)
@pytest.mark.covering
@pytest.mark.parametrize("partition", ["two", "atomic", "stream5"])
@pytest.mark.parametrize("batch", [(2, 3), (3,)])
def test_batches(batch, partition):
    """A persistent grid counts the tiles of all batches; parts of k come batch by batch."""
    config = config_of("gfx942", 32, 32)
    case = Case(
        replace(config, **PARTITIONS[partition]),
        "gfx942",
        m=40,
        n=30,
        k=3 * config.tile_k - 5,
        batch=batch,
        pads=(1, 2, 3),
    )
    case.run().check_exact()


@pytest.mark.one_in(4)
@pytest.mark.covering
@pytest.mark.parametrize("out_dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("partition", ["two", "stream5"])
def test_other_results(partition, out_dtype):
    config = replace(config_of("gfx942", 64, 64, 32), **PARTITIONS[partition])
    case = Case(
        config, "gfx942", m=130, n=70, k=3 * config.tile_k + 8, out_dtype=out_dtype, dtype="f16"
    )
    case.run().check_exact()


@pytest.mark.one_in(4)
@pytest.mark.covering
@pytest.mark.parametrize("dtype", ["bf16", "f64"])
@pytest.mark.parametrize("partition", ["six", "atomic", "stream4"])
def test_error_bound(partition, dtype):
    """The parts' sums are kept as they are: one rounding to the result, after the last addition."""
    config = config_of("gfx942", 32, 32, dtype=dtype)
    case = shared(config, "gfx942", dtype, "kn", PARTITIONS[partition], integers=False)
    result = case.run()
    result.check_guards()
    testing.assert_gemm_close(result.c, *case.operands())


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.covering
@pytest.mark.parametrize("dtype", ["f16", "f64", "i8"])
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_parts_are_added_to_the_result_itself(dtype, batch):
    """A kernel stores zeros first, so earlier contents of C do not count. Neighbours are kept."""
    config = replace(config_of("gfx942", 64, 64, dtype=dtype), **PARTITIONS["atomic"])
    case = shared(config, "gfx942", dtype, "kn", PARTITIONS["atomic"], batch=batch, m=70, n=67)
    case.run(order=("random", 3)).check_exact()


@pytest.mark.parametrize("partition", ["six", "stream4"])
def test_the_same_bits_each_time(partition):
    """However the waves interleave; a missing barrier would show as other bits, or as a hazard."""
    config = replace(config_of("gfx942", 32, 32), **PARTITIONS[partition])
    case = Case(config, "gfx942", m=40, n=30, k=6 * config.tile_k, integers=False, out_dtype="f32")
    bits = [
        case.run(order=order).buffer.tobytes() for order in ("lockstep", "reverse", ("random", 1))
    ]
    assert len(set(bits)) == 1


def test_one_workgroup_may_have_a_shared_tile_to_itself():
    """Two tiles of one step for three workgroups: nobody shares, and the tiles are stored whole."""
    config = replace(config_of("gfx942", 32, 32), stream_k=3)
    case = Case(config, "gfx942", m=40, n=30, k=5)
    case.run().check_exact()


def test_a_workgroup_beyond_the_steps_has_nothing():
    config = replace(config_of("gfx942", 32, 32), stream_k=40)
    Case(config, "gfx942", m=40, n=30, k=3 * config.tile_k).run().check_exact()


@pytest.mark.one_in(4)
@pytest.mark.covering
@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize(("arch", "dtype"), [("gfx942", "bf16"), ("gfx90a", "f64")])
@pytest.mark.parametrize("partition", ["six", "stream4"])
def test_no_spills(arch, dtype, index, partition):
    """A persistent kernel's state leaves the mainloop the registers that it needs."""
    config = replace(configs_for(dtype, arch)[index], **PARTITIONS[partition])
    problem = problem_of(999, 999, 999, dtype, RESULTS[dtype], majors="mk")
    resources = compile_kernel(problem, config, arch).resources
    assert resources.scratch_bytes == resources.vgpr_spills == resources.sgpr_spills == 0


def test_what_is_refused():
    config = config_of("gfx942", 64, 64)
    problem = problem_of(256, 256, 4 * config.tile_k)
    for changes, message in (
        ({"split_k": 5}, "split_k = 5 exceeds the 4 steps of k"),
        ({"split_k": 0}, "at least 1 and 0"),
        ({"split_k": 2, "stream_k": 3}, "tiles are cut one way"),
        ({"stream_k": 8}, "fill the 8 workgroups of stream_k evenly"),
        ({"atomic": True}, "split_k = 1"),
    ):
        assert message in check(replace(config, **changes), problem, ARCHS["gfx942"])
    assert check(replace(config, split_k=4), problem, ARCHS["gfx942"]) is None


def test_the_workspace_holds_what_is_cut():
    """16 tiles: in 3 parts each, or one round of 10 workgroups and 6 tiles between them."""
    config = config_of("gfx942", 64, 64)
    problem = problem_of(256, 256, 999)
    assert num_slots(replace(config, split_k=3), problem) == 48
    assert num_slots(replace(config, split_k=3, atomic=True), problem) == 16
    assert num_slots(config, problem) == 0
    into_c = replace(problem, out_dtype="f32")
    assert num_slots(replace(config, split_k=3, atomic=True), into_c) == 0
    assert num_slots(replace(config, split_k=3), into_c) == 48
    epilogue = replace(into_c, epilogue=Epilogue(alpha=True))
    assert num_slots(replace(config, split_k=3, atomic=True), epilogue) == 16
    stream = replace(config, stream_k=10)
    assert stream_tiles(stream, problem) == 6
    assert num_slots(stream, problem) == 20 > slots_written(stream, problem)


@functools.cache
def shares() -> ctypes.CDLL:
    code = """
using namespace cupygemm;
extern "C" void share(unsigned count, unsigned takers, unsigned taker, unsigned *out) {
    const Share share = share_of(count, takers, taker);
    out[0] = share.begin, out[1] = share.end;
}
extern "C" unsigned taker(unsigned count, unsigned takers, unsigned thing) {
    return taker_of(count, takers, thing);
}
"""
    return compile_for_host("common/shares.hpp", code)


@pytest.mark.parametrize(("count", "takers"), [(0, 3), (1, 4), (7, 7), (8, 3), (100, 7), (5, 1)])
def test_shares_are_equal_and_everything_is_taken(count, takers):
    out = (ctypes.c_uint32 * 2)()
    next_one = 0
    for taker in range(takers):
        shares().share(count, takers, taker, out)
        assert out[0] == next_one
        assert out[1] - out[0] in (count // takers, -(-count // takers))
        assert all(shares().taker(count, takers, thing) == taker for thing in range(*out))
        next_one = out[1]
    assert next_one == count
