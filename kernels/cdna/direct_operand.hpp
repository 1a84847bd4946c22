// The LDS layout of tiles that are loaded straight to LDS, as maps from indices to elements.
//
// A load to LDS cannot choose where a lane's data goes: the lanes of a wave fill consecutive units
// of `direct_load_bytes`. The layout is therefore made on the memory side: each lane fetches the
// element that belongs in its unit. Units are numbered as they lie in LDS, with the thread in the
// low bits. A DirectMap gives the first element of a unit. The map is linear over XOR. The
// `uniform` part of a thread's unit i has no bits in common with the thread's own part, and can be
// added as a scalar.
//
//   Major::k    the layout of OperandTile, with rows of 128 bytes along k. The 8 chunks of a row
//               are fetched in rotated order, and make up one line of memory.
//   Major::row  the layout of memory: for each k, a row of chunks along m or n. ds_read_b64_tr_b16
//               transposes while it reads a fragment, so elements must have 16 bits and the target
//               must have transposing LDS reads.
//
// The maps are plain arithmetic, like those of operand.hpp, so tests can check them on any machine.
#pragma once

#include "cdna/operand.hpp"

namespace cupygemm {

template <class Operand, Major major = Operand::major> struct DirectMap;

template <class Operand> struct DirectMap<Operand, Major::k> {
    using Tile = OperandTile<Operand>;
    using Layout = typename Tile::Layout;
    static constexpr u32 units_per_chunk = Layout::chunk_bytes / direct_load_bytes;
    static constexpr u32 units_per_slab = Layout::slab_bytes / direct_load_bytes;

    CUPYGEMM_INLINE static constexpr u32 slot(u32 unit) {
        return unit % units_per_slab / units_per_chunk;
    }
    CUPYGEMM_INLINE static constexpr u32 row_of(u32 unit) {
        return RowOrder::tile_row(Layout::row_of_slot(slot(unit)));
    }
    CUPYGEMM_INLINE static constexpr u32 k_of(u32 unit) {
        const u32 byte = Layout::chunk_of_slot(slot(unit)) * Layout::chunk_bytes +
                         unit % units_per_chunk * direct_load_bytes;
        return unit / units_per_slab * Tile::slab_k + byte / Tile::element_bytes;
    }
    static_assert(Operand::num_threads >= 2 * wave_size,
                  "the rows that differ between a thread's units must share no bits with those "
                  "that differ between threads");

    CUPYGEMM_INLINE static constexpr u32 uniform_row(u32 i) {
        return row_of(i * Operand::num_threads);
    }
    CUPYGEMM_INLINE static constexpr u32 uniform_k(u32 i) {
        const u32 k = k_of(i * Operand::num_threads);
        return k - k % Tile::slab_k;
    }
};

// The layout of row-major chunks of 8 rows: the 16-byte slot is (k, chunk), with the chunk XORed
// with bits of k. A transposing read serves 32 lanes at a time. For both instructions these lanes
// differ in 2 bits of the chunk and 2 bits of k. For the 32x32 instruction they also differ in the
// half of the chunk; the bits of k then go to slot bits 2 and 3, unless a tile of few rows puts
// them there anyway. For the 16x16 instruction they differ in bit 3 of k instead of the half, and
// that bit goes to slot bit 0; TransposeMap explains how it reaches both halves.
template <class Operand> struct RowMajorLayout {
    static constexpr u32 chunk_rows = 8; // 16-bit elements
    static constexpr u32 chunk_bytes = 16;
    static constexpr u32 chunks_per_k = Operand::tile_rows / chunk_rows;
    static constexpr u32 rotated_bytes = 256; // the XOR changes offset bits below this power of two

    CUPYGEMM_INLINE static constexpr u32 rotation(u32 k) {
        const u32 low = chunks_per_k >= 16 ? (k & 3) << 2 : chunks_per_k == 8 ? (k & 2) << 1 : 0;
        return low | (k >> 3 & 1);
    }
    CUPYGEMM_INLINE static constexpr u32 offset(u32 k, u32 chunk) {
        return (k * chunks_per_k + (chunk ^ rotation(k))) * chunk_bytes;
    }
    CUPYGEMM_INLINE static u32 combine(u32 x, u32 y) {
        return (x ^ (y % rotated_bytes)) + (y - y % rotated_bytes);
    }
};

template <class Operand> struct DirectMap<Operand, Major::row> {
    using Layout = RowMajorLayout<Operand>;

    static_assert(direct_load_bytes == Layout::chunk_bytes,
                  "row-major tiles need units of a whole chunk: targets with narrower loads to LDS "
                  "cannot read them");
    static_assert(OperandTile<Operand>::element_bytes == 2,
                  "only 16-bit elements are transposed by these reads");

    CUPYGEMM_INLINE static constexpr u32 row_of(u32 unit) {
        const u32 chunk = unit % Layout::chunks_per_k ^ Layout::rotation(k_of(unit));
        return chunk * Layout::chunk_rows;
    }
    CUPYGEMM_INLINE static constexpr u32 k_of(u32 unit) { return unit / Layout::chunks_per_k; }
    CUPYGEMM_INLINE static constexpr u32 uniform_row(u32 /*i*/) { return 0; }
    CUPYGEMM_INLINE static constexpr u32 uniform_k(u32 i) { return k_of(i * Operand::num_threads); }
};

// Where the lanes of a transposing read point, so that lane l receives row l % mma_rows of a
// fragment, and half of the chunk l / mma_rows of the k step: `half` 0 or 1 selects 4 of the
// chunk's 8 k.
//
// Within a block of 16 lanes, lane l points at k l / 4 and at 4 rows of chunk l % 4. The fragments
// take rows in RowOrder, which splits a chunk: of 32 rows, LDS rows 0 to 15 are the lower halves of
// 4 chunks. The 32x32 instruction takes both halves in one read. The 16x16 instruction would read
// only lower halves, from half of the banks. It therefore exchanges the halves of odd chunks
// between a fragment and the next, and `unswap_fragments` undoes that in the accumulators.
template <class Operand> struct TransposeMap {
    using Layout = RowMajorLayout<Operand>;
    static constexpr u32 num_fragments = Operand::wave_rows / Operand::mma_rows;
    static constexpr u32 chunks_per_step = wave_size / Operand::mma_rows;
    static constexpr u32 num_steps = Operand::tile_k / (8 * chunks_per_step);
    static constexpr bool swaps_halves = Operand::mma_rows == 16;

    static_assert(Operand::tile_k % (8 * chunks_per_step) == 0, "tile_k must hold whole k steps");
    static_assert(Operand::wave_rows % RowOrder::block == 0,
                  "a wave's rows must be whole blocks of the row order");

    // The lane's part of the offset: its place in fragment 0 of step 0, first half.
    CUPYGEMM_INLINE static constexpr u32 lds_of_lane(u32 wave, u32 lane) {
        const u32 chunk = lane % 4;
        const u32 k = lane / Operand::mma_rows * 8 + lane % 16 / 4;
        const u32 upper = swaps_halves ? chunk % 2 : lane / 16 % 2;
        return Layout::offset(k, wave * Operand::wave_rows / Layout::chunk_rows + chunk) +
               upper * 8;
    }
    // The part of the fragment, the step and the half, a constant.
    CUPYGEMM_INLINE static constexpr u32 lds_of_step(u32 fragment, u32 step, u32 half) {
        const u32 row = fragment * Operand::mma_rows;
        const u32 chunk = row / RowOrder::block * 4;
        return Layout::offset(step * chunks_per_step * 8 + half * 4, chunk) +
               row % RowOrder::block / 16 * 8;
    }
};

} // namespace cupygemm
