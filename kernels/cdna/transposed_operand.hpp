// A row-major tile of bytes that lies in LDS as in memory, and is transposed by what reads it.
//
// gfx950 reads LDS by ds_read_b64_tr_b8: a block of 16 lanes points at 16 rows of 8 consecutive k,
// 8 rows to a lane, and each lane receives the 8 k's of one row. Nothing is transposed in registers
// then, and a vector is written as it was loaded, by one ds_write_b128.
//
//   TransposedLayout   (block of 32 rows, k, 32 rows): a k has two chunks of 16 rows
//   VectorMap          thread -> vectors of 16 rows at one k
//   TransposedReadMap  (wave, lane, fragment, k step, half) -> 8 rows that the lane points at
//
// Fragments have RowOrder, like those of other tiles: of 32 rows, a fragment takes 4 of each 8. So
// the two middle dwords of a vector change places, and a fragment's rows are a half of each of the
// two chunks. Read so, all lanes would want the same halves, and half of the banks: where bit 4 of
// k is set, the halves change places too.
#pragma once

#include "cdna/operand.hpp"

namespace cupygemm {

template <class Operand> struct TransposedLayout {
    static constexpr u32 chunk_rows = 16;
    static constexpr u32 half_rows = 8;
    static constexpr u32 chunk_bytes = 16;
    static constexpr u32 block_chunks = RowOrder::block / chunk_rows; // of one k
    static constexpr u32 block_bytes = Operand::tile_k * block_chunks * chunk_bytes;
    static constexpr u32 rotated_bytes = 128; // offset bits that the XOR touches

    // Whether the halves of a chunk have changed places.
    CUPYGEMM_INLINE static constexpr u32 swaps_halves(u32 k) { return k >> 4 & 1; }

    // Byte offset of the half of a chunk that holds an LDS row. A read's 32 lanes differ in bits 0,
    // 1, 2 and 4 of k and in the chunk, which are all banks. A write's 16 lanes differ in bits of
    // the block: the lowest two are XORed with those of k.
    CUPYGEMM_INLINE static constexpr u32 offset(u32 lds_row, u32 k) {
        const u32 block = lds_row / RowOrder::block;
        const u32 chunk = (k * block_chunks + lds_row / half_rows % 2) ^ (block & 3) * block_chunks;
        const u32 half = lds_row / slice_of_block % 2 ^ swaps_halves(k);
        return block * block_bytes + chunk * chunk_bytes + half * half_rows;
    }
    CUPYGEMM_INLINE static u32 combine(u32 x, u32 y) {
        return (x ^ (y % rotated_bytes)) + (y - y % rotated_bytes);
    }

private:
    static constexpr u32 slice_of_block = 16; // LDS rows of a fragment
};

// A vector is a chunk. Index bits, from bit 0: chunk (up to 3), k but its bit 4, bit 4 of k, and the
// rest of the chunk: 8 lanes read 128 bytes of one k, and a vector's halves are in one order for all
// threads. The lowest three bits of k begin with the one that keeps the next lanes' banks apart.
template <class Operand> struct VectorMap<Operand, Major::row, true> {
    using Tile = OperandTile<Operand>;
    using Layout = TransposedLayout<Operand>;
    static constexpr int elements = Layout::chunk_rows; // of a vector, along rows
    static constexpr int num_vectors =
        Operand::tile_rows * Operand::tile_k / elements / Operand::num_threads;
    static constexpr int num_writes = num_vectors;
    static constexpr u32 chunks_per_k = Operand::tile_rows / Layout::chunk_rows;
    static constexpr u32 lane_chunks = minimum(chunks_per_k, 8u);
    static constexpr u32 first_bit = lane_chunks == 8 ? 2 : lane_chunks == 4 ? 1 : 0;

    static_assert(Operand::num_threads <= lane_chunks * Operand::tile_k / 2,
                  "bit 4 of k does not differ between threads: two vectors each at least");

    CUPYGEMM_INLINE static constexpr u32 row_of(u32 index) {
        const u32 high = index / lane_chunks / Operand::tile_k;
        return (high * lane_chunks + index % lane_chunks) * Layout::chunk_rows;
    }
    CUPYGEMM_INLINE static constexpr u32 k_of(u32 index) {
        const u32 k = index / lane_chunks % Operand::tile_k;
        const u32 low = (k << first_bit | (k & 7) >> (3 - first_bit)) & 7;
        const u32 without_bit_4 = k % (Operand::tile_k / 2);
        return low | (k & 8) | without_bit_4 / 16 * 32 | k / (Operand::tile_k / 2) * 16;
    }
    CUPYGEMM_INLINE static constexpr u32 lds_of(u32 index) {
        const u32 k = k_of(index);
        return Layout::offset(RowOrder::lds_row(row_of(index)), k) ^
               Layout::swaps_halves(k) * Layout::half_rows;
    }
    // The dwords of vector i as they lie in LDS.
    CUPYGEMM_INLINE static constexpr bool swaps_halves(u32 i) {
        return Layout::swaps_halves(k_of(i * Operand::num_threads)) != 0;
    }
};

// Where the lanes of a transposing read point, so that lane l receives row l % 16 of a fragment and
// half of the chunk of k that FragmentMap gives it: 8 of its 16 k's, `half` 0 or 1. In a block of
// 16 lanes, lane l points at k l / 2, rows 0 to 7 or 8 to 15 of the fragment.
template <class Operand, int parts = 1> struct TransposedReadMap : FragmentMap<Operand, parts> {
    using Base = FragmentMap<Operand, parts>;
    using Layout = TransposedLayout<Operand>;
    static constexpr u32 chunk_k = 16;

    CUPYGEMM_INLINE static constexpr u32 lds_of_lane(u32 wave, u32 lane) {
        return Layout::offset(Base::row_of_wave(wave) + lane % 2 * Layout::half_rows,
                              lane / 16 * chunk_k + lane % 16 / 2);
    }
    CUPYGEMM_INLINE static constexpr u32 lds_of_step(u32 fragment, u32 step, u32 half) {
        return Layout::offset(Base::row_of_fragment(fragment),
                              step * Base::chunks_per_step * chunk_k + half * 8);
    }
};

} // namespace cupygemm
