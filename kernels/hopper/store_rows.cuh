// Stores rows of a staged block to rows of global memory that begin at any element.
//
// Eight lanes store a row of 128 bytes, which covers seven or eight vectors of 16 bytes that are
// aligned where they go. A lane reads the two chunks of the staged row in which its vector lies and
// shifts them into place. What the vectors leave of a row, at its two ends, is less than 16 bytes
// in all, and lanes store it as elements. So are all elements of a block that reaches over the
// edge.
//
//   chunks of a row |     0       |     1       |     2       | ... |     7       |
//   vectors         | head |      1      |      2      | ...   |      7      |tail|
#pragma once

#include "hopper/stage_element.cuh"
#include "hopper/vector.cuh"
#include "hopper/wgmma.cuh"

namespace cupygemm {

// Where byte `at` of a row of a swizzled block lies; bytes before the row count from its end.
CUPYGEMM_INLINE SharedAddress staged_byte(SharedAddress staged, u32 line, u32 at) {
    return staged + line * slab_bytes + ((at % slab_bytes) ^ (line & 7) << 4);
}

// A lane's part of a whole row: one of the vectors, and one of the elements beside them.
template <class Bits> struct RowPart {
    u64 vector_to, element_to;
    Vector vector;
    Bits element;
    bool has_vector, has_element;

    // `lane` counts within the row, of line `line`, that goes to `to`.
    CUPYGEMM_INLINE void load(SharedAddress staged, u32 line, u32 lane, u64 to) {
        const u32 begin = static_cast<u32>(to) % Vector::bytes; // within the row's first vector
        const u32 at = lane * Vector::bytes - begin, alone = lane * sizeof(Bits) - begin;
        vector = shifted(load_shared_vector(staged_byte(staged, line, at & ~(Vector::bytes - 1))),
                         load_shared_vector(staged_byte(staged, line, lane * Vector::bytes)),
                         at % Vector::bytes);
        // Elements that would precede the row's first are its last.
        element = load_shared<Bits>(staged_byte(staged, line, alone));
        vector_to = to + static_cast<i32>(at);
        element_to = to + alone % slab_bytes;
        has_vector = lane > 0 || begin == 0;
        has_element = lane < Vector::bytes / sizeof(Bits) && begin != 0;
    }

    CUPYGEMM_INLINE void store() const {
        if (has_vector)
            store_global_vector(vector_to, vector);
        if (has_element)
            store_global<Bits>(element_to, element);
    }
};

// One warp. Store the 16 rows of a staged block from `line` on, the first of them to `to`: `count`
// elements of each of the first `rows`. A lane reads its parts of `ahead` rows before it stores the
// first, so that their latencies overlap.
template <class Bits, u32 ahead> CUPYGEMM_INLINE void
store_rows(SharedAddress staged, u32 line, u32 lane, u64 to, i64 pitch, i32 rows, i32 count) {
    constexpr i32 columns = slab_bytes / sizeof(Bits), all = 16;
    if (rows >= all && count == columns) {
        constexpr u32 at_once = 32 / (slab_bytes / Vector::bytes);
        static_assert(all % (ahead * at_once) == 0, "lanes have as many rows each time");
#pragma unroll 1 // unrolled, it takes registers that promoted sums do not leave
        for (u32 first = 0; first < all; first += ahead * at_once) {
            RowPart<Bits> parts[ahead];
#pragma unroll
            for (u32 i = 0; i < ahead; ++i) {
                const u32 row = first + i * at_once + lane / 8;
                parts[i].load(staged, line + row, lane % 8, to + row * pitch);
            }
#pragma unroll
            for (const auto &part : parts)
                part.store();
        }
    } else {
#pragma unroll 1
        for (i32 row = 0; row < minimum(rows, all); ++row) {
#pragma unroll
            for (u32 at = lane; at < columns; at += 32)
                if (static_cast<i32>(at) < count)
                    store_global<Bits>(
                        to + row * pitch + at * sizeof(Bits),
                        load_shared<Bits>(staged_byte(staged, line + row, at * sizeof(Bits))));
        }
    }
}

} // namespace cupygemm
