// 8-bit floats: e4m3 and e5m2, each in OCP's and in AMD's FNUZ encoding, alone, in pairs and fours.
//
// Conversions are written out in integers, so that every target has all four. They round to nearest
// even and saturate, as HIP's constructors do. FNUZ has one zero, one NaN (0x80) and no infinities,
// and its bias is one larger.
//
// The __hip_cvt_ functions convert codes of an encoding that is an argument. Without saturation,
// what is too large becomes an infinity in e5m2, and NaN in the others.
#pragma once

#include <device/math.h>
#include <device/vector_types.h>
#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>

// The encoding of the target's instructions. Programs choose their type by it.
#if defined(__gfx942__) && defined(__HIP_DEVICE_COMPILE__)
#define HIP_FP8_TYPE_OCP 0
#define HIP_FP8_TYPE_FNUZ 1
#elif defined(__gfx950__) && defined(__HIP_DEVICE_COMPILE__)
#define HIP_FP8_TYPE_OCP 1
#define HIP_FP8_TYPE_FNUZ 0
#else
#define HIP_FP8_TYPE_OCP 1
#define HIP_FP8_TYPE_FNUZ 1
#endif

typedef unsigned char __hip_fp8_storage_t;
typedef unsigned short __hip_fp8x2_storage_t;
typedef unsigned int __hip_fp8x4_storage_t;
enum __hip_saturation_t { __HIP_NOSAT = 0, __HIP_SATFINITE = 1 };
enum __hip_fp8_interpretation_t {
    __HIP_E4M3 = 0,
    __HIP_E5M2 = 1,
    __HIP_E4M3_FNUZ = 2,
    __HIP_E5M2_FNUZ = 3
};

template <int fraction_bits, bool fnuz> struct hip_fp8_format {
    static constexpr int bias = (fraction_bits == 3 ? 7 : 15) + fnuz;
    static constexpr unsigned int largest = fnuz ? 0x7f : fraction_bits == 3 ? 0x7e : 0x7b;
    static constexpr unsigned int nan = fnuz ? 0x80 : 0x7f;
    static constexpr unsigned int infinity = fraction_bits == 2 && !fnuz ? 0x7c : nan;

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

    __host__ __device__ static constexpr __hip_fp8_storage_t encode(float x, bool saturate = true) {
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
        if (code > largest)
            code = saturate ? largest : infinity;
        return (__hip_fp8_storage_t)(fnuz && code == 0 ? 0 : code | sign);
    }
};

HIP_BOTH constexpr __hip_fp8x2_storage_t hip_fp8_pair(__hip_fp8_storage_t low,
                                                      __hip_fp8_storage_t high) {
    return (__hip_fp8x2_storage_t)(low | high << 8);
}

#define HIP_FP8_TRAITS(fraction_bits, interpretation)                                              \
    static constexpr __hip_saturation_t __default_saturation = __HIP_SATFINITE;                    \
    static constexpr __hip_fp8_interpretation_t __default_interpret = interpretation;              \
    static constexpr unsigned int __we = 7 - (fraction_bits), __wm = fraction_bits;

