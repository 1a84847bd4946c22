// Vector ALU operations that NumPy has no equal of: fused multiply-add with one rounding,
// division's scaled step, minimum and maximum with the hardware's rules for NaN and signed zero,
// half precision in every rounding, and the byte permutation.
//
// A source is an array of one of three layouts: one value per lane (waves, 64), one per wave
// (waves, 1), or a constant (1, 1). `layout` packs one of these per source, two bits each, first
// source lowest. Results are (waves, 64), in an array of their own. The loops over the 64 lanes of
// a wave have no branch, so they vectorise.

#include <fenv.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 64 };
enum { PER_LANE = 0, PER_WAVE = 1, CONSTANT = 2 };

#if defined(__x86_64__) || defined(__i386__)
typedef __float128 quad;
#else
typedef long double quad; // binary128 on AArch64
#endif

// Set the rounding of this thread: 0 nearest even, 1 up, 2 down, 3 towards zero (MODE's codes).
void valu_set_rounding(int mode) {
    static const int modes[4] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    fesetround(modes[mode & 3]);
}

// Return the 64 values of source `position` in a wave, spread into `buffer` if it is a scalar.
#define DEFINE_ROW(type)                                                                           \
    static inline const type *row_##type(const type *source, unsigned layout, int position,        \
                                         ptrdiff_t wave, type *buffer) {                           \
        unsigned kind = layout >> 2 * position & 3;                                                \
        if (kind == PER_LANE)                                                                      \
            return source + wave * LANES;                                                          \
        type value = source[kind == PER_WAVE ? wave : 0];                                          \
        for (int lane = 0; lane < LANES; ++lane)                                                   \
            buffer[lane] = value;                                                                  \
        return buffer;                                                                             \
    }
DEFINE_ROW(float)
DEFINE_ROW(double)
DEFINE_ROW(uint32_t)
DEFINE_ROW(uint64_t)

#define DEFINE_FMA(name, type, fma_type)                                                           \
    void name(type *restrict out, const type *a, const type *b, const type *c, unsigned layout,    \
              ptrdiff_t waves) {                                                                   \
        type buffers[3][LANES];                                                                    \
        for (ptrdiff_t wave = 0; wave < waves; ++wave, out += LANES) {                             \
            const type *x = row_##type(a, layout, 0, wave, buffers[0]);                            \
            const type *y = row_##type(b, layout, 1, wave, buffers[1]);                            \
            const type *z = row_##type(c, layout, 2, wave, buffers[2]);                            \
            for (int i = 0; i < LANES; ++i)                                                        \
                out[i] = fma_type(x[i], y[i], z[i]);                                               \
        }                                                                                          \
    }
DEFINE_FMA(valu_fma_f32, float, fmaf)
DEFINE_FMA(valu_fma_f64, double, fma)

// a*b + c in 113 digits, inexact sums rounded to odd, so that rounding it again to double is right.
static quad fma_odd(double a, double b, double c) {
    quad product = (quad)a * b; // exact
    quad sum = product + c, part = sum - product;
    quad error = (product - (sum - part)) + (c - part);
    unsigned __int128 bits;
    memcpy(&bits, &sum, sizeof bits);
    if (error != 0 && !(bits & 1)) {
        bits += (error > 0) == (sum > 0) ? 1 : -1;
        memcpy(&sum, &bits, sizeof sum);
    }
    return sum;
}

// The last step of division: a*b + c, times 2^±64 (f32) or 2^±128 (f64) where `scaled` is set,
// towards the side that v_div_scale moved away from; rounded once, also to a subnormal.
#define DEFINE_DIV_FMAS(name, type, fma_type, fabs_type, up, smallest_normal)                      \
    static inline type name##_scaled(type a, type b, type c, type result) {                        \
        type scale = fabs_type(c) >= 2 ? up : 1 / up;                                              \
        type moved = result * scale;                                                               \
        if (fabs_type(moved) <= smallest_normal)                                                   \
            moved = (type)(fma_odd(a, b, c) * scale);                                              \
        return moved;                                                                              \
    }                                                                                              \
    void name(type *restrict out, const type *a, const type *b, const type *c, unsigned layout,    \
              ptrdiff_t waves, const uint8_t *scaled) {                                            \
        type buffers[3][LANES];                                                                    \
        for (ptrdiff_t wave = 0; wave < waves; ++wave, out += LANES, scaled += LANES) {            \
            const type *x = row_##type(a, layout, 0, wave, buffers[0]);                            \
            const type *y = row_##type(b, layout, 1, wave, buffers[1]);                            \
            const type *z = row_##type(c, layout, 2, wave, buffers[2]);                            \
            for (int i = 0; i < LANES; ++i) {                                                      \
                type result = fma_type(x[i], y[i], z[i]);                                          \
                out[i] = scaled[i] ? name##_scaled(x[i], y[i], z[i], result) : result;             \
            }                                                                                      \
        }                                                                                          \
    }
