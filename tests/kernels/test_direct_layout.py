"""The maps of loads that go straight to LDS: complete, in agreement, and without bank conflicts.

As test_layout.py does, the test compiles the very maps for this machine. A unit of a load lies
where its number says, so what is to be shown is which elements the lanes fetch, and what the reads
make of them. A transposing read is served in two phases of 32 lanes (LLVM's and HipKittens' figures
for ds_read_b64_tr_b16), and moves data as ROCm's rocjitsu states it.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.config import WAVE_SIZE
from cupygemm._backends.cdna.mainloops import direct_to_lds
from cupygemm._records.dtypes import ITEMSIZE
from tests.kernels.host import compile_for_host
from tests.kernels.test_layout import STRUCT, Operand, conflicts
from tests.tables import rows_of

ELEMENTS = {"gfx950": ("bf16", "i8", "f32", "f64"), "gfx942": ("bf16", "f32")}


def operands(arch: str) -> list[Operand]:
    """Return every operand of the architecture's configurations."""
    found: dict[Operand, None] = {}
    for element in ELEMENTS[arch]:
        configs = direct_to_lds.configs(element, arch)
        for config, major, side in itertools.product(configs, ("k", "row"), ("m", "n")):
            operand = Operand.of(config, side, major=major, element=element)
            is_transposed = (arch, element) == ("gfx950", "bf16") and operand.wave_rows % 32 == 0
            if major == "k" or is_transposed:
                found[operand] = None
    return list(found)


def cases(*majors: str) -> list[Any]:
    """Return (architecture, operand) of every operand with one of the majors."""
    return rows_of(
        lambda: (
            pytest.param(arch, operand, id="-".join(map(str, (arch, *astuple(operand)))))
            for arch in ELEMENTS
            for operand in operands(arch)
            if operand.major in majors
        ),
        width=2,
    )


CASES = cases("k", "row")
ROW_MAJOR = cases("row")

_CODE = """
template <class Operand> void load_table(unsigned *out, unsigned units) {
    using Map = cupygemm::DirectMap<Operand>;
    constexpr unsigned threads = Operand::num_threads;
    for (unsigned i = 0; i < units; ++i)
        for (unsigned thread = 0; thread < threads; ++thread) {
            *out++ = Map::row_of(i * threads + thread);
            *out++ = Map::k_of(i * threads + thread);
            // As the kernel works it out: a lane's part and one that is the same in all lanes.
            *out++ = (Map::row_of(thread) ^ (Map::row_of(i * threads) - Map::uniform_row(i))) +
                     Map::uniform_row(i);
            *out++ = (Map::k_of(thread) ^ (Map::k_of(i * threads) - Map::uniform_k(i))) +
                     Map::uniform_k(i);
        }
}
"""
READ_TABLE = """
template <class Operand, class Map> void read_table(unsigned *out) {
    for (unsigned wave = 0; wave < Operand::tile_rows / Operand::wave_rows; ++wave)
        for (unsigned fragment = 0; fragment < Map::num_fragments; ++fragment)
            for (unsigned step = 0; step < Map::num_steps; ++step)
                for (unsigned half = 0; half < 2; ++half)
                    for (unsigned lane = 0; lane < cupygemm::wave_size; ++lane)
                        *out++ = Map::Layout::combine(Map::lds_of_lane(wave, lane),
                                                      Map::lds_of_step(fragment, step, half));
}
extern "C" unsigned tile_row(unsigned row) { return cupygemm::RowOrder::tile_row(row); }
"""
_OPERAND = (
    STRUCT
    + """}};
extern "C" void loads_{index}(unsigned *out, unsigned units) {{
    load_table<Operand{index}>(out, units);
}}
"""
)
_READS = """
using Reads{index} = cupygemm::TransposeMap<Operand{index}>;
extern "C" void reads_{index}(unsigned *out) {{ read_table<Operand{index}, Reads{index}>(out); }}
"""


@functools.cache
def library(arch: str) -> ctypes.CDLL:
    """Compile the maps of every operand for this machine."""
    code = _CODE + READ_TABLE
    for index, operand in enumerate(operands(arch)):
        code += _OPERAND.format(index=index, **vars(operand))
        if operand.major == "row":
            code += _READS.format(index=index)
    defines = ("__gfx950__",) if arch == "gfx950" else ()
    return compile_for_host("cdna/direct_operand.hpp", code, defines=defines)


def loads(arch: str, operand: Operand) -> NDArray[np.int64]:
    """Return (unit of a thread, thread, [row, k, row and k as the kernel adds them up])."""
    num_bytes = operand.rows * operand.tile_k * ITEMSIZE[operand.element]
    units = num_bytes // operand.threads // ARCHS[arch].direct_load_bytes
    table = np.zeros((units, operand.threads, 4), np.uint32)
    function = getattr(library(arch), f"loads_{operands(arch).index(operand)}")
    function(table.ctypes.data_as(ctypes.c_void_p), units)
    return table.astype(np.int64)


def reads(operand: Operand) -> NDArray[np.uint32]:
    """Return the LDS byte that a lane points at: (wave, fragment, step, half, lane)."""
    steps = operand.tile_k // (8 * WAVE_SIZE // operand.mma_rows)
    waves, fragments = operand.rows // operand.wave_rows, operand.wave_rows // operand.mma_rows
    table = np.zeros((waves, fragments, steps, 2, WAVE_SIZE), np.uint32)
    function = getattr(library("gfx950"), f"reads_{operands('gfx950').index(operand)}")
    function(table.ctypes.data_as(ctypes.c_void_p))
    return table


