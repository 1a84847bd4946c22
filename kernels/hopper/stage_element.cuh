// Conversions, loads and stores of single elements and pairs, in shared and global memory.
// Source: PTX ISA 9.0, "stmatrix", "cvt".
#pragma once

#include "common/numeric.hpp"
#include "hopper/mbarrier.cuh"

namespace cupygemm {

// Round two accumulators; the first goes to the low half.
template <class Out> CUPYGEMM_INLINE u32 pack(float low, float high) {
    u32 bits;
    if constexpr (IsSame<Out, bf16>::value)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

// Round to the nearest integer, ties to even, and saturate; NaN becomes 0.
CUPYGEMM_INLINE i32 nearest_i32(float x) {
    i32 n;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(n) : "f"(x));
    return n;
}

// Convert two integers to saturated bytes; the first goes to the low byte.
template <class Out> CUPYGEMM_INLINE u16 pack_saturated(i32 low, i32 high) {
    u32 bits;
    if constexpr (IsSame<Out, i8>::value)
        asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, 0;" : "=r"(bits) : "r"(high), "r"(low));
    else
        asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, 0;" : "=r"(bits) : "r"(high), "r"(low));
    return static_cast<u16>(bits);
}

// Convert two floats to saturated bytes, as rounded_result does.
template <class Out> CUPYGEMM_INLINE u16 pack_bytes(float low, float high) {
    if constexpr (IsSame<Out, i8>::value || IsSame<Out, u8>::value) {
        return pack_saturated<Out>(nearest_i32(low), nearest_i32(high)); // ptxas makes it one F2IP
    } else {
        u16 bits;
        if constexpr (IsSame<Out, e4m3fn>::value)
            asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
        else
            asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
        return bits;
    }
}

// Without an epilogue, integers wrap around.
template <class Out> CUPYGEMM_INLINE u16 pack_bytes(i32 low, i32 high) {
    static_assert(IsSame<Out, i8>::value,
                  "without an epilogue, only i8 integers are stored as bytes");
    u32 bits;
    asm("prmt.b32 %0, %1, %2, 0x40;" : "=r"(bits) : "r"(low), "r"(high));
    return static_cast<u16>(bits);
}

// Store four 8x8 matrices of 16-bit elements, or two. Lane l supplies the address of row l % 8 of
// matrix l / 8.
CUPYGEMM_INLINE void stmatrix_x4(SharedAddress row, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

CUPYGEMM_INLINE void stmatrix_x2(SharedAddress row, u32 a, u32 b) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(a),
                 "r"(b)
                 : "memory");
}

// Store four matrices, or two, transposed: a lane's elements belong to column l / 4 instead of row
// l / 4.
CUPYGEMM_INLINE void stmatrix_x4_trans(SharedAddress row, u32 a, u32 b, u32 c, u32 d) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(a),
        "r"(b), "r"(c), "r"(d)
        : "memory");
}
CUPYGEMM_INLINE void stmatrix_x2_trans(SharedAddress row, u32 a, u32 b) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row),
                 "r"(a), "r"(b)
                 : "memory");
}

// Store accumulators without a copy: a copy with another type would make wgmma wait.
template <class Out>
CUPYGEMM_INLINE void store_shared_pair(SharedAddress address, float x, float y) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

template <class Out> CUPYGEMM_INLINE void store_shared_pair(SharedAddress address, i32 x, i32 y) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(x), "r"(y) : "memory");
}

template <class Out>
CUPYGEMM_INLINE void store_shared_pair(SharedAddress address, double x, double y) {
    if constexpr (IsSame<Out, f32>::value)
        store_shared_pair<Out>(address, static_cast<float>(x), static_cast<float>(y));
    else
        asm volatile("st.shared.v2.f64 [%0], {%1, %2};" ::"r"(address), "d"(x), "d"(y) : "memory");
}

// Store the results of an epilogue.
CUPYGEMM_INLINE void store_shared_pair(SharedAddress address, u32 x, u32 y) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(x), "r"(y) : "memory");
}

CUPYGEMM_INLINE void store_shared_pair(SharedAddress address, u64 x, u64 y) {
    asm volatile("st.shared.v2.b64 [%0], {%1, %2};" ::"r"(address), "l"(x), "l"(y) : "memory");
}