DEFINE_DIV_FMAS(valu_div_fmas_f32, float, fmaf, fabsf, 0x1p64f, 0x1p-126f)
DEFINE_DIV_FMAS(valu_div_fmas_f64, double, fma, fabs, 0x1p128, 0x1p-1022)

// Minimum, maximum and median. A quiet NaN loses against a number; with `ieee` a signalling NaN
// wins and becomes quiet. Comparing the bits, mirrored for negative numbers, puts -0 below +0.
#define DEFINE_PICK(name, bits, infinity, quiet, better)                                           \
    static inline u##bits name(u##bits x, u##bits y, u##bits signalling) {                         \
        const u##bits magnitude = ~(u##bits)0 >> 1;                                                \
        bits order_x = (bits)(x ^ ((u##bits)((bits)x < 0 ? -1 : 0) >> 1));                         \
        bits order_y = (bits)(y ^ ((u##bits)((bits)y < 0 ? -1 : 0) >> 1));                         \
        int nan_x = (x & magnitude) > infinity, nan_y = (y & magnitude) > infinity;                \
        u##bits result = order_x better order_y ? x : y;                                           \
        result = nan_y ? x : result;                                                               \
        result = nan_x ? y : result;                                                               \
        result = nan_x & nan_y ? x | quiet : result;                                               \
        result = nan_y & ((~y & signalling) != 0) ? y | quiet : result;                            \
        return nan_x & ((~x & signalling) != 0) ? x | quiet : result;                              \
    }
DEFINE_PICK(min_f32, int32_t, 0x7F800000u, 0x400000u, <)
DEFINE_PICK(max_f32, int32_t, 0x7F800000u, 0x400000u, >)
DEFINE_PICK(min_f64, int64_t, 0x7FF0000000000000u, 0x8000000000000u, <)
DEFINE_PICK(max_f64, int64_t, 0x7FF0000000000000u, 0x8000000000000u, >)

// The largest of three leaves the median as the larger of the others; NaN makes it the minimum.
static inline uint32_t med3_f32(uint32_t x, uint32_t y, uint32_t z, uint32_t signalling) {
    const uint32_t magnitude = ~0u >> 1, infinity = 0x7F800000u;
    int nan =
        ((x & magnitude) > infinity) | ((y & magnitude) > infinity) | ((z & magnitude) > infinity);
    uint32_t least = min_f32(min_f32(x, y, signalling), z, signalling);
    uint32_t low = min_f32(x, y, signalling), high = max_f32(x, y, signalling);
    uint32_t median = max_f32(low, min_f32(high, z, signalling), signalling);
    return nan ? least : median;
}

#define DEFINE_PAIRWISE(name, bits, pick, quiet)                                                   \
    void name(bits *restrict out, const bits *a, const bits *b, unsigned layout, ptrdiff_t waves,  \
              int ieee) {                                                                          \
        bits buffers[2][LANES], signalling = ieee ? quiet : 0;                                     \
        for (ptrdiff_t wave = 0; wave < waves; ++wave, out += LANES) {                             \
            const bits *x = row_##bits(a, layout, 0, wave, buffers[0]);                            \
            const bits *y = row_##bits(b, layout, 1, wave, buffers[1]);                            \
            for (int i = 0; i < LANES; ++i)                                                        \
                out[i] = pick(x[i], y[i], signalling);                                             \
        }                                                                                          \
    }
DEFINE_PAIRWISE(valu_min_f32, uint32_t, min_f32, 0x400000u)
DEFINE_PAIRWISE(valu_max_f32, uint32_t, max_f32, 0x400000u)
DEFINE_PAIRWISE(valu_min_f64, uint64_t, min_f64, 0x8000000000000u)
DEFINE_PAIRWISE(valu_max_f64, uint64_t, max_f64, 0x8000000000000u)

void valu_med3_f32(uint32_t *restrict out, const uint32_t *a, const uint32_t *b, const uint32_t *c,
                   unsigned layout, ptrdiff_t waves, int ieee) {
    uint32_t buffers[3][LANES], signalling = ieee ? 0x400000u : 0;
    for (ptrdiff_t wave = 0; wave < waves; ++wave, out += LANES) {
        const uint32_t *x = row_uint32_t(a, layout, 0, wave, buffers[0]);
        const uint32_t *y = row_uint32_t(b, layout, 1, wave, buffers[1]);
        const uint32_t *z = row_uint32_t(c, layout, 2, wave, buffers[2]);
        for (int i = 0; i < LANES; ++i)
            out[i] = med3_f32(x[i], y[i], z[i], signalling);
    }
}

// Half precision: exact to float, where a signalling NaN stays one; from float in the given
// rounding.
void valu_half_to_float(float *restrict out, const uint16_t *source, ptrdiff_t count) {
    for (ptrdiff_t i = 0; i < count; ++i) {
        uint32_t half = source[i], bits;
        _Float16 number;
        memcpy(&number, &source[i], sizeof number);
        float wide = (float)number;
        memcpy(&bits, &wide, sizeof bits);
        uint32_t nan = (half & 0x8000u) << 16 | 0x7F800000u | (half & 0x3FFu) << 13;
        bits = (half & 0x7FFFu) > 0x7C00u ? nan : bits;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

void valu_float_to_half(_Float16 *restrict out, const float *source, ptrdiff_t count,
                        int rounding) {
    int before = fegetround();
    valu_set_rounding(rounding);
    for (ptrdiff_t i = 0; i < count; ++i)
        out[i] = (_Float16)source[i];
    fesetround(before);
}

// a*b + c of half-precision values in float, inexact sums rounded to odd: rounding the result to
// half precision, in any direction, is then right. The product of two halves is exact in float.
void valu_fma_half(float *restrict out, const float *a, const float *b, const float *c,
                   unsigned layout, ptrdiff_t waves) {
    float buffers[3][LANES];
    int before = fegetround();
    float cancelled = before == FE_DOWNWARD ? -0.0f : 0.0f; // x - x
    fesetround(FE_TONEAREST);
    for (ptrdiff_t wave = 0; wave < waves; ++wave, out += LANES) {
        const float *x = row_float(a, layout, 0, wave, buffers[0]);
        const float *y = row_float(b, layout, 1, wave, buffers[1]);
        const float *z = row_float(c, layout, 2, wave, buffers[2]);
        for (int i = 0; i < LANES; ++i) {
            float product = x[i] * y[i], sum = product + z[i], part = sum - product;
            float error = (product - (sum - part)) + (z[i] - part);
            uint32_t bits;
            memcpy(&bits, &sum, sizeof bits);
            uint32_t step = (error > 0) == (sum > 0) ? 1u : ~0u;
            int inexact = (error > 0) | (error < 0); // not for Inf and NaN, whose error is NaN
            bits += inexact & !(bits & 1) ? step : 0;
            memcpy(&sum, &bits, sizeof bits);
            int opposite = (sum == 0) & (signbit(product) != signbit(z[i]));
            out[i] = opposite ? cancelled : sum;
        }
    }
    fesetround(before);
}

// v_perm_b32: four bytes out of {a, b}. A selector of 8 to 11 replicates the sign of byte 1, 3, 5
// or 7, 12 gives zero, and a larger one 255.
static inline uint64_t permuted_byte(uint64_t data, uint64_t pick) {
    uint64_t byte = data >> (pick & 7) * 8 & 0xFF;
    uint64_t sign = 0 - (data >> ((pick & 3) * 16 + 15) & 1) & 0xFF;
    uint64_t beyond = pick < 12 ? sign : pick == 12 ? 0 : 0xFF;
    return pick < 8 ? byte : beyond;
}

void valu_perm_b32(uint32_t *restrict out, const uint32_t *a, const uint32_t *b, const uint32_t *c,
                   unsigned layout, ptrdiff_t waves) {
    uint32_t buffers[3][LANES];
    for (ptrdiff_t wave = 0; wave < waves; ++wave, out += LANES) {
        const uint32_t *high = row_uint32_t(a, layout, 0, wave, buffers[0]);
        const uint32_t *low = row_uint32_t(b, layout, 1, wave, buffers[1]);
        const uint32_t *selector = row_uint32_t(c, layout, 2, wave, buffers[2]);
        for (int i = 0; i < LANES; ++i) {
            uint64_t data = (uint64_t)high[i] << 32 | low[i], picks = selector[i];
            uint64_t result = permuted_byte(data, picks & 0xFF);
            result |= permuted_byte(data, picks >> 8 & 0xFF) << 8;
            result |= permuted_byte(data, picks >> 16 & 0xFF) << 16;
            result |= permuted_byte(data, picks >> 24) << 24;
            out[i] = (uint32_t)result;
        }
    }
}
