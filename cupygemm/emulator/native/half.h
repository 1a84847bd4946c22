/* Half precision: exact conversion to float, which preserves a signalling NaN; conversion from
 * float in the rounding mode of the thread; and a fused multiply-add. */
#ifndef CUPYGEMM_HALF_H
#define CUPYGEMM_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "valu_functions.h"

static inline float half_to_float(uint16_t half) {
    _Float16 number;
    memcpy(&number, &half, sizeof number);
    float wide = (float)number;
    uint32_t bits, nan = (half & 0x8000u) << 16 | 0x7F800000u | (half & 0x3FFu) << 13;
    memcpy(&bits, &wide, sizeof bits);
    bits = (half & 0x7FFFu) > 0x7C00u ? nan : bits;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

static inline uint16_t float_to_half(float value) {
    _Float16 number = (_Float16)value;
    uint16_t half;
    memcpy(&half, &number, sizeof half);
    return half;
}

/* Round towards zero: step back where rounding to nearest went away from zero. */
static inline uint16_t half_towards_zero(float value) {
    uint16_t half = float_to_half(value);
    return half - (fabsf(half_to_float(half)) > fabsf(value));
}

/* a*b + c of half-precision values in float, inexact sums rounded to odd: rounding the result to
 * half precision, in any direction, is then correct. The product of two halves is exact in float.
 * The thread rounds to nearest; `cancelled` is the value of x - x in the intended rounding. */
static inline float fma_half(float a, float b, float c, float cancelled) {
    float product = a * b, sum = product + c, part = sum - product;
    float error = (product - (sum - part)) + (c - part);
    uint32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    uint32_t step = (error > 0) == (sum > 0) ? 1u : ~0u;
    int inexact = (error > 0) | (error < 0); /* not for Inf and NaN, whose error is NaN */
    bits += (inexact & !(bits & 1)) ? step : 0;
    memcpy(&sum, &bits, sizeof sum);
    int opposite = (sum == 0) & (signbit(product) != signbit(c));
    float result = opposite ? cancelled : sum;
    return OF_NAN(f32, a, OF_NAN(f32, b, OF_NAN(f32, c, result)));
}

#endif
