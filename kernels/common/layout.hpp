// The LDS layout of operand tiles: rows of 128 bytes along k, rotated to avoid bank conflicts.
//
// A tile is (slab, row, chunk): a slab holds 128 bytes of k, a chunk holds 16 bytes of those, and a
// row is one index of m (for A) or n (for B). RowOrder permutes the rows and BankRotation permutes
// the chunks. Both maps are linear over XOR: the offset of (x ^ y) is the offset of x XOR the
// offset of y. A lane therefore computes one address, and reaches every other address of the loop
// with an XOR and an addition of constants.
//
// The same layout is free of bank conflicts for four access patterns (tests/kernels/test_layout.py
// proves each, phase by phase):
//   K-major stores   8 lanes write the 8 chunks of a row;
//   row-major stores 8 lanes write one chunk of 8 rows, each a vector apart, after transposing a
//                    block in registers;
//   16x16 reads      lane l reads row l % 16, chunk l / 16;
//   32x32 reads      lane l reads row l % 32, chunk l / 32.
#pragma once

#include "common/numeric.hpp"

namespace cupygemm {

enum class Major {
    k,   // consecutive elements lie along k: A is (m, k), B is (n, k)
    row, // consecutive elements lie along m or n: A is (k, m), B is (k, n)
};

// The order of rows within a block of 32. A matrix instruction leaves 4 consecutive rows of its
// first operand in a lane. This order places rows 8q .. 8q+3 and 8q+4 .. 8q+7 in the same lane, 16
// LDS rows apart. The first operand is B, so a lane ends up with 8 consecutive output columns: 16
// bytes of a 16-bit output.
//   tile row bits 4 3 2 1 0  ->  LDS row bits 2 4 3 1 0
struct RowOrder {
    static constexpr u32 block = 32;

    CUPYGEMM_INLINE static constexpr u32 lds_row(u32 row) {
        return (row & ~31u) | (row & 4u) << 2 | (row >> 1 & 12u) | (row & 3u);
    }
    CUPYGEMM_INLINE static constexpr u32 tile_row(u32 lds_row) {
        return (lds_row & ~31u) | (lds_row & 12u) << 1 | (lds_row >> 2 & 4u) | (lds_row & 3u);
    }
};

// Bank rotation: the index of a 16-byte slot, 8 * row + chunk, is XORed with one mask for each set
// bit of the row. Slots that are equal modulo 8 (32 banks) or modulo 16 (64 banks) share banks. The
// masks solve a system of linear conditions: for each access pattern above, the slots of the lanes
// of one LDS phase are linearly independent. Row-major stores depend on the element size, since a
// 16-byte vector spans 1 to 16 rows. Where the conditions leave a choice, bits 4 and 5 of the row
// take mask 0 or 4, so that neighbouring fragments share the address registers of the k steps.
template <int banks, int element_bytes> struct BankRotation;

template <int element_bytes> struct BankRotation<32, element_bytes> { // 4 or 8 bytes
    static constexpr u32 masks[7] = {4, 1, 2, 1, 4, 0, 0};
};
template <> struct BankRotation<32, 16> { // complex128: no instruction reads 32 of its rows
    static constexpr u32 masks[7] = {1, 2, 4, 0, 4, 0, 0};
};
template <> struct BankRotation<32, 2> {
    static constexpr u32 masks[7] = {1, 2, 6, 1, 0, 4, 0};
};
template <> struct BankRotation<32, 1> {
    static constexpr u32 masks[7] = {1, 2, 4, 4, 0, 2, 1};
};

// With 64 banks, a row fills half of them: bit 0 of the row is bit 3 of the slot.
template <int element_bytes> struct BankRotation<64, element_bytes> { // 4 or 8 bytes
    static constexpr u32 masks[7] = {0, 2, 8, 7, 4, 0, 0};
};
template <> struct BankRotation<64, 16> {
    static constexpr u32 masks[7] = {0, 2, 4, 0, 4, 0, 0};
};
template <> struct BankRotation<64, 2> {
    static constexpr u32 masks[7] = {0, 1, 12, 2, 0, 4, 0};
};
template <> struct BankRotation<64, 1> {
    static constexpr u32 masks[7] = {0, 1, 4, 10, 0, 4, 2};
};

template <int num_rows, int banks, int element_bytes> struct LdsLayout {
    static constexpr u32 chunk_bytes = 16;
    static constexpr u32 row_bytes = 128;
    static constexpr u32 chunks_per_row = row_bytes / chunk_bytes;
    static constexpr u32 slab_bytes = num_rows * row_bytes;
    // The rotation changes offset bits below this power of two; above, XOR with a constant equals
    // addition.
    static constexpr u32 rotated_bytes = banks * 4;

    static_assert(num_rows % RowOrder::block == 0,
                  "a tile must hold whole 32-row blocks of the row order");

    // Byte offset of a chunk within its slab; `row` is an LDS row.
    CUPYGEMM_INLINE static constexpr u32 offset(u32 row, u32 chunk) {
        u32 slot = row * chunks_per_row + chunk;
        for (u32 bit = 0; bit < 7; ++bit)
            slot ^= (0u - (row >> bit & 1u)) & BankRotation<banks, element_bytes>::masks[bit];
        return slot * chunk_bytes;
    }

    // The inverse: the row and the chunk of a 16-byte slot, counted from the start of the slab. The
    // masks change only slot bits 0 to 3. The slot therefore shows every bit of the row (with 64
    // banks, every bit but the lowest), and these determine the bits that the masks changed.
    CUPYGEMM_INLINE static constexpr u32 row_of_slot(u32 slot) { return unrotated(slot) / 8; }
    CUPYGEMM_INLINE static constexpr u32 chunk_of_slot(u32 slot) { return unrotated(slot) % 8; }
    CUPYGEMM_INLINE static constexpr u32 unrotated(u32 slot) {
        static_assert(chunks_per_row == 8 && banks <= 64,
                      "the rotation may change only slot bits 0 to 3");
        for (u32 bit = 7; bit-- > 0;) // row bit 0 comes last: the others may have changed it
            slot ^= (0u - (slot / 8 >> bit & 1u)) & BankRotation<banks, element_bytes>::masks[bit];
        return slot;
    }

    // The offset of (x ^ y), given the offset of x in a register and the offset of y as a constant.
    CUPYGEMM_INLINE static u32 combine(u32 x, u32 y) {
        return (x ^ (y % rotated_bytes)) + (y - y % rotated_bytes);
    }
};

} // namespace cupygemm
