// Floats of 4 and 6 bits, as OCP Microscaling defines them: they have neither infinities nor NaN.
//
// Conversions are written out in integers, so that every target has them. They round to nearest
// even and saturate, whichever rounding mode a call names, as in ROCm. NaN becomes the largest
// number, as on gfx950. hip_fp4.h and hip_fp6.h make HIP's names with the macros below.
#pragma once

#include <hip/hip_fp8.h>

enum hipRoundMode { hipRoundNearest = 0, hipRoundZero = 1, hipRoundPosInf = 2, hipRoundMinInf = 3 };

template <int exponent_bits, int fraction_bits> struct hip_narrow_format {
    static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
    static constexpr unsigned int sign = 1 << (exponent_bits + fraction_bits);
    static constexpr unsigned int largest = sign - 1;

    __host__ __device__ static constexpr float decode(unsigned int code) {
        unsigned int exponent = (code & largest) >> fraction_bits;
        unsigned int fraction = code & ((1 << fraction_bits) - 1);
        unsigned int steps = exponent ? fraction + (1 << fraction_bits) : fraction;
        unsigned int scale = (exponent ? exponent : 1) - bias - fraction_bits + 127;
        float value = (float)steps * __builtin_bit_cast(float, scale << 23);
        return code & sign ? -value : value;
    }

    __host__ __device__ static constexpr unsigned int encode(float x) {
        constexpr int shift = 23 - fraction_bits;
        constexpr unsigned int least_normal = (128 - bias) << 23;
        unsigned int bits = __builtin_bit_cast(unsigned int, x), code = 0;
        unsigned int magnitude = bits & 0x7fffffff;
        if (magnitude < least_normal) { // this sum rounds to a multiple of the least subnormal
            constexpr unsigned int magic = (128 - bias + shift) << 23;
            float sum = __builtin_bit_cast(float, magnitude) + __builtin_bit_cast(float, magic);
            code = __builtin_bit_cast(unsigned int, sum) - magic;
        } else {
            magnitude += (1u << (shift - 1)) - 1 + (magnitude >> shift & 1);
            code = (magnitude >> shift) - ((127 - bias) << fraction_bits);
        }
        return (code > largest ? largest : code) | (bits >> 31 ? sign : 0);
    }
};

// The __hip_cvt_ functions of a width `fp`, whose numbers lie `step` bits apart in a pair. They
// convert by hip_`fp`_encoded(float, kind) and hip_`fp`_decoded(code, kind).
#define HIP_NARROW_CONVERT(fp, step, type, name, pair_type, pair_name, value)                      \
    HIP_BOTH __hip_##fp##_storage_t __hip_cvt_##name##_to_##fp(                                    \
        type x, __hip_##fp##_interpretation_t kind, enum hipRoundMode) {                           \
        return (__hip_##fp##_storage_t)hip_##fp##_encoded((float)value(x), kind);                  \
    }                                                                                              \
    HIP_BOTH __hip_##fp##x2_storage_t __hip_cvt_##pair_name##_to_##fp##x2(                         \
        pair_type v, __hip_##fp##_interpretation_t kind, enum hipRoundMode) {                      \
        unsigned int low = hip_##fp##_encoded((float)value(type{v.x}), kind);                      \
        unsigned int high = hip_##fp##_encoded((float)value(type{v.y}), kind);                     \
        return (__hip_##fp##x2_storage_t)(low | high << (step));                                   \
    }

