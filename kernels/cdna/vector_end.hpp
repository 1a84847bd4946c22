// The end of a matrix within a 16-byte vector: elements beyond it become zero.
//
// The first `valid` elements of a vector lie inside the matrix; `valid` may exceed the vector's
// size or be negative. If the dword that holds the matrix's last element also holds bytes beyond
// the matrix, the load of the vector returns zero for all of that dword. Elements narrower than a
// dword are therefore loaded once more, one by one, back from the end: `load` starts these loads,
// and `cut` merges them.
#pragma once

#include "cdna/buffer.hpp"
#include "cdna/tile.hpp"

namespace cupygemm {

// Whether a tile needs no masks: all of its k lies in the matrix, and no element shares its dword
// with the end of the matrix. `rows_left` rows and `k_left` values of k lie in the matrix from the
// tile's first element on. The result is uniform, and usually true.
template <class Operand> CUPYGEMM_INLINE bool is_whole(i32 rows_left, i32 k_left) {
    const bool ends_in_dword = Operand::major == Major::row &&
                               rows_left * OperandTile<Operand>::element_bytes % 4 != 0 &&
                               rows_left < Operand::tile_rows;
    return Operand::dword_aligned && k_left == Operand::tile_k && !ends_in_dword;
}

// The number of elements from the first of a loader's vector i to the end of the matrix, along the
// vector. It may exceed the vector's size.
template <class Loader>
CUPYGEMM_INLINE i32 num_valid(const Loader &loader, int i, i32 rows_left, i32 k_left) {
    const i32 k_valid = k_left - static_cast<i32>(loader.k(i));
    if constexpr (Loader::major == Major::k)
        return k_valid;
    else
        return k_valid > 0 ? rows_left - static_cast<i32>(loader.row(i)) : 0;
}

template <int element_bytes> struct VectorEnd {
    static_assert(element_bytes % 4 == 0, "elements narrower than a dword have specializations");
    struct Last {};

    CUPYGEMM_INLINE static Last load(Resource /*exact*/, u32 /*offset*/, i32 /*valid*/) {
        return {};
    }

    CUPYGEMM_INLINE static u32x4 cut(u32x4 vector, Last /*last*/, i32 valid) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            vector[i] = i * 4 / element_bytes < valid ? vector[i] : 0;
        return vector;
    }
};

template <> struct VectorEnd<2> {
    using Last = u32; // element valid - 1

    CUPYGEMM_INLINE static Last load(Resource exact, u32 offset, i32 valid) {
        const bool ends_here = valid >= 1 && valid <= 8;
        return buffer_load_u16(exact, ends_here ? offset + (valid - 1) * 2 : out_of_range);
    }

    CUPYGEMM_INLINE static u32x4 cut(u32x4 vector, Last last, i32 valid) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const i32 left = valid - 2 * i;
            const u32 odd_end = left == 1 ? last : 0;
            const u32 even_end = left == 2 ? (vector[i] & 0xffffu) | last << 16 : odd_end;
            vector[i] = left > 2 ? vector[i] : even_end;
        }
        return vector;
    }
};

// Bytes. Rows start at dwords (cupygemm._backends.cdna.check.check), so the first 1 to 3 bytes of
// the dword in which the matrix ends lie inside it, and they are the last bytes of a vector.
template <> struct VectorEnd<1> {
    using Last = u32; // the matrix's last dword, with zeros beyond it

    CUPYGEMM_INLINE static Last load(Resource exact, u32 offset, i32 valid) {
        const bool ends_here = valid >= 1 && valid <= 16;
        u32 last = 0;
#pragma unroll
        for (int i = 0; i < 3; ++i) {
            const u32 byte = (valid & ~3) + i;
            const bool inside = ends_here && i < (valid & 3);
            last |= buffer_load_u8(exact, inside ? offset + byte : out_of_range) << 8 * i;
        }
        return last;
    }

    CUPYGEMM_INLINE static u32x4 cut(u32x4 vector, Last last, i32 valid) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const i32 left = valid - 4 * i;
            const u32 end = left > 0 ? last : 0;
            vector[i] = left >= 4 ? vector[i] : end;
        }
        return vector;
    }
};

} // namespace cupygemm
