// One operand of the product as index maps: its LDS tile, who writes it, and who reads it.
//
// A and B are treated alike: an Operand is a matrix of rows (m or n) by k. This file accesses no
// memory. The maps are plain arithmetic, so tests can check them against the bank rules on any
// machine.
//
//   OperandTile     the tile in LDS: (slab, row, 128 bytes of k)
//   VectorMap       thread -> the 16-byte vectors that it moves from memory to the tile
//   FragmentMap     (wave, lane, fragment, k step) -> the chunk that it reads for its instructions
//
// Row-major tiles that LDS reads transpose have maps of their own (transposed_operand.hpp).
#pragma once

#include "cdna/target.hpp"
#include "common/layout.hpp"

namespace cupygemm {

template <class Config> struct OperandA {
    using Element = typename Config::ElementA;
    static constexpr Major major = Config::a_major;
    static constexpr bool dword_aligned = Config::a_dword_aligned;
    static constexpr int tile_rows = Config::tile_m;
    static constexpr int wave_rows = Config::tile_m / Config::waves_m;
    static constexpr int mma_rows = Config::mma_m;
    static constexpr int tile_k = Config::tile_k;
    static constexpr int num_threads = Config::num_threads;
};

template <class Config> struct OperandB {
    using Element = typename Config::ElementB;
    static constexpr Major major = Config::b_major;
    static constexpr bool dword_aligned = Config::b_dword_aligned;
    static constexpr int tile_rows = Config::tile_n;
    static constexpr int wave_rows = Config::tile_n / Config::waves_n;
    static constexpr int mma_rows = Config::mma_n;
    static constexpr int tile_k = Config::tile_k;
    static constexpr int num_threads = Config::num_threads;
};

// One operand's tile in LDS: (slab, row, 128 bytes of k).
template <class Operand> struct OperandTile {
    static constexpr int element_bytes = Numeric<typename Operand::Element>::bytes;
    using Layout = LdsLayout<Operand::tile_rows, lds_banks, element_bytes>;
    static constexpr int slab_k = Layout::row_bytes / element_bytes; // 64 for 16-bit types
    static constexpr int num_slabs = Operand::tile_k / slab_k;
    static constexpr u32 bytes = num_slabs * Layout::slab_bytes;

    static_assert(Operand::tile_k % slab_k == 0, "tile_k must be a multiple of 128 bytes of k");
    static_assert(is_power_of_two(Operand::tile_rows), "a tile's rows must be a power of two");
    static_assert(is_power_of_two(Operand::wave_rows), "a wave's rows must be a power of two");
    static_assert(Operand::wave_rows % Operand::mma_rows == 0,
                  "a wave's rows must hold whole fragments");
};

// Whether the tile keeps the order of memory in LDS, with rows along m or n, and LDS reads
// transpose it. This requires a target with transposing LDS reads.
template <class Operand> CUPYGEMM_INLINE constexpr bool transposed_by_reads() {
    return has_transposing_reads && Operand::major == Major::row && Operand::mma_rows == 16 &&
           Operand::dword_aligned && OperandTile<Operand>::element_bytes <= 2;
}

// Which vectors of a tile a thread moves, and where they go. The maps take an index whose low bits
// are the thread and whose high bits number the thread's own vectors (or blocks), num_threads
// apart. Like the layout they are linear over XOR, so both parts can be computed separately.
template <class Operand, Major major = Operand::major,
          bool transposed = transposed_by_reads<Operand>()>
struct VectorMap;

// A vector is one chunk of a row. The index bits are, from bit 0: chunk (3 bits), row, slab. 8
// lanes read 128 bytes of a row and write them to all banks.
template <class Operand> struct VectorMap<Operand, Major::k, false> {
    using Tile = OperandTile<Operand>;
    using Layout = typename Tile::Layout;
    static constexpr int elements =
        Layout::chunk_bytes / Tile::element_bytes; // per vector, along k
    static constexpr int num_vectors =
        Operand::tile_rows * Operand::tile_k / elements / Operand::num_threads;

    static constexpr int num_writes = num_vectors;

    static_assert(num_vectors >= 1, "every thread must move at least one vector of a K-major tile");

    CUPYGEMM_INLINE static constexpr u32 chunk_of(u32 index) {
        return index % Layout::chunks_per_row;
    }
    CUPYGEMM_INLINE static constexpr u32 row_of(u32 index) {
        return index / Layout::chunks_per_row % Operand::tile_rows;
    }
    CUPYGEMM_INLINE static constexpr u32 slab_of(u32 index) {
        return index / Layout::chunks_per_row / Operand::tile_rows;
    }
    CUPYGEMM_INLINE static constexpr u32 k_of(u32 index) {
        return slab_of(index) * Tile::slab_k + chunk_of(index) * elements;
    }
    CUPYGEMM_INLINE static constexpr u32 lds_of(u32 index) {
        return slab_of(index) * Layout::slab_bytes +
               Layout::offset(RowOrder::lds_row(row_of(index)), chunk_of(index));
    }
};

// A vector is 16 bytes of rows at one k (`elements`: 8 of a 16-bit type). `depth` vectors of
// consecutive k form a block, which its thread transposes. The index bits are, from bit 0: low row
// groups (up to 3 bits), k blocks, high row groups. 8 lanes read 128 bytes at one k. The lanes of
// an LDS phase differ first in the row group, and then in the part of the chunk that they write.
template <class Operand> struct VectorMap<Operand, Major::row, false> {
    using Tile = OperandTile<Operand>;
    using Layout = typename Tile::Layout;
    static constexpr int elements =
        Layout::chunk_bytes / Tile::element_bytes; // per vector, along rows
    static constexpr int num_vectors =
        Operand::tile_rows * Operand::tile_k / elements / Operand::num_threads;
    static constexpr int depth = minimum(num_vectors, elements);
    static constexpr int num_blocks = num_vectors / depth;
    static constexpr int num_writes = num_blocks * elements;
    static constexpr u32 row_groups = Operand::tile_rows / elements;
    static constexpr u32 lane_groups = minimum(row_groups, 8u);
    static constexpr u32 k_blocks = Operand::tile_k / depth;
    static constexpr u32 slab_blocks = Tile::slab_k / depth;

    static_assert(
        depth * Tile::element_bytes >= 4,
        "a row of a transposed block must fill a dword: with 16-bit elements, at least 2 vectors");

    CUPYGEMM_INLINE static constexpr u32 row_of(u32 index) {
        const u32 high = index / lane_groups / k_blocks;
        return (high * lane_groups + index % lane_groups) * elements;
    }
    // A tile of 4 row groups lacks one bit to distinguish 8 lanes by row. With 16-bit elements, the
    // top bit of the chunk takes its place, which the rotation keeps apart from the row groups; the
    // k blocks are numbered accordingly. (The rotation of bytes uses the bottom bits.)
    CUPYGEMM_INLINE static constexpr u32 k_of(u32 index) {
        const u32 block = index / lane_groups % k_blocks;
        if (lane_groups == 8 || Tile::element_bytes == 1)
            return block * depth;
        const u32 within = block % slab_blocks;
        return (block - within + within / 2 + within % 2 * (slab_blocks / 2)) * depth;
    }
    // Row j of the block.
    CUPYGEMM_INLINE static constexpr u32 lds_of(u32 index, u32 j) {
        const u32 k = k_of(index);
        const u32 byte = k % Tile::slab_k * Tile::element_bytes;
        return k / Tile::slab_k * Layout::slab_bytes +
               Layout::offset(RowOrder::lds_row(row_of(index) + j), byte / Layout::chunk_bytes) +
               byte % Layout::chunk_bytes;
    }
};

// Which 16 bytes of k a lane reads: row lane % mma_rows of a fragment, chunk lane / mma_rows of a k
// step. The rows of a wave are adjacent, or, if the tile is split into `parts`, equally many in
// each part.
template <class Operand, int parts = 1> struct FragmentMap {
    using Tile = OperandTile<Operand>;
    using Layout = typename Tile::Layout;
    static constexpr u32 num_fragments = Operand::wave_rows / Operand::mma_rows;
    static constexpr u32 part_fragments = num_fragments / parts;
    static constexpr u32 chunks_per_step = wave_size / Operand::mma_rows;
    static constexpr u32 steps_per_slab = Layout::chunks_per_row / chunks_per_step;
    static constexpr u32 num_steps = Tile::num_slabs * steps_per_slab;

    static_assert(part_fragments * parts == num_fragments, "a part must hold whole fragments");

    // The LDS row of a wave's first row, and that of a fragment's first row relative to it. They
    // have no bits in common.
    CUPYGEMM_INLINE static constexpr u32 row_of_wave(u32 wave) {
        return wave * (Operand::wave_rows / parts);
    }
    CUPYGEMM_INLINE static constexpr u32 row_of_fragment(u32 fragment) {
        return fragment / part_fragments * (Operand::tile_rows / parts) +
               fragment % part_fragments * Operand::mma_rows;
    }
    // The lane's part of the offset: its place in fragment 0 of step 0.
    CUPYGEMM_INLINE static constexpr u32 lds_of_lane(u32 wave, u32 lane) {
        return Layout::offset(row_of_wave(wave) + lane % Operand::mma_rows,
                              lane / Operand::mma_rows);
    }
    // The part of the fragment and the step, a constant.
    CUPYGEMM_INLINE static constexpr u32 lds_of_step(u32 fragment, u32 step) {
        return step / steps_per_slab * Layout::slab_bytes +
               Layout::offset(row_of_fragment(fragment), step % steps_per_slab * chunks_per_step);
    }
};

} // namespace cupygemm
