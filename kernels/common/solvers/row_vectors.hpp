// Adjacent elements of a row, in 16-byte accesses.
#pragma once

#include "common/solvers/scalar.hpp"

namespace cupygemm {

template <class S> struct alignas(16) RowVector {
    static constexpr u32 count = 16 / sizeof(S);
    S elements[count];
};

// Load elements that begin at a multiple of 16 bytes.
template <class S, u32 n> CUPYGEMM_INLINE void load_vectors(const S *from, S (&to)[n]) {
    using Vector = RowVector<S>;
#pragma unroll
    for (u32 k = 0; k < n; k += Vector::count) {
        const Vector vector = *reinterpret_cast<const Vector *>(from + k);
#pragma unroll
        for (u32 c = 0; c < Vector::count; ++c)
            to[k + c] = vector.elements[c];
    }
}

// Store elements that begin at a multiple of 16 bytes.
template <class S, u32 n> CUPYGEMM_INLINE void store_vectors(const S (&from)[n], S *to) {
    using Vector = RowVector<S>;
#pragma unroll
    for (u32 k = 0; k < n; k += Vector::count) {
        Vector vector;
#pragma unroll
        for (u32 c = 0; c < Vector::count; ++c)
            vector.elements[c] = from[k + c];
        *reinterpret_cast<Vector *>(to + k) = vector;
    }
}

} // namespace cupygemm
