// 8-bit floats: e4m3 and e5m2, each in OCP's and in AMD's FNUZ encoding, alone, in pairs and fours.
//
// Conversions are written out in integers, so that every target has all four. They round to nearest
// even and saturate, as HIP's constructors do. FNUZ has one zero, one NaN (0x80) and no infinities,
// and its bias is one larger.
#pragma once

#include <device/math.h>
#include <device/vector_types.h>
#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>

#define HIP_FP8_TYPE_OCP 1
#define HIP_FP8_TYPE_FNUZ 1

typedef unsigned char __hip_fp8_storage_t;
typedef unsigned short __hip_fp8x2_storage_t;
typedef unsigned int __hip_fp8x4_storage_t;
enum __hip_saturation_t { __HIP_NOSAT = 0, __HIP_SATFINITE = 1 };

template <int fraction_bits, bool fnuz> struct hip_fp8_format {
    static constexpr int bias = (fraction_bits == 3 ? 7 : 15) + fnuz;
    static constexpr unsigned int largest = fnuz ? 0x7f : fraction_bits == 3 ? 0x7e : 0x7b;
    static constexpr unsigned int nan = fnuz ? 0x80 : 0x7f;

    __host__ __device__ static constexpr float decode(__hip_fp8_storage_t code) {
        unsigned int magnitude = code & 0x7f, exponent = magnitude >> fraction_bits;
        unsigned int fraction = magnitude & ((1 << fraction_bits) - 1);
        if (fnuz ? code == nan : magnitude > largest) {
            bool infinite = !fnuz && fraction_bits == 2 && fraction == 0;
            return !infinite     ? __builtin_nanf("")
                   : code & 0x80 ? -__builtin_inff()
                                 : __builtin_inff();
        }
        unsigned int steps = exponent ? fraction + (1 << fraction_bits) : fraction;
        unsigned int scale = (exponent ? exponent : 1) - bias - fraction_bits + 127;
        float value = (float)steps * __builtin_bit_cast(float, scale << 23);
        return code & 0x80 ? -value : value;
    }

    __host__ __device__ static constexpr __hip_fp8_storage_t encode(float x) {
        unsigned int bits = __builtin_bit_cast(unsigned int, x), sign = bits >> 24 & 0x80;
        bits &= 0x7fffffff;
        if (bits > 0x7f800000) {
            return nan;
        }
        constexpr int shift = 23 - fraction_bits;
        constexpr unsigned int least_normal = (128 - bias) << 23;
        unsigned int code = 0;
        if (bits < least_normal) { // adding this number rounds to a multiple of the least subnormal
            constexpr unsigned int magic = (128 - bias + shift) << 23;
            float sum = __builtin_bit_cast(float, bits) + __builtin_bit_cast(float, magic);
            code = __builtin_bit_cast(unsigned int, sum) - magic;
        } else {
            bits += (1u << (shift - 1)) - 1 + (bits >> shift & 1);
            code = (bits >> shift) - ((127 - bias) << fraction_bits);
        }
        code = code > largest ? largest : code;
        return (__hip_fp8_storage_t)(fnuz && code == 0 ? 0 : code | sign);
    }
};

#define HIP_FP8_TYPES(suffix, fraction_bits, fnuz)                                                 \
    struct __hip_fp8_##suffix {                                                                    \
        __hip_fp8_storage_t __x;                                                                   \
        __hip_fp8_##suffix() = default;                                                            \
        __host__ __device__ constexpr __hip_fp8_##suffix(float x)                                  \
            : __x(hip_fp8_format<fraction_bits, fnuz>::encode(x)) {}                               \
        __host__ __device__ constexpr __hip_fp8_##suffix(double x)                                 \
            : __hip_fp8_##suffix((float)x) {}                                                      \
        __host__ __device__ constexpr __hip_fp8_##suffix(__half x)                                 \
            : __hip_fp8_##suffix((float)x) {}                                                      \
        __host__ __device__ constexpr __hip_fp8_##suffix(__hip_bfloat16 x)                         \
            : __hip_fp8_##suffix((float)x) {}                                                      \
        __host__ __device__ constexpr operator float() const {                                     \
            return hip_fp8_format<fraction_bits, fnuz>::decode(__x);                               \
        }                                                                                          \
    };                                                                                             \
    struct __hip_fp8x2_##suffix {                                                                  \
        __hip_fp8x2_storage_t __x;                                                                 \
        __hip_fp8x2_##suffix() = default;                                                          \
        __host__ __device__ constexpr __hip_fp8x2_##suffix(float2 v)                               \
            : __x((__hip_fp8x2_storage_t)(__hip_fp8_##suffix(v.x).__x |                            \
                                          __hip_fp8_##suffix(v.y).__x << 8)) {}                    \
        __host__ __device__ constexpr operator float2() const {                                    \
            typedef hip_fp8_format<fraction_bits, fnuz> format;                                    \
            return {format::decode((__hip_fp8_storage_t)__x),                                      \
                    format::decode((__hip_fp8_storage_t)(__x >> 8))};                              \
        }                                                                                          \
    };                                                                                             \
    struct __hip_fp8x4_##suffix {                                                                  \
        __hip_fp8x4_storage_t __x;                                                                 \
        __hip_fp8x4_##suffix() = default;                                                          \
        __host__ __device__ constexpr __hip_fp8x4_##suffix(float4 v)                               \
            : __x(__hip_fp8x2_##suffix(float2{v.x, v.y}).__x |                                     \
                  (unsigned int)__hip_fp8x2_##suffix(float2{v.z, v.w}).__x << 16) {}               \
        __host__ __device__ constexpr operator float4() const {                                    \
            typedef hip_fp8_format<fraction_bits, fnuz> format;                                    \
            return {format::decode((__hip_fp8_storage_t)__x),                                      \
                    format::decode((__hip_fp8_storage_t)(__x >> 8)),                               \
                    format::decode((__hip_fp8_storage_t)(__x >> 16)),                              \
                    format::decode((__hip_fp8_storage_t)(__x >> 24))};                             \
        }                                                                                          \
    };
HIP_FP8_TYPES(e4m3, 3, false)
HIP_FP8_TYPES(e5m2, 2, false)
HIP_FP8_TYPES(e4m3_fnuz, 3, true)
HIP_FP8_TYPES(e5m2_fnuz, 2, true)
#undef HIP_FP8_TYPES