#define HIP_NARROW_CONVERSIONS(fp, step)                                                           \
    HIP_NARROW_CONVERT(fp, step, float, float, float2, float2, float)                              \
    HIP_NARROW_CONVERT(fp, step, double, double, double2, double2, double)                         \
    HIP_NARROW_CONVERT(fp, step, __half_raw, halfraw, __half2_raw, halfraw2, __half)               \
    HIP_NARROW_CONVERT(fp, step, __hip_bfloat16_raw, bfloat16raw, __hip_bfloat162_raw,             \
                       bfloat16raw2, __hip_bfloat16)                                               \
    HIP_BOTH __half_raw __hip_cvt_##fp##_to_halfraw(__hip_##fp##_storage_t code,                   \
                                                    __hip_##fp##_interpretation_t kind) {          \
        return __half(hip_##fp##_decoded(code, kind));                                             \
    }                                                                                              \
    HIP_BOTH __half2_raw __hip_cvt_##fp##x2_to_halfraw2(__hip_##fp##x2_storage_t codes,            \
                                                        __hip_##fp##_interpretation_t kind) {      \
        return __half2(__half(hip_##fp##_decoded(codes, kind)),                                    \
                       __half(hip_##fp##_decoded(codes >> (step), kind)));                         \
    }

#define HIP_MEMBER __host__ __device__

// The types of one encoding: a number, a pair and four, from `low` to the highest bits.
#define HIP_NARROW_TYPES(fp, suffix, kind, step)                                                   \
    struct __hip_##fp##_##suffix {                                                                 \
        __hip_##fp##_storage_t __x;                                                                \
        __hip_##fp##_##suffix() = default;                                                         \
        HIP_MEMBER explicit constexpr __hip_##fp##_##suffix(float x)                               \
            : __x((__hip_##fp##_storage_t)hip_##fp##_encoded(x, kind)) {}                          \
        HIP_MEMBER explicit constexpr __hip_##fp##_##suffix(double x)                              \
            : __hip_##fp##_##suffix((float)x) {}                                                   \
        HIP_MEMBER explicit constexpr __hip_##fp##_##suffix(__half x)                              \
            : __hip_##fp##_##suffix((float)x) {}                                                   \
        HIP_MEMBER explicit constexpr __hip_##fp##_##suffix(__hip_bfloat16 x)                      \
            : __hip_##fp##_##suffix((float)x) {}                                                   \
        template <typename T, typename = hip_if_integer<T>>                                        \
        HIP_MEMBER explicit constexpr __hip_##fp##_##suffix(T x)                                   \
            : __hip_##fp##_##suffix((float)x) {}                                                   \
        HIP_MEMBER constexpr operator float() const { return hip_##fp##_decoded(__x, kind); }      \
        HIP_MEMBER constexpr operator double() const { return (float)*this; }                      \
        HIP_MEMBER constexpr operator __half_raw() const { return __half((float)*this); }          \
        HIP_MEMBER constexpr operator __hip_bfloat16_raw() const {                                 \
            return __hip_bfloat16((float)*this);                                                   \
        }                                                                                          \
    };                                                                                             \
    struct __hip_##fp##x2_##suffix {                                                               \
        __hip_##fp##x2_storage_t __x;                                                              \
        __hip_##fp##x2_##suffix() = default;                                                       \
        HIP_MEMBER explicit constexpr __hip_##fp##x2_##suffix(float2 v)                            \
            : __x((__hip_##fp##x2_storage_t)(hip_##fp##_encoded(v.x, kind) |                       \
                                             hip_##fp##_encoded(v.y, kind) << (step))) {}          \
        HIP_MEMBER explicit constexpr __hip_##fp##x2_##suffix(double2 v)                           \
            : __hip_##fp##x2_##suffix(float2{(float)v.x, (float)v.y}) {}                           \
        HIP_MEMBER explicit constexpr __hip_##fp##x2_##suffix(__half2 v)                           \
            : __hip_##fp##x2_##suffix(float2{(float)v.x, (float)v.y}) {}                           \
        HIP_MEMBER explicit constexpr __hip_##fp##x2_##suffix(__hip_bfloat162 v)                   \
            : __hip_##fp##x2_##suffix(float2{(float)v.x, (float)v.y}) {}                           \
        HIP_MEMBER constexpr operator float2() const {                                             \
            return {hip_##fp##_decoded(__x, kind), hip_##fp##_decoded(__x >> (step), kind)};       \
        }                                                                                          \
        HIP_MEMBER constexpr operator double2() const {                                            \
            float2 both = *this;                                                                   \
            return {both.x, both.y};                                                               \
        }                                                                                          \
        HIP_MEMBER operator __half2_raw() const {                                                  \
            return __hip_cvt_##fp##x2_to_halfraw2(__x, kind);                                      \
        }                                                                                          \
        HIP_MEMBER operator __hip_bfloat162_raw() const {                                          \
            float2 both = *this;                                                                   \
            return __hip_bfloat162(__hip_bfloat16(both.x), __hip_bfloat16(both.y));                \
        }                                                                                          \
    };                                                                                             \
    struct __hip_##fp##x4_##suffix {                                                               \
        typedef __hip_##fp##x2_##suffix pair;                                                      \
        __hip_##fp##x4_storage_t __x;                                                              \
        __hip_##fp##x4_##suffix() = default;                                                       \
        HIP_MEMBER explicit constexpr __hip_##fp##x4_##suffix(float4 v)                            \
            : __hip_##fp##x4_##suffix(pair(float2{v.x, v.y}), pair(float2{v.z, v.w})) {}           \
        HIP_MEMBER explicit constexpr __hip_##fp##x4_##suffix(double4 v)                           \
            : __hip_##fp##x4_##suffix(pair(double2{v.x, v.y}), pair(double2{v.z, v.w})) {}         \
        HIP_MEMBER explicit constexpr __hip_##fp##x4_##suffix(__half2 low, __half2 high)           \
            : __hip_##fp##x4_##suffix(pair(low), pair(high)) {}                                    \
        HIP_MEMBER explicit constexpr __hip_##fp##x4_##suffix(__hip_bfloat162 low,                 \
                                                              __hip_bfloat162 high)                \
            : __hip_##fp##x4_##suffix(pair(low), pair(high)) {}                                    \
        HIP_MEMBER constexpr operator float4() const {                                             \
            return {hip_##fp##_decoded(__x, kind), hip_##fp##_decoded(__x >> (step), kind),        \
                    hip_##fp##_decoded(__x >> 2 * (step), kind),                                   \
                    hip_##fp##_decoded(__x >> 3 * (step), kind)};                                  \
        }                                                                                          \
        HIP_MEMBER constexpr operator double4() const {                                            \
            float4 all = *this;                                                                    \
            return {all.x, all.y, all.z, all.w};                                                   \
        }                                                                                          \
                                                                                                   \
    private:                                                                                       \
        HIP_MEMBER constexpr __hip_##fp##x4_##suffix(pair low, pair high)                          \
            : __x((__hip_##fp##x4_storage_t)(low.__x | (unsigned int)high.__x << 2 * (step))) {}   \
    };
