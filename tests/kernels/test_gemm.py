"""The GEMM kernel itself, launched by hand on the emulator: every target in one process.

What the API's tests cannot arrange: allocations that end with the last element, NaN between rows,
absurd pitches, offsets beyond 32 bits, the order of waves, and the profile of each instruction.
"""

from dataclasses import replace

import numpy as np
import pytest

from cupygemm import testing
from cupygemm._backends.cdna.config import BATCH_GRID_Y
from cupygemm._backends.cdna.mainloops import register_double_buffer
from cupygemm.emulator.memory import allocations
from cupygemm.emulator.memory.allocations import Memory
from tests.kernels.gemm import NUMPY_DTYPE, Case, Placement, config_of, with_layout
from tests.tables import rows_of

LAYOUTS = ["kk", "kn", "mk", "mn"]


def small():
    """Return the configuration of the smallest square tile on gfx942."""
    return config_of("gfx942", 64, 64)


def sample(arch):
    """Return the configurations of one shape each: skinny, square, large instruction."""
    return [config_of(arch, 32, 64), config_of(arch, 128, 64), config_of(arch, 64, 64, 32)]


@pytest.mark.one_in(4)
@pytest.mark.covering
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("arch", ["gfx90a", "gfx950"])
@pytest.mark.parametrize("index", range(3), ids=["skinny", "square", "large"])
def test_exact_on_the_other_targets(arch, index, layout):
    config = sample(arch)[index]
    case = Case(config, arch, m=config.tile_m + 5, n=config.tile_n - 3, k=2 * config.tile_k + 9)
    case = replace(case, dtype=("bf16", "f16")[index % 2], out_dtype=("f32", "bf16", "f16")[index])
    with_layout(case, layout).run().check_exact()


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("k", [1, 8, 63, 65, 130])
def test_nothing_beside_the_matrices_is_read_or_written(layout, k):
    """Rows lie apart by odd pads, NaN between them, and memory ends with the last element."""
    case = Case(small(), "gfx942", m=65, n=67, k=k, pads=(1, 3, 5), offsets=(1, 1, 1), seed=k)
    with_layout(case, layout).run().check_exact()


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("m", "n"), [(65, 67), (63, 129), (64, 64)])
def test_an_odd_edge_shares_its_dword_with_the_end_of_memory(layout, m, n):
    """Rows start at dwords and k is whole, so only the last half-dword of a tile is ragged."""
    case = Case(small(), "gfx942", m=m, n=n, k=128, pads=(m % 2, n % 2, 1))
    with_layout(case, layout).run().check_exact()


@pytest.mark.covering
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("offset", "pad"), [(0, 1), (0, 2), (1, 0), (1, 1), (2, 4), (4, 0), (8, 0)]
)
def test_every_alignment(layout, offset, pad):
    """All elements but the last few of a row are multiples of 8: the pad decides alignment."""
    case = Case(
        small(), "gfx942", m=72, n=72, k=72, pads=(pad,) * 3, offsets=(offset,) * 3, dtype="f16"
    )
    with_layout(case, layout).run().check_exact()


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 200, 3), (200, 1, 70), (3, 5, 300)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_thin_problems(m, n, k, layout):
    config = config_of("gfx942", 32, 32)
    case = Case(config, "gfx942", m=m, n=n, k=k, out_dtype="f32", offsets=(1, 0, 3))
    with_layout(case, layout).run().check_exact()


@pytest.mark.one_in(4)
@pytest.mark.covering(apart_from=("tile_m", "tile_n", "waves_m", "waves_n", "waves_per_simd"))
@pytest.mark.parametrize("out_dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize(
    "config",
    rows_of(lambda: register_double_buffer.configs("bf16", "gfx942"), name=lambda c: c.name),
)
def test_error_bound(config, out_dtype):
    """Each sum within gamma(k) of its products' magnitude, and rounded once."""
    case = Case(
        config,
        "gfx942",
        m=40,
        n=70,
        k=3 * config.tile_k - 11,
        out_dtype=out_dtype,
        dtype="f16" if out_dtype == "f16" else "bf16",
        pads=(1, 0, 0),
        integers=False,
    )
    result = case.run()
    result.check_guards()
    testing.assert_gemm_close(result.c, *case.operands())


