"""The maps of tiles that reads transpose: complete, in agreement, without bank conflicts.

As test_layout.py does, the test compiles the very maps for this machine. A transposing read is
served in two phases of 32 lanes and moves elements as the emulator's tests of ds_read_b64_tr_b8 and
ds_read_b64_tr_b16 state.
"""

from __future__ import annotations

import ctypes
import functools
import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.config import WAVE_SIZE
from cupygemm._backends.cdna.mainloops import ping_pong, register_double_buffer
from tests.kernels.host import compile_for_host
from tests.kernels.test_direct_layout import READ_TABLE
from tests.kernels.test_layout import STRUCT, Operand, conflicts
from tests.tables import rows_of

BANKS = ARCHS["gfx950"].lds_banks
LANE = np.arange(WAVE_SIZE)


def operands() -> list[tuple[Operand, int]]:
    """Return every row-major operand, and the parts that its rows are cut into."""
    found: dict[tuple[Operand, int], None] = {}
    for mainloop, element in itertools.product((register_double_buffer, ping_pong), ("i8", "bf16")):
        for config, side in itertools.product(mainloop.configs(element, "gfx950"), ("m", "n")):
            operand = Operand.of(config, side, major="row", element=element)
            if config.mma_m == 16 and operand.num_vectors > 1:
                found[operand, mainloop.ROW_BANDS if side == "m" else 1] = None
    return list(found)


CASES = rows_of(
    lambda: (
        pytest.param(i, id=f"{o.element}-{o.rows}x{o.tile_k}-{o.threads}-{p}")
        for i, (o, p) in enumerate(operands())
    )
)

_CODE = """
template <class Operand> void write_table(unsigned *out) {
    using Map = cupygemm::VectorMap<Operand>;
    constexpr unsigned threads = Operand::num_threads;
    for (unsigned i = 0; i < Map::num_vectors; ++i)
        for (unsigned thread = 0; thread < threads; ++thread) {
            *out++ = Map::row_of(thread) + Map::row_of(i * threads);
            *out++ = Map::k_of(thread) + Map::k_of(i * threads);
            *out++ = Map::Layout::combine(Map::lds_of(thread), Map::lds_of(i * threads));
            *out++ = Map::swaps_halves(i);
        }
}
"""
_OPERAND = (
    STRUCT
    + """
    static constexpr bool dword_aligned = true;
}};
static_assert(cupygemm::transposed_by_reads<Operand{index}>(), "");
extern "C" void writes_{index}(unsigned *out) {{ write_table<Operand{index}>(out); }}
using Reads{index} = cupygemm::TransposedReadMap<Operand{index}, {parts}>;
extern "C" void reads_{index}(unsigned *out) {{ read_table<Operand{index}, Reads{index}>(out); }}
"""
)


@functools.cache
def library() -> ctypes.CDLL:
    """Compile the maps of every operand for this machine."""
    code = _CODE + READ_TABLE
    for index, (operand, parts) in enumerate(operands()):
        code += _OPERAND.format(index=index, parts=parts, **vars(operand))
    return compile_for_host("cdna/transposed_operand.hpp", code, defines=("__gfx950__",))


def writes(index: int) -> NDArray[np.int64]:
    """Return (vector of a thread, thread, [row, k, LDS byte, whether its halves are swapped])."""
    operand, _ = operands()[index]
    table = np.zeros((operand.num_vectors, operand.threads, 4), np.uint32)
    getattr(library(), f"writes_{index}")(table.ctypes.data_as(ctypes.c_void_p))
    return table.astype(np.int64)


def reads(index: int) -> NDArray[np.int64]:
    """Return the LDS byte that a lane points at: (wave, fragment, step, half, lane)."""
    operand, _ = operands()[index]
    waves, fragments = operand.rows // operand.wave_rows, operand.wave_rows // 16
    steps = operand.tile_k // (4 * operand.per_vector)
    table = np.zeros((waves, fragments, steps, 2, WAVE_SIZE), np.uint32)
    getattr(library(), f"reads_{index}")(table.ctypes.data_as(ctypes.c_void_p))
    return table.astype(np.int64)


