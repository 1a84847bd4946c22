// Vector ALU operations that NumPy has no equal of: fused multiply-add with one rounding, division's
// scaled step, and minimum and maximum with the hardware's rules for NaN and signed zero.
//
// A source is an array of one of three layouts: one value per lane (waves, 64), one per wave
// (waves, 1), or a constant (1, 1). `layout` packs one of these per source, two bits each, first source
// lowest. Results are (waves, 64). The loops over 64 lanes have no branch, so they vectorise.

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
typedef long double quad;
#endif

// Set the rounding of this thread: 0 nearest even, 1 up, 2 down, 3 towards zero (the MODE register's).
void valu_set_rounding(int mode) {
  static const int modes[4] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  fesetround(modes[mode & 3]);
}

#define DEFINE_ROW(type)                                                                           \
  static const type *row_##type(const type *source, unsigned layout, ptrdiff_t wave,               \
                                type *buffer) {                                                    \
    if (layout == PER_LANE) return source + wave * LANES;                                          \
    type value = source[layout == PER_WAVE ? wave : 0];                                            \
    for (int lane = 0; lane < LANES; ++lane) buffer[lane] = value;                                 \
    return buffer;                                                                                 \
  }
DEFINE_ROW(float)
DEFINE_ROW(double)

#define FOR_EACH_WAVE_2(type)                                                                      \
  type buffer_a[LANES], buffer_b[LANES];                                                           \
  for (ptrdiff_t wave = 0; wave < waves; ++wave, out += LANES) {                                   \
    const type *ra = row_##type(a, layout & 3, wave, buffer_a);                                    \
    const type *rb = row_##type(b, layout >> 2 & 3, wave, buffer_b);

#define FOR_EACH_WAVE_3(type)                                                                      \
  type buffer_c[LANES];                                                                            \
  FOR_EACH_WAVE_2(type)                                                                            \
  const type *rc = row_##type(c, layout >> 4 & 3, wave, buffer_c);

void valu_fma_f32(float *restrict out, const float *a, const float *b, const float *c,
                  unsigned layout, ptrdiff_t waves) {
  FOR_EACH_WAVE_3(float)
    for (int i = 0; i < LANES; ++i) out[i] = fmaf(ra[i], rb[i], rc[i]);
  }
}

void valu_fma_f64(double *restrict out, const double *a, const double *b, const double *c,
                  unsigned layout, ptrdiff_t waves) {
  FOR_EACH_WAVE_3(double)
    for (int i = 0; i < LANES; ++i) out[i] = fma(ra[i], rb[i], rc[i]);
  }
}

// The last step of division: a*b + c, times 2^±64 (f32) or 2^±128 (f64) where `scaled` is set, towards
// the side that v_div_scale moved away from; rounded once, also where the result is subnormal.
void valu_div_fmas_f32(float *restrict out, const float *a, const float *b, const float *c,
                       unsigned layout, ptrdiff_t waves, const uint8_t *scaled) {
  FOR_EACH_WAVE_3(float)
    for (int i = 0; i < LANES; ++i) {
      float result = fmaf(ra[i], rb[i], rc[i]);
      if (scaled[i]) {
        quad scale = fabsf(rc[i]) >= 2.0f ? 0x1p64 : 0x1p-64;
        result = (float)(((quad)ra[i] * rb[i] + rc[i]) * scale);
      }
      out[i] = result;
    }
    scaled += LANES;
  }
}

void valu_div_fmas_f64(double *restrict out, const double *a, const double *b, const double *c,
                       unsigned layout, ptrdiff_t waves, const uint8_t *scaled) {
  FOR_EACH_WAVE_3(double)
    for (int i = 0; i < LANES; ++i) {
      double result = fma(ra[i], rb[i], rc[i]);
      if (scaled[i]) {
        quad scale = fabs(rc[i]) >= 2.0 ? 0x1p128 : 0x1p-128;
        result = (double)(((quad)ra[i] * rb[i] + rc[i]) * scale);
      }
      out[i] = result;
    }
    scaled += LANES;
  }
}

// Minimum and maximum. A quiet NaN loses against a number; with `ieee` a signalling NaN wins and becomes
// quiet. -0 is less than +0, which the order of the bits, with negatives mirrored, gives for free.
#define DEFINE_MINMAX(name, type, bits, signed_bits, infinity, quiet, better)                      \
  void valu_##name(type *restrict out, const type *a, const type *b, unsigned layout,              \
                   ptrdiff_t waves, int ieee) {                                                    \
    const bits magnitude = (bits) ~(bits)0 >> 1, signalling = ieee ? quiet : 0;                    \
    FOR_EACH_WAVE_2(type)                                                                          \
      for (int i = 0; i < LANES; ++i) {                                                            \
        bits x, y, result;                                                                         \
        memcpy(&x, &ra[i], sizeof x);                                                              \
        memcpy(&y, &rb[i], sizeof y);                                                              \
        signed_bits kx = (signed_bits)x, ky = (signed_bits)y;                                      \
        kx ^= (signed_bits)((bits)(kx < 0 ? -1 : 0) >> 1);                                         \
        ky ^= (signed_bits)((bits)(ky < 0 ? -1 : 0) >> 1);                                         \
        int nan_x = (x & magnitude) > infinity, nan_y = (y & magnitude) > infinity;                \
        int snan_x = nan_x & (((x ^ quiet) & signalling) != 0);                                    \
        int snan_y = nan_y & (((y ^ quiet) & signalling) != 0);                                    \
        result = (kx better ky) ? x : y;                                                           \
        result = nan_y ? x : result;                                                               \
        result = nan_x ? y : result;                                                               \
        result = nan_x & nan_y ? x | quiet : result;                                               \
        result = snan_y ? y | quiet : result;                                                      \
        result = snan_x ? x | quiet : result;                                                      \
        memcpy(&out[i], &result, sizeof result);                                                   \
      }                                                                                            \
    }                                                                                              \
  }
DEFINE_MINMAX(min_f32, float, uint32_t, int32_t, 0x7F800000u, 0x400000u, <)
DEFINE_MINMAX(max_f32, float, uint32_t, int32_t, 0x7F800000u, 0x400000u, >)
DEFINE_MINMAX(min_f64, double, uint64_t, int64_t, 0x7FF0000000000000u, 0x8000000000000u, <)
DEFINE_MINMAX(max_f64, double, uint64_t, int64_t, 0x7FF0000000000000u, 0x8000000000000u, >)
