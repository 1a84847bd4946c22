// Rows of staged blocks, and their stores to rows of global memory that begin at any element.
//
// A row has 128 bytes, or the 64 of as many single bytes. Eight lanes store a row of 128 bytes,
// which covers seven or eight vectors of 16 bytes that are aligned where they go, and four lanes
// one of 64. A lane reads the two chunks of the staged row in which its vector lies and shifts them
// into place. What the vectors leave of a row, at its two ends, is less than 16 bytes in all, and
// lanes store it as elements. So are all elements of a block that reaches over the edge, or is
// narrow.
//
//   chunks of a row |     0       |     1       |     2       | ... |     7       |
//   vectors         | head |      1      |      2      | ...   |      7      |tail|
#pragma once

#include "hopper/stage_element.cuh"
#include "hopper/vector.cuh"
#include "hopper/wgmma.cuh"

namespace cupygemm {

// The twin of cupygemm._backends.hopper.config.staged_row_bytes.
template <class Bits> constexpr u32 staged_row_bytes = sizeof(Bits) == 1 ? 64 : 128;

// Where byte `at` of a row of a swizzled block lies; bytes before the row count from its end. Of an
// address, TMA changes bits 4 to 6, or 4 and 5 where rows have 64 bytes, with those from bit 7 on.
template <u32 row_bytes>
CUPYGEMM_INLINE SharedAddress staged_byte(SharedAddress staged, u32 line, u32 at) {
    const u32 swizzle = line / (128 / row_bytes) % (row_bytes / 16);
    return staged + line * row_bytes + ((at % row_bytes) ^ swizzle << 4);
}

// A lane's part of a whole row: one of the vectors, and its share of the elements beside them.
template <class Bits> struct RowPart {
    static constexpr u32 row_bytes = staged_row_bytes<Bits>;
    static constexpr u32 lanes = row_bytes / Vector::bytes;
    static constexpr u32 beside = Vector::bytes / sizeof(Bits); // elements, one more than there are
    static constexpr u32 share = ceil_div<u32>(beside, lanes);
    static_assert(share == 1 || share * lanes == beside, "lanes store as many elements each");

    u64 vector_to, element_to[share];
    Vector vector;
    Bits element[share];
    bool has_vector, has_element;

    // `lane` counts within the row, of line `line`, that goes to `to`.
    CUPYGEMM_INLINE void load(SharedAddress staged, u32 line, u32 lane, u64 to) {
        const u32 begin = static_cast<u32>(to) % Vector::bytes; // within the row's first vector
        const u32 at = lane * Vector::bytes - begin;
        vector = shifted(
            load_shared_vector(staged_byte<row_bytes>(staged, line, at & ~(Vector::bytes - 1))),
            load_shared_vector(staged_byte<row_bytes>(staged, line, lane * Vector::bytes)),
            at % Vector::bytes);
#pragma unroll
        for (u32 i = 0; i < share; ++i) {
            // Elements that would precede the row's first are its last.
            const u32 alone = (i * lanes + lane) * sizeof(Bits) - begin;
            element[i] = load_shared<Bits>(staged_byte<row_bytes>(staged, line, alone));
            element_to[i] = to + alone % row_bytes;
        }
        vector_to = to + static_cast<i32>(at);
        has_vector = lane > 0 || begin == 0;
        has_element = lane < beside && begin != 0;
    }

    CUPYGEMM_INLINE void store() const {
        if (has_vector)
            store_global_vector(vector_to, vector);
        if (has_element) {
#pragma unroll
            for (u32 i = 0; i < share; ++i)
                store_global<Bits>(element_to[i], element[i]);
        }
    }
};

// One warp. Store the 16 rows of a staged block from `line` on, the first of them to `to`: `count`
// elements of each of the first `rows`. A lane reads what it has of up to `most_ahead` rows before
// it stores the first, so that their latencies overlap: a tile at the edge may be what a product
// waits for.
template <class Bits, u32 most_ahead> CUPYGEMM_INLINE void
store_rows(SharedAddress staged, u32 line, u32 lane, u64 to, i64 pitch, i32 rows, i32 count) {
    constexpr u32 row_bytes = staged_row_bytes<Bits>;
    constexpr i32 columns = row_bytes / sizeof(Bits), all = 16;
    if (count == columns) {
        constexpr u32 lanes = RowPart<Bits>::lanes, at_once = 32 / lanes;
        // A part with a share of several elements takes the registers of several parts.
        constexpr u32 ahead = RowPart<Bits>::share > 1 ? 1 : most_ahead;
        static_assert(all % (ahead * at_once) == 0, "lanes have as many rows each time");
#pragma unroll 1 // unrolled, it takes registers that promoted sums do not leave
        for (u32 first = 0; first < all; first += ahead * at_once) {
            RowPart<Bits> parts[ahead];
#pragma unroll
            for (u32 i = 0; i < ahead; ++i) {
                const u32 row = first + i * at_once + lane / lanes;
                parts[i].load(staged, line + row, lane % lanes, to + row * pitch);
            }
#pragma unroll
            for (u32 i = 0; i < ahead; ++i)
                if (static_cast<i32>(first + i * at_once + lane / lanes) < rows)
                    parts[i].store();
        }
    } else {
        constexpr u32 share = ceil_div<u32>(columns, 32), ahead = most_ahead;
        static_assert(all % ahead == 0, "as many rows each time");
#pragma unroll 1
        for (i32 first = 0; first < minimum(rows, all); first += ahead) {
            Bits elements[ahead][share];
#pragma unroll
            for (u32 i = 0; i < ahead * share; ++i)
                elements[i / share][i % share] = load_shared<Bits>(staged_byte<row_bytes>(
                    staged, line + first + i / share, (lane + i % share * 32) * sizeof(Bits)));
#pragma unroll
            for (u32 i = 0; i < ahead * share; ++i) {
                const i32 row = first + static_cast<i32>(i / share);
                const u32 at = lane + i % share * 32;
                if (row < rows && static_cast<i32>(at) < count)
                    store_global<Bits>(to + row * pitch + at * sizeof(Bits),
                                       elements[i / share][i % share]);
            }
        }
    }
}

} // namespace cupygemm