@pytest.mark.parametrize(("arch", "operand"), CASES)
def test_every_element_is_fetched_once(arch: str, operand: Operand) -> None:
    table = loads(arch, operand)
    np.testing.assert_array_equal(table[..., 2:], table[..., :2])
    row, k = table[..., 0], table[..., 1]
    run = np.arange(max(ARCHS[arch].direct_load_bytes // ITEMSIZE[operand.element], 1))
    along = run if operand.major == "k" else run * operand.tile_k
    elements = (row * operand.tile_k + k)[..., None] + along
    np.testing.assert_array_equal(
        np.sort(elements.ravel()), np.arange(operand.rows * operand.tile_k)
    )


@pytest.mark.parametrize(("arch", "operand"), CASES)
def test_neighbouring_lanes_fetch_whole_lines(arch: str, operand: Operand) -> None:
    """The lanes of 128 bytes, in whatever order; fewer where a tile has fewer rows."""
    row, k = np.moveaxis(loads(arch, operand)[..., :2].reshape(-1, 2), -1, 0)
    itemsize, load = ITEMSIZE[operand.element], ARCHS[arch].direct_load_bytes
    along, across = (k, row) if operand.major == "k" else (row, k)
    extent = 128 if operand.major == "k" else min(128, operand.rows * itemsize)
    start = np.sort(along.reshape(-1, extent // load) * itemsize, axis=1)
    assert (np.diff(start, axis=1) == load).all()
    assert (start[:, 0] % extent == 0).all()
    assert (np.ptp(across.reshape(-1, extent // load), axis=1) == 0).all()


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("arch", "operand"), cases("k"))
def test_a_k_major_tile_lies_as_fragments_expect_it(arch: str, operand: Operand) -> None:
    """The layout is OperandTile's, whose reads test_layout.py proves: unit by unit."""
    itemsize, load = ITEMSIZE[operand.element], ARCHS[arch].direct_load_bytes
    code = f"""
    struct Operand {{
        using Element = cupygemm::{operand.element};
        static constexpr cupygemm::Major major = cupygemm::Major::k;
        static constexpr int tile_rows = {operand.rows}, wave_rows = {operand.wave_rows};
        static constexpr int mma_rows = {operand.mma_rows}, tile_k = {operand.tile_k};
        static constexpr int num_threads = {operand.threads};
    }};
    extern "C" unsigned lds_of(unsigned row, unsigned byte) {{
        using Tile = cupygemm::OperandTile<Operand>;
        return byte / 128 * Tile::Layout::slab_bytes +
               Tile::Layout::offset(cupygemm::RowOrder::lds_row(row), byte % 128 / 16) + byte % 16;
    }}
    """
    defines = ("__gfx950__",) if arch == "gfx950" else ()
    lds_of = compile_for_host("cdna/direct_operand.hpp", code, defines=defines).lds_of
    table = loads(arch, operand).reshape(-1, 4)
    for unit in range(0, len(table), 37):
        row, k = table[unit, :2]
        assert lds_of(int(row), int(k) * itemsize) == unit * load


@pytest.mark.parametrize(("arch", "operand"), ROW_MAJOR)
def test_transposing_reads_have_no_bank_conflicts(arch: str, operand: Operand) -> None:
    for instruction in reads(operand).reshape(-1, WAVE_SIZE):
        assert conflicts(instruction, 8, ARCHS[arch].lds_banks, read=True) == 0


@pytest.mark.parametrize(("arch", "operand"), ROW_MAJOR)
def test_transposing_reads_give_the_rows_and_k_of_a_fragment(arch: str, operand: Operand) -> None:
    """Lane l gets 8 values of k of LDS row l % mma, except for the halves that 16 rows swap."""
    table = loads(arch, operand).reshape(-1, 4)
    held = np.zeros((operand.rows * operand.tile_k, 2), np.int64)  # (row, k) of each half-word
    held[:] = np.repeat(table[:, :2], 8, axis=0)
    held[:, 0] += np.tile(np.arange(8), len(table))

    lane, element = np.arange(WAVE_SIZE), np.arange(4)
    source = (lane & ~15)[:, None] + 4 * element + lane[:, None] % 16 // 4
    pointed = reads(operand) // 2
    got = held[pointed[..., source] + (lane % 4)[:, None]]  # (..., half, lane, element, [row, k])
    got = np.moveaxis(got, -4, -3)  # (wave, fragment, step, lane, half, element, [row, k])
    row, k = np.moveaxis(got.reshape(*got.shape[:4], 8, 2), -1, 0)

    wave, fragment, step = np.ogrid[: row.shape[0], : row.shape[1], : row.shape[2]]
    lds_row = wave * operand.wave_rows + fragment * operand.mma_rows
    lds_row = lds_row[..., None] + lane % operand.mma_rows
    if operand.mma_rows == 16:
        lds_row ^= 16 * (lane // 4 % 2)
    order = np.array([library(arch).tile_row(r) for r in range(operand.rows)])
    np.testing.assert_array_equal(row, np.broadcast_to(order[lds_row][..., None], row.shape))
    chunk = step[..., None] * (WAVE_SIZE // operand.mma_rows) + lane // operand.mma_rows
    expected = chunk[..., None] * 8 + np.arange(8)
    np.testing.assert_array_equal(k, np.broadcast_to(expected, k.shape))
