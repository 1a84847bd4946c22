"""The operand maps of the kernels: complete, in agreement, and without bank conflicts.

The maps are plain arithmetic, so the test compiles kernels/cdna/operand.hpp for this machine and
asks the very code that the kernels use. The phases are the published ones (ROCm's Composable Kernel
and AMD's blogs for 32 banks; HipKittens, arXiv 2511.08083, measured the reads of 64 banks).
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from cupygemm._backends.cdna.config import DWORD_BYTES, VECTOR_BYTES, GemmConfig
from cupygemm._backends.cdna.mainloops import register_double_buffer
from cupygemm._records.dtypes import ITEMSIZE
from tests.kernels.host import compile_for_host
from tests.tables import rows_of

WAVE = 64
BANKS = {"gfx90a": 32, "gfx942": 32, "gfx950": 64}


@dataclass(frozen=True)
class Operand:
    """A tile of one operand as the kernels describe it."""

    major: str
    rows: int
    wave_rows: int
    mma_rows: int
    tile_k: int
    threads: int
    element: str

    @classmethod
    def of(cls, config: GemmConfig, side: str, *, major: str, element: str) -> Operand:
        """Return operand A (side "m") or B ("n") of a configuration."""
        rows, waves = getattr(config, f"tile_{side}"), getattr(config, f"waves_{side}")
        return cls(
            major=major,
            rows=rows,
            wave_rows=rows // waves,
            mma_rows=getattr(config, f"mma_{side}"),
            tile_k=config.tile_k,
            threads=config.num_threads,
            element=element,
        )

    @property
    def itemsize(self) -> int:
        """Return the bytes of an element."""
        return ITEMSIZE[self.element]

    @property
    def per_vector(self) -> int:
        """Return the elements of a global load."""
        return VECTOR_BYTES // self.itemsize

    @property
    def num_vectors(self) -> int:
        """Return the global loads of a thread."""
        return self.rows * self.tile_k // self.per_vector // self.threads


def operands(arch: str) -> list[Operand]:
    """Return every operand of the architecture's configurations."""
    found: dict[Operand, None] = {}
    configs = [
        (e, c)
        for e in ("bf16", "f32", "f64", "i8", "c128")
        for c in register_double_buffer.configs(e, arch)
    ]
    for (element, config), major, side in itertools.product(configs, ("k", "row"), ("m", "n")):
        operand = Operand.of(config, side, major=major, element=element)
        if (arch, major, operand.mma_rows, operand.itemsize) == ("gfx950", "row", 16, 1):
            continue  # always transposed by reads: test_transposed_layout.py
        if major == "k" or operand.num_vectors * operand.itemsize >= DWORD_BYTES:
            found[operand] = None
    return list(found)


CASES = rows_of(
    lambda: (
        pytest.param(BANKS[arch], operand, id=f"{arch}-{operand.element}-{operand.major}-{index}")
        for arch in ("gfx942", "gfx950")
        for index, operand in enumerate(operands(arch))
    ),
    width=2,
)

STRUCT = """
struct Operand{index} {{
    using Element = cupygemm::{element};
    static constexpr cupygemm::Major major = cupygemm::Major::{major};
    static constexpr int tile_rows = {rows}, wave_rows = {wave_rows}, mma_rows = {mma_rows};
    static constexpr int tile_k = {tile_k}, num_threads = {threads};
"""
"""The beginning of an operand in C++, to which each test adds."""
_OPERAND = (
    STRUCT
    + """
    static constexpr bool dword_aligned = false; // or reads transpose 16-bit elements on gfx950
}};
extern "C" void writes_{index}(unsigned *out) {{ write_table<Operand{index}>(out); }}
extern "C" void reads_{index}(unsigned *out) {{ read_table<Operand{index}>(out); }}
extern "C" unsigned read_size_{index}() {{
    using Map = cupygemm::FragmentMap<Operand{index}>;
    return Map::num_fragments * Map::num_steps;
}}
"""
)