def test_batches_along_three_axes():
    case = Case(small(), "gfx942", m=20, n=30, k=40, batch=(2, 3, 2), pads=(1, 2, 3))
    case.run().check_exact()


def test_a_batch_continues_along_z():
    """A grid's y ends at 65535: entry y + 32768 z; what the batch does not fill returns at once."""
    case = Case(small(), "gfx942", m=1, n=1, k=2, batch=(BATCH_GRID_Y + 1,), out_dtype="f32")
    values = NUMPY_DTYPE["bf16"]
    memory = Memory()
    batch = BATCH_GRID_Y + 1
    a = np.zeros((batch + 1, 2), values)
    a[:, 0] = 1
    a[BATCH_GRID_Y:, 0] = 5
    b = np.full(2, 3, values)
    addresses = []
    for array in (a, b, np.full(batch + 1, -1, np.float32)):
        addresses.append(memory.malloc(array.nbytes))
        memory.write(addresses[-1], array.view(np.uint8).tobytes())
    places = (
        Placement(addresses[0], 2, (0, 0, 2), 4),
        Placement(addresses[1], 1, (0, 0, 0), 4),
        Placement(addresses[2], 1, (0, 0, 1), 4),
    )
    # The first two entries of each plane; the fourth is past the end.
    case.launch_kernel(memory, *places, grid_of=lambda *_: (1, 2, 2))
    c = np.frombuffer(memory.read(addresses[2], 4 * (batch + 1)), np.float32)
    np.testing.assert_array_equal(c[[0, 1, 2, batch - 1, batch]], [3, 3, -1, 15, -1])
    memory.close()


