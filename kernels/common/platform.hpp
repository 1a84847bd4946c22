// The differences between the supported compilers, and nothing else.
//
// Device code is C++17 without a standard library. clang (without ROCm headers) and hiprtc compile
// cdna/ with common/; NVRTC compiles hopper/ with common/. The compilers spell the function-space
// attributes and the conversions to 16-bit floats differently. No other file tests which compiler
// is in use.
#pragma once

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define CUPYGEMM_NVIDIA 1
#else
#define CUPYGEMM_NVIDIA 0
#endif

#if !CUPYGEMM_NVIDIA
// clang's HIP mode accepts the attributes; their short names come from ROCm's headers, which only
// hiprtc includes.
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

// Every device function is inlined, because tiles are in registers and a call could not return
// them.
#define CUPYGEMM_INLINE __device__ inline __attribute__((always_inline))

namespace cupygemm {

using u8 = unsigned char;
using i8 = signed char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

static_assert(sizeof(u32) == 4 && sizeof(u64) == 8,
              "the fixed-width integer names must have their stated sizes");

// Round to nearest, ties to even; NaN stays NaN. Targets with a bf16 conversion instruction use it;
// for others, clang emits integer operations.
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

// Convert to the target's 8-bit floats, OCP or FNUZ. `x` must be in their range.
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

CUPYGEMM_INLINE float float_of_bits(u32 bits) {
#if CUPYGEMM_NVIDIA
    return __uint_as_float(bits);
#else
    return __builtin_bit_cast(float, bits);
#endif
}

CUPYGEMM_INLINE double double_of_bits(u64 bits) {
#if CUPYGEMM_NVIDIA
    return __longlong_as_double(static_cast<i64>(bits));
#else
    return __builtin_bit_cast(double, bits);
#endif
}

CUPYGEMM_INLINE float float_of_f16_bits(u16 bits) {
#if CUPYGEMM_NVIDIA
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
#else
    return static_cast<float>(__builtin_bit_cast(_Float16, bits));
#endif
}

// x y + z, rounded once
CUPYGEMM_INLINE float fma_of(float x, float y, float z) {
#if CUPYGEMM_NVIDIA
    return __fmaf_rn(x, y, z);
#else
    return __builtin_fmaf(x, y, z);
#endif
}

CUPYGEMM_INLINE double fma_of(double x, double y, double z) {
#if CUPYGEMM_NVIDIA
    return __fma_rn(x, y, z);
#else
    return __builtin_fma(x, y, z);
#endif
}

// Round to the nearest integer, ties to even.
CUPYGEMM_INLINE float nearest_integer(float x) {
#if CUPYGEMM_NVIDIA
    return rintf(x);
#else
    return __builtin_rintf(x);
#endif
}

CUPYGEMM_INLINE double nearest_integer(double x) {
#if CUPYGEMM_NVIDIA
    return rint(x);
#else
    return __builtin_rint(x);
#endif
}

// The larger of x and y, or x if x is NaN. In fp32 this is one instruction on NVIDIA.
CUPYGEMM_INLINE float maximum_or_nan(float x, float y) {
#if CUPYGEMM_NVIDIA
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(y));
    return larger;
#else
    return x < y ? y : x;
#endif
}
CUPYGEMM_INLINE double maximum_or_nan(double x, double y) { return x < y ? y : x; }

// 2^x where the result is a normal number: v_exp_f32 (error 1 unit in the last place) or ex2.approx
// (error 2).
CUPYGEMM_INLINE float hardware_exp2(float x) {
#if CUPYGEMM_NVIDIA
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return __builtin_amdgcn_exp2f(x);
#endif
}

// 1 / x where x and the result are normal numbers: v_rcp_f32 or rcp.approx (error 1 unit in the
// last place).
CUPYGEMM_INLINE float hardware_reciprocal(float x) {
#if CUPYGEMM_NVIDIA
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return __builtin_amdgcn_rcpf(x);
#endif
}

} // namespace cupygemm