def held(index: int) -> NDArray[np.int64]:
    """Return (row, k) of each element of LDS, after the dwords of the vectors are arranged."""
    operand, _ = operands()[index]
    lds = np.full((operand.rows * operand.tile_k, 2), -1, np.int64)
    order = {"i8": {0: (0, 2, 1, 3), 1: (1, 3, 0, 2)}, "bf16": {0: (0, 1, 2, 3), 1: (2, 3, 0, 1)}}[
        operand.element
    ]
    count = operand.per_vector
    for row, k, byte, swapped in writes(index).reshape(-1, 4):
        rows = row + count // 4 * np.array(order[swapped])[:, None] + np.arange(count // 4)
        here = slice(byte // operand.itemsize, byte // operand.itemsize + count)
        assert (lds[here] == -1).all()
        lds[here] = np.stack([rows.ravel(), np.full(count, k)], -1)
    return lds


@pytest.mark.parametrize("index", CASES)
def test_reads_give_the_rows_and_k_of_a_fragment(index: int) -> None:
    """Lane l gets LDS row l % 16 of its fragment and the k's that a K-major tile would give it."""
    operand, parts = operands()[index]
    per_read = operand.per_vector // 2  # elements that a lane points at, and gets
    together = 16 // per_read  # lanes that point at one k
    source = (LANE & ~15)[:, None] + together * np.arange(per_read)
    source = source + LANE[:, None] % 16 // per_read
    pointed = reads(index) // operand.itemsize
    got = held(index)[pointed[..., source] + (LANE % per_read)[:, None]]
    got = np.moveaxis(got, -4, -3)  # (wave, fragment, step, lane, half, element, [row, k])
    row, k = np.moveaxis(got.reshape(*got.shape[:4], operand.per_vector, 2), -1, 0)

    wave, fragment, step = np.ogrid[: row.shape[0], : row.shape[1], : row.shape[2]]
    per_part = row.shape[1] // parts
    first = wave * (operand.wave_rows // parts) + fragment % per_part * 16
    first = first + fragment // per_part * (operand.rows // parts)
    order = np.array([library().tile_row(r) for r in range(operand.rows)])
    expected = order[first[..., None] + LANE % 16][..., None]
    np.testing.assert_array_equal(row, np.broadcast_to(expected, row.shape))
    chunk = 4 * step[..., None] + LANE // 16
    expected = operand.per_vector * chunk[..., None] + np.arange(operand.per_vector)
    np.testing.assert_array_equal(k, np.broadcast_to(expected, k.shape))


@pytest.mark.parametrize("index", CASES)
def test_nothing_has_bank_conflicts(index: int) -> None:
    for instruction in reads(index).reshape(-1, WAVE_SIZE).astype(np.uint32):
        assert conflicts(instruction, 8, BANKS, read=True) == 0
    for instruction in writes(index)[..., 2].reshape(-1, WAVE_SIZE).astype(np.uint32):
        assert conflicts(instruction, 16, BANKS, read=False) == 0


@pytest.mark.parametrize("index", CASES)
def test_neighbouring_lanes_read_neighbouring_memory(index: int) -> None:
    """Eight lanes cover 128 bytes of a k; fewer do where a tile has fewer rows."""
    operand, _ = operands()[index]
    row, k = writes(index)[..., 0], writes(index)[..., 1]
    per_vector = operand.per_vector
    together = min(operand.rows // per_vector, 8)
    row, k = row.reshape(-1, together), k.reshape(-1, together)
    assert (np.diff(row, axis=1) == per_vector).all()
    assert (row[:, 0] % (per_vector * together) == 0).all()
    assert (np.ptp(k, axis=1) == 0).all()
