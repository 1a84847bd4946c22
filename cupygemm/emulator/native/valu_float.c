/* Floating-point operations of the vector ALU. An f16 operation computes in f32, and its result is
 * rounded when it is written. This is correctly rounded: f32 has more than twice the digits. */
#include <math.h>

#include "half.h"
#include "valu.h"
#include "valu_functions.h"

static inline u32 bits_f32(f32 a) {
    u32 bits;
    memcpy(&bits, &a, sizeof bits);
    return bits;
}
static inline f32 as_f32(u32 bits) {
    f32 a;
    memcpy(&a, &bits, sizeof a);
    return a;
}

/* -- arithmetic -------------------------------------------------------------------------------- */

#define ARITHMETIC(name, type)                                                                     \
    OP2(v_add_##name, type, type, type, OF_NAN(type, a, a + b))                                    \
    OP2(v_sub_##name, type, type, type, OF_NAN(type, a, a - b))                                    \
    OP2(v_subrev_##name, type, type, type, OF_NAN(type, b, b - a))                                 \
    OP2(v_mul_##name, type, type, type, OF_NAN(type, a, a *b))
ARITHMETIC(f32, f32)
ARITHMETIC(f64, f64)
ARITHMETIC(f16, f32)

OP3(v_fma_f32, f32, f32, f32, f32, fma_f32(a, b, c))
OP3(v_fma_f64, f64, f64, f64, f64, fma_f64(a, b, c))
OP3(v_fma_f16, f32, f32, f32, f32, fma_half(a, b, c, 0.0f))

/* -- minima and maxima, which receive bits ----------------------------------------------------- */

enum { QUIET_F32 = 0x400000 };
#define QUIET_F64 0x8000000000000u

#define MIN(a, b) min_f32(a, b, QUIET_F32)
#define MAX(a, b) max_f32(a, b, QUIET_F32)
/* The median as in med3_f32, in two loops: as one, it does not vectorise. */
DEFINE_OP(v_med3_f32) {
    EACH_WAVE {
        u32 lows[LANES], highs[LANES], nans[LANES];
        RESULT;
        SOURCE(a, 0);
        SOURCE(b, 1);
        SOURCE(c, 2);
        for (int i = 0; i < LANES; ++i) {
            u32 a = GET_u32(a), b = GET_u32(b);
            lows[i] = MIN(a, b);
            highs[i] = MAX(a, b);
            nans[i] = is_nan(a) | is_nan(b) | is_nan(GET_u32(c));
        }
        EACH_LANE {
            u32 c = GET_u32(c), least = MIN(lows[i], c), lesser = MIN(highs[i], c);
            PUT_u32(nans[i] ? least : MAX(lows[i], lesser));
        }
    }
}
DEFINE_OP(v_med3_f16) { op_v_med3_f32(out, in, op, mask, waves); }

#define EXTREMA(name)                                                                              \
    OP2(v_min_##name, u32, u32, u32, MIN(a, b))                                                    \
    OP2(v_max_##name, u32, u32, u32, MAX(a, b))                                                    \
    OP3(v_min3_##name, u32, u32, u32, u32, MIN(MIN(a, b), c))                                      \
    OP3(v_max3_##name, u32, u32, u32, u32, MAX(MAX(a, b), c))
EXTREMA(f32)
EXTREMA(f16)
OP2(v_min_f64, u64, u64, u64, min_f64(a, b, QUIET_F64))
OP2(v_max_f64, u64, u64, u64, max_f64(a, b, QUIET_F64))

/* The minimum and maximum of IEEE 754-2019, which are NaN if an operand is. */
static inline f32 minimum(f32 a, f32 b) {
    return a != a || b != b ? OF_NAN(f32, a, a + b) : as_f32(MIN(bits_f32(a), bits_f32(b)));
}
static inline f32 maximum(f32 a, f32 b) {
    return a != a || b != b ? OF_NAN(f32, a, a + b) : as_f32(MAX(bits_f32(a), bits_f32(b)));
}
OP3(v_minimum3_f32, f32, f32, f32, f32, minimum(minimum(a, b), c))
OP3(v_maximum3_f32, f32, f32, f32, f32, maximum(maximum(a, b), c))
#define OF_ANY_NAN(a, b, c, result) (is_nan(a) | is_nan(b) | is_nan(c) ? 0x7FC00000u : (result))
OP3(v_minimum3_f16, u32, u32, u32, u32, OF_ANY_NAN(a, b, c, MIN(MIN(a, b), c)))
OP3(v_maximum3_f16, u32, u32, u32, u32, OF_ANY_NAN(a, b, c, MAX(MAX(a, b), c)))

/* -- rounding to integers, exponents ----------------------------------------------------------- */

OP1(v_trunc_f32, f32, f32, OF_NAN(f32, a, truncf(a)))
OP1(v_ceil_f32, f32, f32, OF_NAN(f32, a, ceilf(a)))
OP1(v_rndne_f32, f32, f32, OF_NAN(f32, a, rintf(a)))
OP1(v_floor_f32, f32, f32, OF_NAN(f32, a, floorf(a)))
OP1(v_trunc_f16, f32, f32, OF_NAN(f32, a, truncf(a)))
OP1(v_ceil_f16, f32, f32, OF_NAN(f32, a, ceilf(a)))
OP1(v_rndne_f16, f32, f32, OF_NAN(f32, a, rintf(a)))
OP1(v_floor_f16, f32, f32, OF_NAN(f32, a, floorf(a)))
OP1(v_trunc_f64, f64, f64, OF_NAN(f64, a, trunc(a)))
OP1(v_ceil_f64, f64, f64, OF_NAN(f64, a, ceil(a)))
OP1(v_rndne_f64, f64, f64, OF_NAN(f64, a, rint(a)))
OP1(v_floor_f64, f64, f64, OF_NAN(f64, a, floor(a)))

/* x - floor(x), kept below 1 even if the difference rounds to 1. */
static inline f32 fract_f32(f32 a) {
    f32 part = a - floorf(a), below_one = 0x1.fffffep-1f;
    return part > below_one ? below_one : part;
}
static inline f64 fract_f64(f64 a) {
    f64 part = a - floor(a), below_one = 0x1.fffffffffffffp-1;
    return part > below_one ? below_one : part;
}
static inline f32 fract_f16(f32 a) {
    f32 part = half_to_float(float_to_half(a - floorf(a))), below_one = 0x1.ffcp-1f;
    return part > below_one ? below_one : part;
}
OP1(v_fract_f32, f32, f32, OF_NAN(f32, a, fract_f32(a)))
OP1(v_fract_f64, f64, f64, OF_NAN(f64, a, fract_f64(a)))
OP1(v_fract_f16, f32, f32, OF_NAN(f32, a, fract_f16(a)))

/* The mantissa of a finite number is in [1/2, 1); a subnormal one is scaled first. */
static inline f32 frexp_mant_f32(f32 a) {
    f32 scaled = fabsf(a) < 0x1p-126f ? a * 0x1p32f : a;
    f32 mantissa = as_f32((bits_f32(scaled) & 0x807FFFFFu) | 126u << 23);
    return a == 0 || !(fabsf(a) < INFINITY) ? quiet_f32(a) : mantissa;
}
static inline f64 frexp_mant_f64(f64 a) {
    f64 scaled = fabs(a) < 0x1p-1022 ? a * 0x1p64 : a;
    f64 mantissa = as_f64((bits_f64(scaled) & 0x800FFFFFFFFFFFFFu) | 1022ull << 52);
    return a == 0 || !(fabs(a) < INFINITY) ? quiet_f64(a) : mantissa;
}
static inline i32 frexp_exp_f32(f32 a) {
    bool subnormal = fabsf(a) < 0x1p-126f;
    u32 bits = bits_f32(subnormal ? a * 0x1p32f : a);
    i32 exponent = (i32)(bits >> 23 & 0xFF) - 126 - (subnormal ? 32 : 0);
    return a == 0 || !(fabsf(a) < INFINITY) ? 0 : exponent;
}
static inline i32 frexp_exp_f64(f64 a) {
    bool subnormal = fabs(a) < 0x1p-1022;
    u64 bits = bits_f64(subnormal ? a * 0x1p64 : a);
    i32 exponent = (i32)(bits >> 52 & 0x7FF) - 1022 - (subnormal ? 64 : 0);
    return a == 0 || !(fabs(a) < INFINITY) ? 0 : exponent;
}
OP1(v_frexp_mant_f32, f32, f32, frexp_mant_f32(a))
OP1(v_frexp_mant_f16, f32, f32, frexp_mant_f32(a))
OP1(v_frexp_mant_f64, f64, f64, frexp_mant_f64(a))
OP1(v_frexp_exp_i32_f32, u32, f32, frexp_exp_f32(a))
OP1(v_frexp_exp_i16_f16, u16, f32, frexp_exp_f32(a))
OP1(v_frexp_exp_i32_f64, u32, f64, frexp_exp_f64(a))

/* x times a power of two, rounded once: the factors that keep the number normal are applied
 * first. */
static inline f32 ldexp_f32(f32 a, i32 power) {
    i32 n = power < -400 ? -400 : power > 400 ? 400 : power;
    f64 scale = as_f64((u64)(n + 1023) << 52); /* exact in f64, whose product is rounded once */
    return (f32)(a * scale);
}
static inline f64 ldexp_f64(f64 a, i32 power) {
    bool subnormal = fabs(a) < 0x1p-1022;
    f64 normal = subnormal ? a * 0x1p64 : a;
    i32 n = power < -4400 ? -4400 : power > 4400 ? 4400 : power;
    n -= subnormal ? 64 : 0;
    i32 exponent = (i32)(bits_f64(normal) >> 52 & 0x7FF) + n;
    u64 kept = bits_f64(normal) & 0x800FFFFFFFFFFFFFu;
    bool below = exponent < 1, above = exponent > 2046;
    i32 small = exponent < -60 ? -60 : exponent;
    f64 result = as_f64(kept | (u64)(below ? small + 100 : above ? 1 : exponent) << 52);
    result = below ? result * 0x1p-100 : result;
    result = above ? copysign(INFINITY, a) : result;
    return a == 0 || !(fabs(a) < INFINITY) ? quiet_f64(a) : result;
}
OP2(v_ldexp_f32, f32, f32, i32, ldexp_f32(a, b))
OP2(v_ldexp_f16, f32, f32, i16, ldexp_f32(a, b))
OP2(v_ldexp_f64, f64, f64, i32, ldexp_f64(a, b))

/* -- functions: those of f32 compute in f64 and treat subnormals as zero ----------------------- */

static inline f32 reciprocal(f32 a) { return flushed((f32)(1.0 / flushed(a))); }

OP1(v_rcp_f32, f32, f32, reciprocal(a))
OP1(v_rcp_iflag_f32, f32, f32, reciprocal(a))
OP1(v_rsq_f32, f32, f32, flushed((f32)(1.0 / sqrt((f64)flushed(a)))))
OP1(v_sqrt_f32, f32, f32, flushed((f32)sqrt((f64)flushed(a))))
OP1(v_rcp_f16, f32, f32, (f32)(1.0 / a))
OP1(v_rsq_f16, f32, f32, (f32)(1.0 / sqrt((f64)a)))
OP1(v_sqrt_f16, f32, f32, (f32)sqrt((f64)a))
OP1(v_rcp_f64, f64, f64, 1.0 / a)
OP1(v_rsq_f64, f64, f64, 1.0 / sqrt(a))
OP1(v_sqrt_f64, f64, f64, sqrt(a))

#define CURVE(name, function)                                                                      \
    OP1(v_##name##_f32, f32, f32, flushed((f32)function((f64)flushed(a))))                         \
    OP1(v_##name##_f16, f32, f32, (f32)function((f64)a))
CURVE(exp, exp2)
CURVE(log, log2)
CURVE(sin, sine_of_turns)
CURVE(cos, cosine_of_turns)
OP1(v_exp_legacy_f32, f32, f32, flushed((f32)exp2((f64)flushed(a))))
OP1(v_log_legacy_f32, f32, f32, flushed((f32)log2((f64)flushed(a))))

/* -- division ---------------------------------------------------------------------------------- */

/* Usually no lane is scaled. */
#define DIV_FMAS(type)                                                                             \
    OP3(v_div_fmas_##type##_unscaled, type, type, type, type, fma_##type(a, b, c))                 \
    DEFINE_OP(v_div_fmas_##type) {                                                                 \
        bit any = 0;                                                                               \
        EACH_WAVE {                                                                                \
            SOURCE(scaled, 3);                                                                     \
            any |= scaled_low[0] | scaled_low[1];                                                  \
        }                                                                                          \
        if (!any) {                                                                                \
            op_v_div_fmas_##type##_unscaled(out, in, op, mask, waves);                             \
            return;                                                                                \
        }                                                                                          \
        EACH_WAVE {                                                                                \
            RESULT;                                                                                \
            SOURCE(a, 0);                                                                          \
            SOURCE(b, 1);                                                                          \
            SOURCE(c, 2);                                                                          \
            SOURCE(scaled, 3);                                                                     \
            EACH_LANE {                                                                            \
                type a = GET_##type(a), b = GET_##type(b), c = GET_##type(c);                      \
                PUT_##type(div_fmas_##type(a, b, c, (int)GET_bit(scaled)));                        \
            }                                                                                      \
        }                                                                                          \
    }
DIV_FMAS(f32)
DIV_FMAS(f64)

static inline i32 field_f32(f32 a) { return (i32)(bits_f32(a) >> 23 & 0xFF); }
static inline i32 field_f64(f64 a) { return (i32)(bits_f64(a) >> 52 & 0x7FF); }

/* v_div_scale: which case holds, see units/vector/division.py. */
enum scaling { NOT_A_NUMBER, NEAR_MAXIMUM, SUBNORMAL, BOTH, DOWN, SMALL_QUOTIENT, UP, UNSCALED };

/* Whether |s2 / s1| < 2**lowest: compare the mantissas if the exponents are equal. */
#define DEFINE_DIV_SCALE(type, fabs_type, near_max, step_up, step_down, tiny, lowest, large)       \
    static inline bool small_quotient_##type(type s1, type s2) {                                   \
        type m1 = frexp_mant_##type(fabs_type(s1)), m2 = frexp_mant_##type(fabs_type(s2));         \
        i32 apart = frexp_exp_##type(s2) - frexp_exp_##type(s1) - (m2 < m1);                       \
        return apart < lowest && fabs_type(s1) < INFINITY && fabs_type(s2) < INFINITY;             \
    }                                                                                              \
    static inline enum scaling scaling_##type(type s1, type s2) {                                  \
        bool small_reciprocal = fabs_type(s1) > large && fabs_type(s1) < INFINITY;                 \
        bool small_quotient = small_quotient_##type(s1, s2);                                       \
        if (s1 == 0 || s2 == 0)                                                                    \
            return NOT_A_NUMBER;                                                                   \
        if (field_##type(s2) - field_##type(s1) >= near_max)                                       \
            return NEAR_MAXIMUM;                                                                   \
        if (field_##type(s1) == 0)                                                                 \
            return SUBNORMAL;                                                                      \
        if (small_reciprocal)                                                                      \
            return small_quotient ? BOTH : DOWN;                                                   \
        if (small_quotient)                                                                        \
            return SMALL_QUOTIENT;                                                                 \
        return field_##type(s2) <= tiny ? UP : UNSCALED;                                           \
    }                                                                                              \
    static inline type div_scale_##type(type s0, type s1, type s2) {                               \
        type up = s0 * step_up, down = s0 * step_down;                                             \
        switch (scaling_##type(s1, s2)) {                                                          \
        case NOT_A_NUMBER: return NAN;                                                             \
        case NEAR_MAXIMUM: return s0 == s1 ? up : s0;                                              \
        case BOTH: return s0 == s1 ? down : s0;                                                    \
        case DOWN: return down;                                                                    \
        case SMALL_QUOTIENT: return s0 == s2 ? up : s0;                                            \
        case SUBNORMAL:                                                                            \
        case UP: return up;                                                                        \
        default: return s0;                                                                        \
        }                                                                                          \
    }                                                                                              \
    static inline bool scales_back_##type(type s1, type s2) {                                      \
        enum scaling found = scaling_##type(s1, s2);                                               \
        return found == NEAR_MAXIMUM || found == BOTH || found == SMALL_QUOTIENT;                  \
    }
DEFINE_DIV_SCALE(f32, fabsf, 96, 0x1p64f, 0x1p-64f, 23, -126, 0x1p126f)
DEFINE_DIV_SCALE(f64, fabs, 768, 0x1p128, 0x1p-128, 53, -1022, 0x1p1022)
OP3_MASK(v_div_scale_f32_lanes, f32, f32, f32, f32, div_scale_f32(a, b, c), scales_back_f32(b, c))
OP3_MASK(v_div_scale_f64_lanes, f64, f64, f64, f64, div_scale_f64(a, b, c), scales_back_f64(b, c))

/* Usually no lane needs scaling, because the exponents are moderate; one loop checks this. */
#define DIV_SCALE(type, near_max, tiny, largest, special)                                          \
    OP1(v_div_scale_##type##_not, type, type, a)                                                   \
    DEFINE_OP(v_div_scale_##type) {                                                                \
        i32 scales = 0;                                                                            \
        EACH_WAVE {                                                                                \
            SOURCE(s1, 1);                                                                         \
            SOURCE(s2, 2);                                                                         \
            for (int i = 0; i < LANES; ++i) {                                                      \
                i32 e1 = field_##type(GET_##type(s1)), e2 = field_##type(GET_##type(s2));          \
                i32 apart = e2 - e1;                                                               \
                scales |= (e1 < 1) | (e1 > largest) | (e2 <= tiny) | (e2 >= special) |             \
                          (apart >= near_max) | (apart <= -near_max);                              \
            }                                                                                      \
        }                                                                                          \
        if (scales)                                                                                \
            op_v_div_scale_##type##_lanes(out, in, op, mask, waves);                               \
        else                                                                                       \
            op_v_div_scale_##type##_not(out, in, op, mask, waves);                                 \
    }
DIV_SCALE(f32, 96, 23, 252, 255)
DIV_SCALE(f64, 768, 53, 2044, 2047)

#define DEFINE_DIV_FIXUP(name, type, fabs_type, copysign_type, underflows)                         \
    static inline type div_fixup_##name(type s0, type s1, type s2) {                               \
        bool infinite1 = fabs_type(s1) == INFINITY, infinite2 = fabs_type(s2) == INFINITY;         \
        type result = s0 != s0 ? (type)INFINITY : fabs_type(s0);                                   \
        result = underflows || infinite1 || s2 == 0 ? 0 : result;                                  \
        result = s1 == 0 || infinite2 ? (type)INFINITY : result;                                   \
        result = !signbit(s1) != !signbit(s2) ? -result : result;                                  \
        result = (s1 == 0 && s2 == 0) || (infinite1 && infinite2) ? -(type)NAN : result;           \
        result = s1 != s1 ? quiet_##type(s1) : result;                                             \
        return s2 != s2 ? quiet_##type(s2) : result;                                               \
    }
DEFINE_DIV_FIXUP(f32, f32, fabsf, copysignf, field_f32(s2) - field_f32(s1) < -150)
DEFINE_DIV_FIXUP(f64, f64, fabs, copysign, field_f64(s2) - field_f64(s1) < -1075)
DEFINE_DIV_FIXUP(f16, f32, fabsf, copysignf, false)
OP3(v_div_fixup_f32, f32, f32, f32, f32, div_fixup_f32(a, b, c))
OP3(v_div_fixup_f64, f64, f64, f64, f64, div_fixup_f64(a, b, c))
OP3(v_div_fixup_f16, f32, f32, f32, f32, div_fixup_f16(a, b, c))

/* -- conversions ------------------------------------------------------------------------------- */

/* Truncate to an integer and saturate; NaN becomes 0. */
#define TO_INTEGER(type, a, low, high)                                                             \
    ((a) != (a) ? 0 : (a) <= (low) ? (type)(low) : (a) >= (high) ? (type)(high) : (type)(a))

static inline i32 to_i32(f64 a) { return TO_INTEGER(i32, a, -2147483648.0, 2147483647.0); }
static inline u32 to_u32(f64 a) { return TO_INTEGER(u32, a, 0.0, 4294967295.0); }

OP1(v_cvt_i32_f32, u32, f32, to_i32((f64)a))
OP1(v_cvt_u32_f32, u32, f32, to_u32((f64)a))
OP1(v_cvt_i32_f64, u32, f64, to_i32(a))
OP1(v_cvt_u32_f64, u32, f64, to_u32(a))
OP1(v_cvt_i16_f16, u16, f32, TO_INTEGER(i32, a, -32768.0f, 32767.0f))
OP1(v_cvt_u16_f16, u16, f32, TO_INTEGER(i32, a, 0.0f, 65535.0f))
OP1(v_cvt_rpi_i32_f32, u32, f32, to_i32(floor((f64)a + 0.5)))
OP1(v_cvt_flr_i32_f32, u32, f32, to_i32((f64)floorf(a)))
OP1(v_cvt_f32_i32, f32, i32, a)
OP1(v_cvt_f32_u32, f32, u32, a)
OP1(v_cvt_f64_i32, f64, i32, a)
OP1(v_cvt_f64_u32, f64, u32, a)
OP1(v_cvt_f16_i16, f32, i16, a)
OP1(v_cvt_f16_u16, f32, u16, a)
OP1(v_cvt_f32_ubyte0, f32, u32, a & 0xFF)
OP1(v_cvt_f32_ubyte1, f32, u32, a >> 8 & 0xFF)
OP1(v_cvt_f32_ubyte2, f32, u32, a >> 16 & 0xFF)
OP1(v_cvt_f32_ubyte3, f32, u32, a >> 24)
COPY(v_cvt_f16_f32)
OP1(v_cvt_f32_f16, f32, f32, quiet_f32(a))
OP1(v_cvt_f32_bf16, f32, f32, quiet_f32(a))
OP1(v_cvt_f32_f64, f32, f64, a)
OP1(v_cvt_f64_f32, f64, f32, a)
