// Stores of staged rows to global memory without TMA; the rows there may begin at any element.
//
// A staged row has 128 bytes, or 64 bytes of 1-byte elements. Eight lanes store a row of 128 bytes,
// which covers seven or eight 16-byte vectors that are aligned at the destination; four lanes store
// a row of 64 bytes. A lane reads the two chunks of the staged row in which its vector lies, and
// shifts them into place. The remainders at both ends of a row are less than 16 bytes together, and
// lanes store them element by element. Blocks that are narrow or extend beyond the matrix are
// stored entirely by elements.
//
//   chunks of a row |     0       |     1       |     2       | ... |     7       |
//   vectors         | head |      1      |      2      | ...   |      7      |tail|
#pragma once

#include "hopper/stage_element.cuh"
#include "hopper/vector.cuh"
#include "hopper/wgmma.cuh"

namespace cupygemm {

// It must match cupygemm._backends.hopper.config.staged_row_bytes.
template <class Bits> constexpr u32 staged_row_bytes = sizeof(Bits) == 1 ? 64 : 128;

// The address of byte `at` of a row of a swizzled block; bytes before the row count from its end.
// TMA XORs address bits 4 to 6 (4 and 5 where rows have 64 bytes) with the bits from bit 7 on.
template <u32 row_bytes>
CUPYGEMM_INLINE SharedAddress staged_byte(SharedAddress staged, u32 line, u32 at) {
    const u32 swizzle = line / (128 / row_bytes) % (row_bytes / 16);
    return staged + line * row_bytes + ((at % row_bytes) ^ swizzle << 4);
}

// A lane's part of a whole row: one of the vectors, and a share of the elements at both ends.
template <class Bits> struct RowPart {
    static constexpr u32 row_bytes = staged_row_bytes<Bits>;
    static constexpr u32 lanes = row_bytes / Vector::bytes;
    // One more than the largest number of elements at both ends.
    static constexpr u32 beside = Vector::bytes / sizeof(Bits);
    static constexpr u32 share = ceil_div<u32>(beside, lanes);
    static_assert(share == 1 || share * lanes == beside,
                  "every lane must store the same number of elements");

    u64 vector_to, element_to[share];
    Vector vector;
    Bits element[share];
    bool has_vector, has_element;

    // `lane` is the index within the lanes of the row. The row is staged line `line`, and goes to
    // `to`.
    CUPYGEMM_INLINE void load(SharedAddress staged, u32 line, u32 lane, u64 to) {
        const u32 begin = static_cast<u32>(to) % Vector::bytes; // within the row's first vector
        const u32 at = lane * Vector::bytes - begin;
        vector = shifted(
            load_shared_vector(staged_byte<row_bytes>(staged, line, at & ~(Vector::bytes - 1))),
            load_shared_vector(staged_byte<row_bytes>(staged, line, lane * Vector::bytes)),
            at % Vector::bytes);
#pragma unroll
        for (u32 i = 0; i < share; ++i) {
            // Positions before the row's first element stand for its last elements.
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

// One warp. Store the 16 staged rows from `line` on, the first of them to `to`: `count` elements of
// each of the first `rows` rows. A lane reads its part of up to `most_ahead` rows before it stores
// the first, so that their latencies overlap: a whole product may wait for a tile at the edge.
template <class Bits, u32 most_ahead> CUPYGEMM_INLINE void
store_rows(SharedAddress staged, u32 line, u32 lane, u64 to, i64 pitch, i32 rows, i32 count) {
    constexpr u32 row_bytes = staged_row_bytes<Bits>;
    constexpr i32 columns = row_bytes / sizeof(Bits), all = 16;
    if (count == columns) {
        constexpr u32 lanes = RowPart<Bits>::lanes, at_once = 32 / lanes;
        // A part with a share of several elements takes as many registers as several parts.
        constexpr u32 ahead = RowPart<Bits>::share > 1 ? 1 : most_ahead;
        static_assert(all % (ahead * at_once) == 0, "lanes must store equally many rows each time");
#pragma unroll 1 // unrolled, it would need registers that promoted sums do not leave
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
        static_assert(all % ahead == 0, "lanes must store equally many rows each time");
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
