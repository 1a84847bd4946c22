// Where an operand's elements lie in LDS: rows of 128 bytes along k, rotated so that banks never
// clash.
//
// A tile of an operand is (slab, row, chunk): a slab is 128 bytes of k, a chunk 16 bytes of that,
// and a row one index of m (for A) or n (for B). Two maps place it, both linear over XOR, so the
// offset of (x ^ y) is the offset of x XOR the offset of y: an address is computed once per lane,
// and every other address of the loop is that one XOR a constant plus a constant.
//
// The maps serve four access patterns at once (tests/kernels/test_layout.py proves each, phase by
// phase):
//   K-major stores   8 lanes write the 8 chunks of a row;
//   row-major stores 8 lanes write one chunk of 8 rows that are a vector apart, after a
//                    transposition;
//   16x16 reads      lane l reads row l % 16, chunk l / 16;
//   32x32 reads      lane l reads row l % 32, chunk l / 32.
#pragma once

#include "common/numeric.hpp"

namespace cupygemm {

enum class Major {
    k,   // consecutive elements along k: A as (m, k), B as (n, k)
    row, // consecutive elements along m or n: A as (k, m), B as (k, n)
};

// Order of rows within a block of 32. A matrix instruction leaves 4 consecutive rows of its first
// operand in a lane; this order puts rows 8q .. 8q+3 and 8q+4 .. 8q+7 into the same lane, 16 LDS
// rows apart. The first operand is B, so a lane ends up with 8 consecutive output columns: 16 bytes
// of a 16-bit output.
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

// Bank rotation: the 16-byte slot (8 * row + chunk) is XORed with a mask for each set bit of the
// row. Slots that are equal modulo 8 (32 banks) or 16 (64 banks) share banks. The masks are one
// solution of linear conditions: for each access pattern above, the slots of the lanes of one LDS
// phase are independent. The row-major stores differ by the element's size, since a vector of 16
// bytes is 1 to 16 rows. Where a condition leaves the choice, bits 4 and 5 have mask 0 or 4, so
// that neighbouring fragments need no address register besides those of the k steps.
template <int banks, int element_bytes> struct BankRotation;

template <int element_bytes> struct BankRotation<32, element_bytes> { // of 4 or 8 bytes
    static constexpr u32 masks[7] = {4, 1, 2, 1, 4, 0, 0};
};
template <> struct BankRotation<32, 16> { // of which no instruction reads 32 rows
    static constexpr u32 masks[7] = {1, 2, 4, 0, 4, 0, 0};
};
template <> struct BankRotation<32, 2> {
    static constexpr u32 masks[7] = {1, 2, 6, 1, 0, 4, 0};
};
template <> struct BankRotation<32, 1> {
    static constexpr u32 masks[7] = {1, 2, 4, 4, 0, 2, 1};
};

// A row fills half of 64 banks: bit 0 of the row is slot bit 3.
template <int element_bytes> struct BankRotation<64, element_bytes> { // of 4 or 8 bytes
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
    // Offset bits that the rotation touches; above them, XOR with a constant is adding it.
    static constexpr u32 rotated_bytes = banks * 4;

    static_assert(num_rows % RowOrder::block == 0,
                  "a tile holds whole 32-row blocks of the row order");

    // Byte offset of a chunk in its slab; `row` counts LDS rows.
    CUPYGEMM_INLINE static constexpr u32 offset(u32 row, u32 chunk) {
        u32 slot = row * chunks_per_row + chunk;
        for (u32 bit = 0; bit < 7; ++bit)
            slot ^= (0u - (row >> bit & 1u)) & BankRotation<banks, element_bytes>::masks[bit];
        return slot * chunk_bytes;
    }

    // The inverse: which row and chunk lie in a 16-byte slot, counted from the start of the slab.
    // The masks only touch slot bits 0 to 3, so all of the row but, with 64 banks, its lowest bit
    // can be read off the slot, and from that the bits that the masks changed.
    CUPYGEMM_INLINE static constexpr u32 row_of_slot(u32 slot) { return unrotated(slot) / 8; }
    CUPYGEMM_INLINE static constexpr u32 chunk_of_slot(u32 slot) { return unrotated(slot) % 8; }
    CUPYGEMM_INLINE static constexpr u32 unrotated(u32 slot) {
        static_assert(chunks_per_row == 8 && banks <= 64, "the rotation changes bits 0 to 3 alone");
        for (u32 bit = 7; bit-- > 0;) // bit 0 of the row last: the others may have changed it
            slot ^= (0u - (slot / 8 >> bit & 1u)) & BankRotation<banks, element_bytes>::masks[bit];
        return slot;
    }

    // The offset of (x ^ y), from that of x in a register and that of y at compile time.
    CUPYGEMM_INLINE static u32 combine(u32 x, u32 y) {
        return (x ^ (y % rotated_bytes)) + (y - y % rotated_bytes);
    }
};

} // namespace cupygemm