CUPYGEMM_INLINE void store_shared_bytes(SharedAddress address, u16 two) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(two) : "memory");
}

// Ordered only by the preceding barrier: the load may move past stores to global memory.
template <class Bits> CUPYGEMM_INLINE Bits load_shared(SharedAddress address) {
    Bits bits;
    if constexpr (sizeof(Bits) == 1) {
        u16 wide; // no asm constraint stands for a byte
        asm volatile("ld.shared.u8 %0, [%1];" : "=h"(wide) : "r"(address));
        bits = static_cast<Bits>(wide);
    } else if constexpr (sizeof(Bits) == 2)
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(address));
    else if constexpr (sizeof(Bits) == 8)
        asm volatile("ld.shared.u64 %0, [%1];" : "=l"(bits) : "r"(address));
    else
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(bits) : "r"(address));
    return bits;
}

CUPYGEMM_INLINE double load_shared_f64(SharedAddress address) {
    double x;
    asm volatile("ld.shared.f64 %0, [%1];" : "=d"(x) : "r"(address));
    return x;
}

CUPYGEMM_INLINE void store_shared_element(SharedAddress address, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}

// Load `bytes` bytes from an address that is a multiple of `bytes`, as words; zeros where the
// predicate is false. Volatile, since the memory may be written later: a source of the epilogue may
// be C.
template <int bytes>
CUPYGEMM_INLINE void load_global_if(u32 *word, const void *address, bool predicate) {
    const u32 inside = predicate;
    word[0] = 0;
    if constexpr (bytes == 16) {
        word[1] = word[2] = word[3] = 0;
        asm volatile("{\n.reg .pred inside;\nsetp.ne.b32 inside, %5, 0;\n"
                     "@inside ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
                     : "+r"(word[0]), "+r"(word[1]), "+r"(word[2]), "+r"(word[3])
                     : "l"(address), "r"(inside));
    } else if constexpr (bytes == 8) {
        word[1] = 0;
        asm volatile("{\n.reg .pred inside;\nsetp.ne.b32 inside, %3, 0;\n"
                     "@inside ld.global.v2.u32 {%0, %1}, [%2];\n}"
                     : "+r"(word[0]), "+r"(word[1])
                     : "l"(address), "r"(inside));
    } else if constexpr (bytes == 4) {
        asm volatile("{\n.reg .pred inside;\nsetp.ne.b32 inside, %2, 0;\n"
                     "@inside ld.global.u32 %0, [%1];\n}"
                     : "+r"(word[0])
                     : "l"(address), "r"(inside));
    } else if constexpr (bytes == 2) {
        asm volatile("{\n.reg .pred inside;\nsetp.ne.b32 inside, %2, 0;\n"
                     "@inside ld.global.u16 %0, [%1];\n}"
                     : "+r"(word[0])
                     : "l"(address), "r"(inside));
    } else {
        static_assert(bytes == 1, "a load must take a power of two of bytes, at most 16");
        asm volatile("{\n.reg .pred inside;\nsetp.ne.b32 inside, %2, 0;\n"
                     "@inside ld.global.u8 %0, [%1];\n}"
                     : "+r"(word[0])
                     : "l"(address), "r"(inside));
    }
}

// Bring the address's cache line to L2. This is a hint: nothing waits for it.
CUPYGEMM_INLINE void prefetch_to_l2(const void *address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

template <class Bits> CUPYGEMM_INLINE void store_global(u64 address, Bits bits) {
    if constexpr (sizeof(Bits) == 1)
        asm volatile("st.global.u8 [%0], %1;" ::"l"(address), "h"(static_cast<u16>(bits))
                     : "memory");
    else if constexpr (sizeof(Bits) == 2)
        asm volatile("st.global.u16 [%0], %1;" ::"l"(address), "h"(bits) : "memory");
    else if constexpr (sizeof(Bits) == 8)
        asm volatile("st.global.u64 [%0], %1;" ::"l"(address), "l"(bits) : "memory");
    else
        asm volatile("st.global.u32 [%0], %1;" ::"l"(address), "r"(bits) : "memory");
}

} // namespace cupygemm
