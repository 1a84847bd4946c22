// hip_bfloat16, HIP's older type: a struct of its 16 bits. <hip/hip_bf16.h> has __hip_bfloat16.
#pragma once

#include <device/keywords.h>

struct hip_bfloat16 {
    unsigned short data;
    enum truncate_t { truncate };

    hip_bfloat16() = default;
    __host__ __device__ explicit hip_bfloat16(float x)
        : data(__builtin_bit_cast(unsigned short, (__bf16)x)) {}
    // Drops the lower 16 bits; a NaN of these alone stays one.
    __host__ __device__ explicit hip_bfloat16(float x, truncate_t) {
        unsigned int bits = __builtin_bit_cast(unsigned int, x);
        data = (unsigned short)(bits >> 16) | (x != x && (bits & 0xffff) != 0);
    }
    __host__ __device__ operator float() const {
        return __builtin_bit_cast(float, (unsigned int)data << 16);
    }
    __host__ __device__ hip_bfloat16 &operator=(float x) { return *this = hip_bfloat16(x); }
    static __host__ __device__ hip_bfloat16 round_to_bfloat16(float x) { return hip_bfloat16(x); }
    static __host__ __device__ hip_bfloat16 round_to_bfloat16(float x, truncate_t) {
        return hip_bfloat16(x, truncate);
    }
};

#define HIP_BFLOAT16_OPERATOR(op)                                                                  \
    HIP_BOTH hip_bfloat16 operator op(hip_bfloat16 a, hip_bfloat16 b) {                            \
        return hip_bfloat16((float)a op(float) b);                                                 \
    }                                                                                              \
    HIP_BOTH hip_bfloat16 &operator op## = (hip_bfloat16 & a, hip_bfloat16 b) { return a = a op b; }
HIP_BFLOAT16_OPERATOR(+)
HIP_BFLOAT16_OPERATOR(-)
HIP_BFLOAT16_OPERATOR(*)
HIP_BFLOAT16_OPERATOR(/)
#undef HIP_BFLOAT16_OPERATOR

#define HIP_BFLOAT16_COMPARISON(op)                                                                \
    HIP_BOTH bool operator op(hip_bfloat16 a, hip_bfloat16 b) { return (float)a op(float) b; }
HIP_BFLOAT16_COMPARISON(==)
HIP_BFLOAT16_COMPARISON(!=)
HIP_BFLOAT16_COMPARISON(<)
HIP_BFLOAT16_COMPARISON(<=)
HIP_BFLOAT16_COMPARISON(>)
HIP_BFLOAT16_COMPARISON(>=)
#undef HIP_BFLOAT16_COMPARISON

HIP_BOTH hip_bfloat16 operator+(hip_bfloat16 x) { return x; }
HIP_BOTH hip_bfloat16 operator-(hip_bfloat16 x) {
    x.data ^= 0x8000;
    return x;
}
#define HIP_BFLOAT16_COUNT(op, change)                                                             \
    HIP_BOTH hip_bfloat16 &operator op(hip_bfloat16 &x) { return x change hip_bfloat16(1.0f); }    \
    HIP_BOTH hip_bfloat16 operator op(hip_bfloat16 &x, int) {                                      \
        hip_bfloat16 before = x;                                                                   \
        x change hip_bfloat16(1.0f);                                                               \
        return before;                                                                             \
    }
HIP_BFLOAT16_COUNT(++, +=)
HIP_BFLOAT16_COUNT(--, -=)
#undef HIP_BFLOAT16_COUNT