def test_pitches_of_lone_rows_mean_nothing():
    """The pitch of an axis of extent 1 may be anything: zero, huge, or the whole address space."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, 100).astype(NUMPY_DTYPE["f16"]) for _ in range(2))
    for pitch in (0, 1 << 31, (1 << 62) + 1):
        memory = Memory()
        addresses = [memory.malloc(200), memory.malloc(200), memory.malloc(4)]
        memory.write(addresses[0], a.view(np.uint8).tobytes())
        memory.write(addresses[1], b.view(np.uint8).tobytes())
        case = Case(small(), "gfx942", m=1, n=1, k=100, b_major="k", dtype="f16", out_dtype="f32")
        none = (0, 0, 0)
        places = [Placement(at, pitch, none, 200) for at in addresses]
        case.launch_kernel(memory, *places)
        c = np.frombuffer(memory.read(addresses[2], 4), np.float32)
        assert c[0] == a.astype(np.float64) @ b.astype(np.float64)
        memory.close()


def test_an_operand_may_be_broadcast_along_its_rows():
    """Pitch 0: every row of A is the same."""
    rng = np.random.default_rng(2)
    row = rng.integers(-3, 4, 77).astype(NUMPY_DTYPE["bf16"])
    b = rng.integers(-3, 4, (77, 33)).astype(NUMPY_DTYPE["bf16"])
    memory = Memory()
    addresses = [memory.malloc(x) for x in (row.nbytes, b.nbytes, 90 * 33 * 4)]
    memory.write(addresses[0], row.view(np.uint8).tobytes())
    memory.write(addresses[1], b.view(np.uint8).tobytes())
    case = Case(small(), "gfx942", m=90, n=33, k=77, out_dtype="f32")
    none = (0, 0, 0)
    places = [
        Placement(at, pitch, none, 0) for at, pitch in zip(addresses, (0, 33, 33), strict=True)
    ]
    case.launch_kernel(memory, *places)
    c = np.frombuffer(memory.read(addresses[2], 90 * 33 * 4), np.float32).reshape(90, 33)
    expected = row.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(c, np.tile(expected, (90, 1)))
    memory.close()


@pytest.mark.one_in(5)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_matrices_beyond_4_gib(monkeypatch, layout):
    """Tiles are reached by 64-bit arithmetic: rows 66 MB apart, of which few pages are touched."""
    monkeypatch.setattr(allocations, "check_host", lambda size: None)
    monkeypatch.setattr(Memory, "poison", lambda self, start, size: None)
    config = config_of("gfx942", 32, 64)
    pitch_m, pitch_k = 33_000_000, 8_300_001
    m, n, k = 70, 9, 330
    rng = np.random.default_rng(3)
    a = rng.integers(-3, 4, (m, k)).astype(NUMPY_DTYPE["bf16"])
    b = rng.integers(-3, 4, (k, n)).astype(NUMPY_DTYPE["bf16"])
    memory = Memory()
    places = []
    for stored, along_k in (
        (a if layout[0] == "k" else a.T, layout[0] == "m"),
        (b if layout[1] == "n" else b.T, layout[1] == "n"),
    ):
        pitch = pitch_k if along_k else 64 * (pitch_m // 128)
        span = ((stored.shape[0] - 1) * pitch + stored.shape[1]) * 2
        address = memory.malloc(span)
        for row, values in enumerate(np.ascontiguousarray(stored)):
            memory.write(address + 2 * row * pitch, values.view(np.uint8).tobytes())
        places.append(Placement(address, pitch, (0, 0, 0), span))
    span = ((m - 1) * 16_000_000 + n) * 4
    address = memory.malloc(span)
    places.append(Placement(address, 16_000_000, (0, 0, 0), span))
    assert max(place.span for place in places) > 1 << 32
    case = Case(config, "gfx942", m=m, n=n, k=k, out_dtype="f32")
    with_layout(case, layout).launch_kernel(memory, *places)
    c = [
        np.frombuffer(memory.read(address + 4 * row * 16_000_000, 4 * n), np.float32)
        for row in range(m)
    ]
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64))
    memory.close()


@pytest.mark.parametrize("tile", [(64, 64), (32, 64)], ids=["one", "two"])
def test_the_order_of_waves_does_not_matter(tile):
    """A missing barrier would show as other bits, or as a hazard, for one of the orders."""
    config = config_of("gfx942", *tile)
    case = Case(config, "gfx942", m=70, n=90, k=5 * config.tile_k + 3, integers=False)
    bits = [
        case.run(order=order).buffer.view(np.uint16)
        for order in ("lockstep", "forward", "reverse", ("random", 1), ("random", 2))
    ]
    for other in bits[1:]:
        np.testing.assert_array_equal(bits[0], other)


@pytest.mark.one_in(4)
@pytest.mark.covering(apart_from=("tile_m", "tile_n", "waves_m", "waves_n", "waves_per_simd"))
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("arch", "config"),
    rows_of(
        lambda: (
            pytest.param(arch, config, id=f"{arch}-{config.name}")
            for arch in ("gfx942", "gfx950")
            for config in register_double_buffer.configs("bf16", arch)[2::2]
        ),
        width=2,
    ),
)
def test_no_bank_conflicts(arch, config, layout):
    """Over the whole kernel, tails included, each phase of each LDS access takes one cycle."""
    case = Case(config, arch, m=config.tile_m, n=config.tile_n, k=config.tile_k + 8)
    conflicts = with_layout(case, layout).run(profile=True).stats.lds_conflicts
    assert conflicts
    assert [extra for *_, extra in conflicts.values() if extra] == []


@pytest.mark.one_in(5)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_whole_tiles_move_whole_lines(layout):
    """Every load of the loop asks for 16 bytes per lane, and for all of each 128-byte line."""
    config = config_of("gfx942", 128, 128)
    case = Case(config, "gfx942", m=128, n=128, k=5 * 64)
    stats = with_layout(case, layout).run(profile=True).stats
    loads = {
        pc: counts
        for pc, counts in stats.global_lines.items()
        if stats.executions[pc] == 4 * stats.num_waves and counts[0]
    }
    assert len(loads) == 8
    for _, lanes, num_bytes, _, lines in loads.values():
        assert num_bytes == 16 * lanes == 128 * lines