# Tables of (row, k, LDS byte) for each LDS write and of the LDS byte for each read; lanes last.
_TABLES = """
template <class Operand> void write_table(unsigned *out) {
    using Map = cupygemm::VectorMap<Operand>;
    using Layout = typename Map::Layout;
    constexpr unsigned threads = Operand::num_threads;
    if constexpr (Operand::major == cupygemm::Major::k) {
        for (unsigned i = 0; i < Map::num_vectors; ++i)
            for (unsigned thread = 0; thread < threads; ++thread) {
                *out++ = Map::row_of(thread) + Map::row_of(i * threads);
                *out++ = Map::k_of(thread) + Map::k_of(i * threads);
                *out++ = Layout::combine(Map::lds_of(thread), Map::lds_of(i * threads));
            }
    } else {
        for (unsigned i = 0; i < Map::num_blocks; ++i)
            for (unsigned j = 0; j < Map::elements; ++j)
                for (unsigned thread = 0; thread < threads; ++thread) {
                    *out++ = Map::row_of(thread) + Map::row_of(i * threads) + j;
                    *out++ = Map::k_of(thread) + Map::k_of(i * threads);
                    *out++ = Layout::combine(Map::lds_of(thread, 0), Map::lds_of(i * threads, j));
                }
    }
}
template <class Operand> void read_table(unsigned *out) {
    using Map = cupygemm::FragmentMap<Operand>;
    using Layout = typename Map::Layout;
    for (unsigned wave = 0; wave < Operand::tile_rows / Operand::wave_rows; ++wave)
        for (unsigned fragment = 0; fragment < Map::num_fragments; ++fragment)
            for (unsigned step = 0; step < Map::num_steps; ++step)
                for (unsigned lane = 0; lane < cupygemm::wave_size; ++lane)
                    *out++ = Layout::combine(
                        Map::lds_of_lane(wave, lane), Map::lds_of_step(fragment, step));
}
extern "C" unsigned tile_row(unsigned row) { return cupygemm::RowOrder::tile_row(row); }
extern "C" unsigned lds_row(unsigned row) { return cupygemm::RowOrder::lds_row(row); }
"""


@functools.cache
def library(banks: int) -> ctypes.CDLL:
    """Compile the maps of every operand for this machine."""
    arch = "gfx950" if banks == 64 else "gfx942"
    code = _TABLES
    for index, operand in enumerate(operands(arch)):
        code += _OPERAND.format(index=index, **vars(operand))
    defines = ("__gfx950__",) if banks == 64 else ()
    return compile_for_host("cdna/operand.hpp", code, defines=defines)


