// Vector ALU operations for which NumPy has no equivalent: fused multiply-add with one rounding,
// division's scaled step, minimum and maximum with the hardware's rules for NaN and signed zero,
// half precision in every rounding, and the byte permutation.
//
// A source is an array of one of three layouts: one value per lane (waves, 64), one per wave
// (waves, 1), or a constant (1, 1). `layout` packs one of these per source, two bits each, first
// source lowest. Results are (waves, 64), in an array of their own. The loops over the 64 lanes of
// a wave have no branch, so they vectorise.

#include <fenv.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "half.h"
#include "valu_functions.h"

enum { LANES = 64 };
enum { PER_LANE = 0, PER_WAVE = 1, CONSTANT = 2 };

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
DEFINE_FMA(valu_fma_f32, float, fma_f32)
DEFINE_FMA(valu_fma_f64, double, fma_f64)

// The last step of division.
#define DEFINE_DIV_FMAS(name, type)                                                                \
    void valu_##name(type *restrict out, const type *a, const type *b, const type *c,              \
                     unsigned layout, ptrdiff_t waves, const uint8_t *scaled) {                    \
        type buffers[3][LANES];                                                                    \
        for (ptrdiff_t wave = 0; wave < waves; ++wave, out += LANES, scaled += LANES) {            \
            const type *x = row_##type(a, layout, 0, wave, buffers[0]);                            \
            const type *y = row_##type(b, layout, 1, wave, buffers[1]);                            \
            const type *z = row_##type(c, layout, 2, wave, buffers[2]);                            \
            for (int i = 0; i < LANES; ++i)                                                        \
                out[i] = name(x[i], y[i], z[i], scaled[i]);                                        \
        }                                                                                          \
    }
DEFINE_DIV_FMAS(div_fmas_f32, float)
DEFINE_DIV_FMAS(div_fmas_f64, double)

// Minimum, maximum and median; in IEEE mode, a signalling NaN wins and becomes quiet.
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

void valu_half_to_float(float *restrict out, const uint16_t *source, ptrdiff_t count) {
    for (ptrdiff_t i = 0; i < count; ++i)
        out[i] = half_to_float(source[i]);
}

void valu_float_to_half(uint16_t *restrict out, const float *source, ptrdiff_t count,
                        int rounding) {
    int before = fegetround();
    valu_set_rounding(rounding);
    for (ptrdiff_t i = 0; i < count; ++i)
        out[i] = float_to_half(source[i]);
    fesetround(before);
}

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
        for (int i = 0; i < LANES; ++i)
            out[i] = fma_half(x[i], y[i], z[i], cancelled);
    }
    fesetround(before);
}

// Functions of float64 values, by libm rather than NumPy, whose bits depend on the processor.
#define DEFINE_CURVE(name, function)                                                               \
    void valu_##name(double *restrict out, const double *source, ptrdiff_t count) {                \
        for (ptrdiff_t i = 0; i < count; ++i)                                                      \
            out[i] = function(source[i]);                                                          \
    }
DEFINE_CURVE(exp2, exp2)
DEFINE_CURVE(log2, log2)
DEFINE_CURVE(sine, sine_of_turns)
DEFINE_CURVE(cosine, cosine_of_turns)

void valu_perm_b32(uint32_t *restrict out, const uint32_t *a, const uint32_t *b, const uint32_t *c,
                   unsigned layout, ptrdiff_t waves) {
    uint32_t buffers[3][LANES];
    for (ptrdiff_t wave = 0; wave < waves; ++wave, out += LANES) {
        const uint32_t *high = row_uint32_t(a, layout, 0, wave, buffers[0]);
        const uint32_t *low = row_uint32_t(b, layout, 1, wave, buffers[1]);
        const uint32_t *selector = row_uint32_t(c, layout, 2, wave, buffers[2]);
        for (int i = 0; i < LANES; ++i)
            out[i] = permuted(high[i], low[i], selector[i]);
    }
}