#define HIP_FP8_TYPES(suffix, fraction_bits, fnuz, interpretation)                                 \
    struct __hip_fp8_##suffix {                                                                    \
        __hip_fp8_storage_t __x;                                                                   \
        HIP_FP8_TRAITS(fraction_bits, interpretation)                                              \
        __hip_fp8_##suffix() = default;                                                            \
        __host__ __device__ constexpr __hip_fp8_##suffix(float x)                                  \
            : __x(hip_fp8_format<fraction_bits, fnuz>::encode(x)) {}                               \
        __host__ __device__ constexpr __hip_fp8_##suffix(double x)                                 \
            : __hip_fp8_##suffix(hip_rounded_to_odd(x)) {}                                         \
        template <typename T, typename = hip_if_integer<T>>                                        \
        __host__ __device__ constexpr __hip_fp8_##suffix(T x) : __hip_fp8_##suffix((double)x) {}   \
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
        HIP_FP8_TRAITS(fraction_bits, interpretation)                                              \
        __hip_fp8x2_##suffix() = default;                                                          \
        __host__ __device__ constexpr __hip_fp8x2_##suffix(float2 v)                               \
            : __x(hip_fp8_pair(__hip_fp8_##suffix(v.x).__x, __hip_fp8_##suffix(v.y).__x)) {}       \
        __host__ __device__ constexpr __hip_fp8x2_##suffix(double2 v)                              \
            : __x(hip_fp8_pair(__hip_fp8_##suffix(v.x).__x, __hip_fp8_##suffix(v.y).__x)) {}       \
        __host__ __device__ constexpr __hip_fp8x2_##suffix(__half2 v)                              \
            : __hip_fp8x2_##suffix(float2{(float)v.x, (float)v.y}) {}                              \
        __host__ __device__ constexpr __hip_fp8x2_##suffix(__hip_bfloat162 v)                      \
            : __hip_fp8x2_##suffix(float2{(float)v.x, (float)v.y}) {}                              \
        __host__ __device__ constexpr operator float2() const {                                    \
            typedef hip_fp8_format<fraction_bits, fnuz> format;                                    \
            return {format::decode((__hip_fp8_storage_t)__x),                                      \
                    format::decode((__hip_fp8_storage_t)(__x >> 8))};                              \
        }                                                                                          \
        __host__ __device__ constexpr operator __half2() const {                                   \
            float2 both = *this;                                                                   \
            return __half2(__half(both.x), __half(both.y));                                        \
        }                                                                                          \
    };                                                                                             \
    struct __hip_fp8x4_##suffix {                                                                  \
        typedef __hip_fp8x2_##suffix pair;                                                         \
        __hip_fp8x4_storage_t __x;                                                                 \
        HIP_FP8_TRAITS(fraction_bits, interpretation)                                              \
        __hip_fp8x4_##suffix() = default;                                                          \
        __host__ __device__ constexpr __hip_fp8x4_##suffix(pair low, pair high)                    \
            : __x(low.__x | (unsigned int)high.__x << 16) {}                                       \
        __host__ __device__ constexpr __hip_fp8x4_##suffix(float4 v)                               \
            : __hip_fp8x4_##suffix(pair(float2{v.x, v.y}), pair(float2{v.z, v.w})) {}              \
        __host__ __device__ constexpr __hip_fp8x4_##suffix(double4 v)                              \
            : __hip_fp8x4_##suffix(pair(double2{v.x, v.y}), pair(double2{v.z, v.w})) {}            \
        __host__ __device__ constexpr __hip_fp8x4_##suffix(__half2 low, __half2 high)              \
            : __hip_fp8x4_##suffix(pair(low), pair(high)) {}                                       \
        __host__ __device__ constexpr __hip_fp8x4_##suffix(__hip_bfloat162 low,                    \
                                                           __hip_bfloat162 high)                   \
            : __hip_fp8x4_##suffix(pair(low), pair(high)) {}                                       \
        __host__ __device__ constexpr operator float4() const {                                    \
            typedef hip_fp8_format<fraction_bits, fnuz> format;                                    \
            return {format::decode((__hip_fp8_storage_t)__x),                                      \
                    format::decode((__hip_fp8_storage_t)(__x >> 8)),                               \
                    format::decode((__hip_fp8_storage_t)(__x >> 16)),                              \
                    format::decode((__hip_fp8_storage_t)(__x >> 24))};                             \
        }                                                                                          \
    };
HIP_FP8_TYPES(e4m3, 3, false, __HIP_E4M3)
HIP_FP8_TYPES(e5m2, 2, false, __HIP_E5M2)
HIP_FP8_TYPES(e4m3_fnuz, 3, true, __HIP_E4M3_FNUZ)
HIP_FP8_TYPES(e5m2_fnuz, 2, true, __HIP_E5M2_FNUZ)
#undef HIP_FP8_TYPES
#undef HIP_FP8_TRAITS

HIP_BOTH constexpr __hip_fp8_storage_t
__hip_cvt_float_to_fp8(float x, __hip_saturation_t saturation, __hip_fp8_interpretation_t kind) {
    bool saturate = saturation == __HIP_SATFINITE;
    return kind == __HIP_E4M3        ? hip_fp8_format<3, false>::encode(x, saturate)
           : kind == __HIP_E5M2      ? hip_fp8_format<2, false>::encode(x, saturate)
           : kind == __HIP_E4M3_FNUZ ? hip_fp8_format<3, true>::encode(x, saturate)
                                     : hip_fp8_format<2, true>::encode(x, saturate);
}
HIP_BOTH constexpr float hip_fp8_decoded(__hip_fp8_storage_t code,
                                         __hip_fp8_interpretation_t kind) {
    return kind == __HIP_E4M3        ? hip_fp8_format<3, false>::decode(code)
           : kind == __HIP_E5M2      ? hip_fp8_format<2, false>::decode(code)
           : kind == __HIP_E4M3_FNUZ ? hip_fp8_format<3, true>::decode(code)
                                     : hip_fp8_format<2, true>::decode(code);
}

// For one number and a pair of each type; `value` is the argument as a float.
#define HIP_FP8_CONVERT(type, name, pair_type, pair_name, value)                                   \
    HIP_BOTH __hip_fp8_storage_t __hip_cvt_##name##_to_fp8(type x, __hip_saturation_t saturation,  \
                                                           __hip_fp8_interpretation_t kind) {      \
        return __hip_cvt_float_to_fp8(value(x), saturation, kind);                                 \
    }                                                                                              \
    HIP_FP8_CONVERT_PAIR(type, pair_type, pair_name, value)
#define HIP_FP8_CONVERT_PAIR(type, pair_type, pair_name, value)                                    \
    HIP_BOTH __hip_fp8x2_storage_t __hip_cvt_##pair_name##_to_fp8x2(                               \
        pair_type v, __hip_saturation_t saturation, __hip_fp8_interpretation_t kind) {             \
        return hip_fp8_pair(__hip_cvt_float_to_fp8(value(type{v.x}), saturation, kind),            \
                            __hip_cvt_float_to_fp8(value(type{v.y}), saturation, kind));           \
    }
HIP_FP8_CONVERT_PAIR(float, float2, float2, float)
HIP_FP8_CONVERT(double, double, double2, double2, hip_rounded_to_odd)
HIP_FP8_CONVERT(__half_raw, halfraw, __half2_raw, halfraw2, __half)
HIP_FP8_CONVERT(__hip_bfloat16_raw, bfloat16raw, __hip_bfloat162_raw, bfloat16raw2, __hip_bfloat16)
#undef HIP_FP8_CONVERT
#undef HIP_FP8_CONVERT_PAIR

HIP_BOTH __half_raw __hip_cvt_fp8_to_halfraw(__hip_fp8_storage_t code,
                                             __hip_fp8_interpretation_t kind) {
    return __half(hip_fp8_decoded(code, kind));
}
HIP_BOTH __half2_raw __hip_cvt_fp8x2_to_halfraw2(__hip_fp8x2_storage_t codes,
                                                 __hip_fp8_interpretation_t kind) {
    return __half2(__half(hip_fp8_decoded((__hip_fp8_storage_t)codes, kind)),
                   __half(hip_fp8_decoded((__hip_fp8_storage_t)(codes >> 8), kind)));
}
