// Vectors of 16 bytes, loaded from rows that begin at any byte.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

struct Vector {
    static constexpr u32 bytes = 16;
    u32 words[4];
};

// The 16 bytes that begin at byte `shift` of the 32 bytes (x, y); `shift` is less than 16.
CUPYGEMM_INLINE Vector shifted(Vector x, Vector y, u32 shift) {
    const u32 both[8] = {x.words[0], x.words[1], x.words[2], x.words[3],
                         y.words[0], y.words[1], y.words[2], y.words[3]};
    u32 pairs[6], words[5]; // from the first byte's pair of words, and from its word, on
#pragma unroll
    for (u32 i = 0; i < 6; ++i)
        pairs[i] = shift & 8 ? both[i + 2] : both[i];
#pragma unroll
    for (u32 i = 0; i < 5; ++i)
        words[i] = shift & 4 ? pairs[i + 1] : pairs[i];
    Vector v;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) // a funnel shift
        v.words[i] =
            static_cast<u32>((static_cast<u64>(words[i + 1]) << 32 | words[i]) >> (shift & 3) * 8);
    return v;
}

// Not ld.global.nc, which the compiler may move ahead of the wait for the kernel that writes there.
CUPYGEMM_INLINE Vector load_global_vector(u64 address) {
    Vector v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.words[0]), "=r"(v.words[1]), "=r"(v.words[2]), "=r"(v.words[3])
                 : "l"(address));
    return v;
}

CUPYGEMM_INLINE void store_global_vector(u64 address, Vector v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.words[0]),
                 "r"(v.words[1]), "r"(v.words[2]), "r"(v.words[3])
                 : "memory");
}

// Ordered only by the preceding barrier: the load may move past stores to global memory.
CUPYGEMM_INLINE Vector load_shared_vector(u32 address) {
    Vector v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.words[0]), "=r"(v.words[1]), "=r"(v.words[2]), "=r"(v.words[3])
                 : "r"(address));
    return v;
}

} // namespace cupygemm