def tables(banks: int, operand: Operand) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return writes as (instruction, thread, [row, k, byte]) and reads as (wave, read, lane)."""
    index = operands("gfx950" if banks == 64 else "gfx942").index(operand)
    code = library(banks)
    bytes_of_write = write_bytes(operand)
    num_writes = operand.rows * operand.tile_k * operand.itemsize // bytes_of_write
    num_writes //= operand.threads
    writes = np.zeros((num_writes, operand.threads, 3), np.uint32)
    getattr(code, f"writes_{index}")(writes.ctypes.data_as(ctypes.c_void_p))
    waves = operand.rows // operand.wave_rows
    reads = np.zeros((waves, getattr(code, f"read_size_{index}")(), WAVE), np.uint32)
    getattr(code, f"reads_{index}")(reads.ctypes.data_as(ctypes.c_void_p))
    return writes, reads


def write_bytes(operand: Operand) -> int:
    """Return the width of an LDS write: a chunk, or `depth` elements of a transposed block."""
    if operand.major == "k":
        return 16
    return min(operand.num_vectors, operand.per_vector) * operand.itemsize


def phases(width: int, banks: int, *, read: bool) -> list[list[int]]:
    """Return the lanes that LDS serves together."""
    if read and width == 16:
        if banks == 32:
            halves = [
                [*range(4), *range(20, 24)],
                [*range(4, 8), *range(16, 20)],
                [*range(8, 12), *range(28, 32)],
                [*range(12, 16), *range(24, 28)],
            ]
        else:
            halves = [
                [*range(4), *range(12, 16), *range(20, 28)],
                [*range(4, 12), *range(16, 20), *range(28, 32)],
            ]
        return halves + [[lane + 32 for lane in phase] for phase in halves]
    together = banks * 4 // width
    return [list(range(first, first + together)) for first in range(0, WAVE, together)]


def conflicts(addresses: NDArray[np.uint32], width: int, banks: int, *, read: bool) -> int:
    """Return how many extra cycles the instruction of one wave takes."""
    extra = 0
    for phase in phases(width, banks, read=read):
        dwords = addresses[phase][:, None] // 4 + np.arange(width // 4)[None, :]
        counts = np.bincount(np.unique(dwords) % banks, minlength=banks)
        extra += int(counts.max()) - 1
    return extra


def written_bytes(operand: Operand, writes: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the (row, k) whose element each pair of LDS bytes holds, as row * tile_k + k."""
    lds = np.full(operand.rows * operand.tile_k, -1, np.int64)
    elements = np.arange(write_bytes(operand) // operand.itemsize)
    row, k, byte = (writes[..., i].astype(np.int64).ravel() for i in range(3))
    places = byte[:, None] // operand.itemsize + elements
    assert (byte % write_bytes(operand) == 0).all()
    assert len(np.unique(places)) == places.size == lds.size
    lds[places.ravel()] = (row[:, None] * operand.tile_k + k[:, None] + elements).ravel()
    return lds


@pytest.mark.covering(pairs=True)
@pytest.mark.parametrize(("banks", "operand"), CASES)
def test_a_tile_is_written_once_and_whole(banks: int, operand: Operand) -> None:
    writes, _ = tables(banks, operand)
    lds = written_bytes(operand, writes)
    np.testing.assert_array_equal(np.sort(lds), np.arange(operand.rows * operand.tile_k))


@pytest.mark.covering(pairs=True)
@pytest.mark.parametrize(("banks", "operand"), CASES)
def test_fragments_read_the_rows_and_k_that_the_instruction_takes(
    banks: int, operand: Operand
) -> None:
    """Lane l takes row l % mma of its fragment; its k depends on the step and on l // mma alone."""
    writes, reads = tables(banks, operand)
    lds = written_bytes(operand, writes)
    fragments = operand.wave_rows // operand.mma_rows
    steps = reads.shape[1] // fragments
    lane = np.arange(WAVE)
    element = np.arange(operand.per_vector)
    held = lds[reads[..., None] // operand.itemsize + element]
    held = held.reshape(reads.shape[0], fragments, steps, WAVE, len(element))
    row, k = np.divmod(held, operand.tile_k)

    lds_rows = np.arange(operand.rows).reshape(reads.shape[0], fragments, 1, operand.mma_rows)
    expected_rows = np.array([library(banks).tile_row(int(r)) for r in lds_rows.ravel()])
    expected_rows = expected_rows.reshape(lds_rows.shape)[..., lane % operand.mma_rows]
    np.testing.assert_array_equal(row, np.broadcast_to(expected_rows[..., None], row.shape))

    chunks_per_step = WAVE // operand.mma_rows
    chunk = np.arange(steps)[:, None] * chunks_per_step + lane // operand.mma_rows
    expected_k = chunk[..., None] * len(element) + element
    np.testing.assert_array_equal(k, np.broadcast_to(expected_k, k.shape))


@pytest.mark.covering(pairs=True)
@pytest.mark.parametrize(("banks", "operand"), CASES)
def test_reads_have_no_bank_conflicts(banks: int, operand: Operand) -> None:
    _, reads = tables(banks, operand)
    for instruction in reads.reshape(-1, WAVE):
        assert conflicts(instruction, 16, banks, read=True) == 0


@pytest.mark.covering(pairs=True)
@pytest.mark.parametrize(("banks", "operand"), CASES)
def test_writes_have_no_bank_conflicts(banks: int, operand: Operand) -> None:
    writes, _ = tables(banks, operand)
    for instruction in writes[..., 2].reshape(-1, WAVE):
        assert conflicts(instruction, write_bytes(operand), banks, read=False) == 0


@pytest.mark.covering(pairs=True)
@pytest.mark.parametrize(("banks", "operand"), CASES)
def test_neighbouring_lanes_read_neighbouring_memory(banks: int, operand: Operand) -> None:
    """Eight lanes cover 128 bytes of a row or of a k; fewer do where a tile has fewer rows."""
    writes, _ = tables(banks, operand)
    row, k = writes[..., 0].astype(int), writes[..., 1].astype(int)
    per_vector = operand.per_vector
    together = 8 if operand.major == "k" else min(operand.rows // per_vector, 8)
    along, across = (k, row) if operand.major == "k" else (row, k)
    along = along.reshape(-1, together)
    assert (np.diff(along, axis=1) == per_vector).all()
    assert (np.ptp(across.reshape(-1, together), axis=1) == 0).all()
    # A write of row j of a transposed block starts at that row.
    assert (along[:, 0] % (per_vector * together) < per_vector).all()


def test_the_row_order_gives_a_lane_eight_consecutive_columns() -> None:
    """A quad of accumulators is 4 LDS rows, and 16 rows on is its continuation."""
    code = library(32)
    rows = np.arange(256)
    order = np.array([code.tile_row(int(row)) for row in rows])
    np.testing.assert_array_equal([code.lds_row(int(row)) for row in order], rows)
    starts = rows[(rows % 4 == 0) & (rows & 16 == 0)]
    for start in starts:
        lane = [order[start + e] for e in range(4)] + [order[start + 16 + e] for e in range(4)]
        np.testing.assert_array_equal(lane, order[start] + np.arange(8))
        assert order[start] % 8 == 0
