// Row-major tiles that keep the order of memory in LDS, and are transposed by LDS reads.
//
// This layout serves bytes and 16-bit elements on targets with transposing LDS reads. A block of 16
// lanes points at 16 rows by 4 or 8 consecutive k (8 bytes), each lane at 8 bytes of rows. Each
// lane receives those values of k for one row: 8 with ds_read_b64_tr_b8, 4 with ds_read_b64_tr_b16.
// Nothing is transposed in registers, and one ds_write_b128 stores a vector as it was loaded.
//
//   TransposedLayout   (block of 32 rows, k, 32 rows): each k has chunks of 16 bytes
//   VectorMap          thread -> vectors: chunks of rows at one k
//   TransposedReadMap  (wave, lane, fragment, k step, half) -> the rows that the lane points at
//
// Fragments use RowOrder, like those of other tiles: of each 8 rows, a fragment takes 4. With
// 16-bit elements these are half of a chunk. With bytes, the two middle dwords of a chunk change
// places, and then its halves are 4 of the first 8 rows and 4 of the last 8. All lanes of a read
// would need the same halves, from half of the banks. The halves are therefore exchanged for every
// other chunk of k.
#pragma once

#include "cdna/operand.hpp"

namespace cupygemm {

template <class Operand> struct TransposedLayout {
    static constexpr u32 element_bytes = OperandTile<Operand>::element_bytes;
    static constexpr u32 chunk_bytes = 16, half_bytes = 8;
    static constexpr u32 chunk_rows = chunk_bytes / element_bytes; // and k of a lane's chunk
    static constexpr u32 half_rows = chunk_rows / 2;
    static constexpr u32 fragment_rows = 16;
    static constexpr u32 block_chunks = RowOrder::block / chunk_rows; // per k
    static constexpr u32 block_bytes = Operand::tile_k * block_chunks * chunk_bytes;
    // The 32 lanes of a read differ in the chunk, in one bit of k that orders the halves, and in
    // the lowest bits of k: as many 16-byte slots as fill the banks once.
    static constexpr u32 slots = 16;
    static constexpr u32 slot_k = slots / block_chunks; // values of k that lie side by side
    static constexpr u32 rotated_bytes =
        slots * chunk_bytes / 2; // the XOR changes offset bits below this power of two

    // Whether the halves of a chunk are exchanged.
    CUPYGEMM_INLINE static constexpr u32 swaps_halves(u32 k) { return k / chunk_rows & 1; }

    // Byte offset of the half chunk that holds an LDS row. The 16 lanes of a write differ in bits
    // of the block; the lowest of these are XORed with bits of k.
    CUPYGEMM_INLINE static constexpr u32 offset(u32 lds_row, u32 k) {
        const u32 block = lds_row / RowOrder::block;
        const u32 chunk = (k * block_chunks + lds_row / half_rows % block_chunks) ^
                          block % (slot_k / 2) * block_chunks;
        const u32 half = lds_row / fragment_rows % 2 ^ swaps_halves(k);
        return block * block_bytes + chunk * chunk_bytes + half * half_bytes;
    }
    CUPYGEMM_INLINE static u32 combine(u32 x, u32 y) {
        return (x ^ (y % rotated_bytes)) + (y - y % rotated_bytes);
    }
};

// A vector is a chunk. The index bits are, from bit 0: the chunk (up to 3 bits); k without the bit
// that orders the halves; more of the chunk; that bit of k; and, if a thread has four vectors, the
// top bit of the chunk. Hence 8 lanes read 128 bytes at one k, the order of a vector's halves is
// the same for all threads, and of four vectors the last two belong to the lower half of the tile's
// rows. The values of k that lie side by side begin with the bit that keeps the next lanes' banks
// apart.
template <class Operand> struct VectorMap<Operand, Major::row, true> {
    using Tile = OperandTile<Operand>;
    using Layout = TransposedLayout<Operand>;
    static constexpr int elements = Layout::chunk_rows; // per vector, along rows
    static constexpr int num_vectors =
        Operand::tile_rows * Operand::tile_k / elements / Operand::num_threads;
    static constexpr int num_writes = num_vectors;
    static constexpr u32 chunks_per_k = Operand::tile_rows / Layout::chunk_rows;
    static constexpr u32 lane_chunks = minimum(chunks_per_k, 8u);
    static constexpr u32 top_chunks = chunks_per_k > 8 && num_vectors >= 4 ? 2 : 1;
    static constexpr u32 middle_chunks = chunks_per_k / lane_chunks / top_chunks;
    static constexpr u32 half_k = Operand::tile_k / 2; // without the bit that orders the halves
    // The rotation of the lowest bits of k: the slots of a block that the lanes' chunks leave.
    static constexpr u32 rotation = lane_chunks / Layout::block_chunks;

    static_assert(Operand::num_threads <= lane_chunks * half_k * middle_chunks,
                  "each thread needs two vectors, so that the order of halves does not differ "
                  "between threads");

    CUPYGEMM_INLINE static constexpr u32 row_of(u32 index) {
        const u32 above = index / lane_chunks / half_k;
        const u32 high = above % middle_chunks + above / middle_chunks / 2 * middle_chunks;
        return (index % lane_chunks + high * lane_chunks) * Layout::chunk_rows;
    }
    CUPYGEMM_INLINE static constexpr u32 k_of(u32 index) {
        const u32 k = index / lane_chunks % half_k;
        const u32 low = k % Layout::slot_k;
        const u32 rotated = (low * rotation | low / (Layout::slot_k / rotation)) % Layout::slot_k;
        const u32 order = index / lane_chunks / half_k / middle_chunks % 2;
        return k / Layout::chunk_rows * 2 * Layout::chunk_rows + order * Layout::chunk_rows +
               k % Layout::chunk_rows - low + rotated;
    }
    CUPYGEMM_INLINE static constexpr u32 lds_of(u32 index) {
        const u32 k = k_of(index);
        return Layout::offset(RowOrder::lds_row(row_of(index)), k) ^
               Layout::swaps_halves(k) * Layout::half_bytes;
    }
    CUPYGEMM_INLINE static constexpr bool swaps_halves(u32 i) {
        return Layout::swaps_halves(k_of(i * Operand::num_threads)) != 0;
    }
};

// Where the lanes of a transposing read point, so that lane l receives row l % 16 of a fragment and
// half of the chunk of k that FragmentMap assigns to it; `half` is 0 or 1. In a block of 16 lanes,
// one lane for each chunk of a block of rows points at one k.
template <class Operand, int parts = 1> struct TransposedReadMap : FragmentMap<Operand, parts> {
    using Base = FragmentMap<Operand, parts>;
    using Layout = TransposedLayout<Operand>;
    static constexpr u32 chunk_k = Layout::chunk_rows;

    CUPYGEMM_INLINE static constexpr u32 lds_of_lane(u32 wave, u32 lane) {
        return Layout::offset(Base::row_of_wave(wave) +
                                  lane % Layout::block_chunks * Layout::half_rows,
                              lane / 16 * chunk_k + lane % 16 / Layout::block_chunks);
    }
    CUPYGEMM_INLINE static constexpr u32 lds_of_step(u32 fragment, u32 step, u32 half) {
        return Layout::offset(Base::row_of_fragment(fragment),
                              step * Base::chunks_per_step * chunk_k + half * chunk_k / 2);
    }
};

} // namespace cupygemm
