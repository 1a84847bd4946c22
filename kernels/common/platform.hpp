// What differs between the compilers that take this source, and nothing else.
//
// Device code is C++17 without a standard library. It is compiled by clang with no ROCm headers, by
// hiprtc, and (the files of common/) by NVRTC; each spells the function-space attributes and the
// conversions to 16-bit floats differently. No other file asks which compiler it is under.
#pragma once

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define CUPYGEMM_NVIDIA 1
#else
#define CUPYGEMM_NVIDIA 0
#endif

#if !CUPYGEMM_NVIDIA
// clang's HIP mode knows the attributes; only ROCm's headers, which hiprtc includes, know the
// names.
#ifndef __device__
#define __device__ __attribute__((device))
#endif
#ifndef __global__
#define __global__ __attribute__((global))
#endif
#ifndef __shared__
#define __shared__ __attribute__((shared))
#endif
#endif

// Every device function is inlined: tiles live in registers, which a call could not return.
#define CUPYGEMM_INLINE __device__ inline __attribute__((always_inline))

namespace cupygemm {

using u8 = unsigned char;
using i8 = signed char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

static_assert(sizeof(u32) == 4 && sizeof(u64) == 8, "the fixed-width names must be what they say");

// Round to nearest, ties to even; NaN stays NaN. On gfx950 this is one hardware conversion, on
// gfx90a and gfx942 the compiler writes out the integer rounding.
CUPYGEMM_INLINE u16 bf16_bits(float x) {
#if CUPYGEMM_NVIDIA
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
#else
    return __builtin_bit_cast(u16, static_cast<__bf16>(x));
#endif
}

CUPYGEMM_INLINE u16 f16_bits(float x) {
#if CUPYGEMM_NVIDIA
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
#else
    return __builtin_bit_cast(u16, static_cast<_Float16>(x));
#endif
}

// To the 8-bit floats of the target, OCP's or FNUZ, of numbers within their range.
CUPYGEMM_INLINE u8 e4m3_bits(float x) {
#if CUPYGEMM_NVIDIA
    u16 bits;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(0.0f), "f"(x));
    return static_cast<u8>(bits);
#else
    return static_cast<u8>(__builtin_amdgcn_cvt_pk_fp8_f32(x, x, 0, false));
#endif
}

CUPYGEMM_INLINE u8 e5m2_bits(float x) {
#if CUPYGEMM_NVIDIA
    u16 bits;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(0.0f), "f"(x));
    return static_cast<u8>(bits);
#else
    return static_cast<u8>(__builtin_amdgcn_cvt_pk_bf8_f32(x, x, 0, false));
#endif
}

CUPYGEMM_INLINE u32 f32_bits(float x) {
#if CUPYGEMM_NVIDIA
    return __float_as_uint(x);
#else
    return __builtin_bit_cast(u32, x);
#endif
}

CUPYGEMM_INLINE u64 f64_bits(double x) {
#if CUPYGEMM_NVIDIA
    return static_cast<u64>(__double_as_longlong(x));
#else
    return __builtin_bit_cast(u64, x);
#endif
}

} // namespace cupygemm
