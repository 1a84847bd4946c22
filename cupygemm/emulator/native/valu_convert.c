/* Operations of the vector ALU on narrow numbers: packed conversions, 8-bit floats, dot products;
 * and multiply-add with two roundings. */
#include <math.h>

#include "half.h"
#include "valu.h"
#include "valu_functions.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define CLIP(a, low, high) MIN(MAX(a, low), high)

static inline u32 packed(u16 low, u16 high) { return low | (u32)high << 16; }

/* -- packed conversions ------------------------------------------------------------------------ */

/* Round to nearest even; NaN becomes quiet. */
static inline u16 to_bf16(f32 a) {
    u32 bits;
    memcpy(&bits, &a, sizeof bits);
    u32 rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    bool finite = (bits & 0x7F800000u) != 0x7F800000u;
    return (u16)(finite ? rounded : a != a ? bits >> 16 | 0x40 : bits >> 16);
}
OP2(v_cvt_pk_bf16_f32, u32, f32, f32, packed(to_bf16(a), to_bf16(b)))
OP2(v_cvt_pk_f16_f32, u32, f32, f32, packed(float_to_half(a), float_to_half(b)))
OP2(v_cvt_pkrtz_f16_f32, u32, f32, f32, packed(half_towards_zero(a), half_towards_zero(b)))

/* Map [-1, 1] or [0, 1] to the range of a 16-bit integer, to nearest even; NaN becomes 0. */
static inline u16 normalized(f32 a, f64 low, f64 high) {
    f64 scaled = a != a ? 0 : rint((f64)a * high);
    return (u16)(i32)CLIP(scaled, low, high);
}
#define NORM_I16(a) normalized(a, -32767, 32767)
#define NORM_U16(a) normalized(a, 0, 65535)
OP1(v_cvt_norm_i16_f16, u16, f32, NORM_I16(a))
OP1(v_cvt_norm_u16_f16, u16, f32, NORM_U16(a))
OP2(v_cvt_pknorm_i16_f32, u32, f32, f32, packed(NORM_I16(a), NORM_I16(b)))
OP2(v_cvt_pknorm_u16_f32, u32, f32, f32, packed(NORM_U16(a), NORM_U16(b)))
OP2(v_cvt_pknorm_i16_f16, u32, f32, f32, packed(NORM_I16(a), NORM_I16(b)))
OP2(v_cvt_pknorm_u16_f16, u32, f32, f32, packed(NORM_U16(a), NORM_U16(b)))

/* Truncate to an unsigned byte, saturated; NaN becomes 0. */
static inline u32 to_byte(f32 a) { return a > 0 ? (u32)MIN(a, 255.0f) : 0; }
static inline u32 with_byte(u32 rest, u32 shift, u32 byte) {
    return (rest & ~(0xFFu << shift)) | byte << shift;
}
OP3(v_cvt_pk_u8_f32, u32, f32, u32, u32, with_byte(c, 8 * (b & 3), to_byte(a)))
OP3(v_cvt_pkaccum_u8_f32, u32, f32, u32, u32, with_byte(c, 8 * (b & 3), to_byte(a)))
OP1(v_cvt_off_f32_i4, f32, u32, (f32)((i32)(a << 28) >> 28) / 16)
OP1(v_sat_pk_u8_i16, u16, u32, CLIP((i16)a, 0, 255) | CLIP((i16)(a >> 16), 0, 255) << 8)
OP3(v_ashr_pk_i8_i32, u16, i32, i32, u32,
    (u8)CLIP(a >> (c & 31), -128, 127) | (u8)CLIP(b >> (c & 31), -128, 127) << 8)
OP3(v_ashr_pk_u8_i32, u16, i32, i32, u32,
    CLIP(a >> (c & 31), 0, 255) | CLIP(b >> (c & 31), 0, 255) << 8)

/* -- 8-bit floats ------------------------------------------------------------------------------ */

/* The format of cupygemm.emulator.units.formats: op->immediate has its mantissa bits, its bias, its
 * largest code and its encoding of Inf and NaN, 8 bits each. op->table has its codes' values. */
enum special { FN, IEEE, FNUZ };

static inline u32 encoded(u32 format, f32 value, u32 noise, u32 noise_bits) {
    i32 mantissa_bits = format & 0xFF, bias = format >> 8 & 0xFF;
    u32 max_code = format >> 16 & 0xFF, special = format >> 24;
    f64 magnitude = fabsf(value) < INFINITY ? fabs((f64)value) : 0, power;
    u64 bits;
    memcpy(&bits, &magnitude, sizeof bits);
    i32 exponent = MAX((i32)(bits >> 52) - 1023, 1 - bias);
    bits = (u64)(1023 + mantissa_bits - exponent + (i32)noise_bits) << 52;
    memcpy(&power, &bits, sizeof power);
    f64 scaled = magnitude * power; /* in units of the last place, and of the noise */
    i64 units = noise_bits ? ((i64)floor(scaled) + noise) >> noise_bits : (i64)rint(scaled);
    i64 code = units + ((i64)(exponent - (1 - bias)) << mantissa_bits);
    bool overflows = code > max_code, infinite = fabsf(value) == INFINITY, nan = value != value;
    u32 sign = signbit(value) ? 0x80 : 0;
    if (special == FNUZ) /* zero has no sign, and the code of -0 is NaN */
        return overflows || infinite || nan ? 0x80 : code == 0 ? 0 : (u32)code | sign;
    u32 finite = overflows || infinite ? max_code + 1 : (u32)code;
    return (nan ? 0x7F : finite) | sign;
}

/* The top bits of a random number are added below the last mantissa bit. */
static inline u32 encoded_randomly(u32 format, f32 value, u32 random) {
    u32 width = (format & 0xFF) == 2 ? 21 : 20;
    return encoded(format, value, random >> (32 - width), width);
}
#define FORMAT op->immediate
OP2(v_cvt_pk_fp8_f32, u32, f32, f32, encoded(FORMAT, a, 0, 0) | encoded(FORMAT, b, 0, 0) << 8)
OP2(v_cvt_sr_fp8_f32, u32, f32, u32, encoded_randomly(FORMAT, a, b))
OP1(v_cvt_f32_fp8, f32, u32, op->table[a & 0xFF])

/* -- dot products ------------------------------------------------------------------------------ */

/* The first of two NaNs is returned. */
static inline f32 sum(f32 a, f32 b) { return OF_NAN(f32, a, a + b); }
static inline f32 product(f32 a, f32 b) { return OF_NAN(f32, a, a * b); }

/* The sources are the halves of the two factors, low before high, and the addend. */
#define DOT2(name, R, A, C, expression)                                                            \
    DEFINE_OP(name) {                                                                              \
        EACH_WAVE {                                                                                \
            RESULT;                                                                                \
            SOURCE(a0, 0);                                                                         \
            SOURCE(a1, 1);                                                                         \
            SOURCE(b0, 2);                                                                         \
            SOURCE(b1, 3);                                                                         \
            SOURCE(c, 4);                                                                          \
            EACH_LANE {                                                                            \
                A a0 = GET_##A(a0), a1 = GET_##A(a1), b0 = GET_##A(b0), b1 = GET_##A(b1);          \
                C c = GET_##C(c);                                                                  \
                PUT_##R(expression);                                                               \
            }                                                                                      \
        }                                                                                          \
    }
DOT2(v_dot2_f32_f16, f32, f32, f32, sum(sum(c, product(a0, b0)), product(a1, b1)))
DOT2(v_dot2c_f32_bf16, f32, f32, f32, sum(sum(c, product(a0, b0)), product(a1, b1)))
DOT2(v_dot2_f32_bf16, f32, f32, f32, sum(sum(product(a0, b0), product(a1, b1)), c))

/* Integer sums wrap, or saturate if op->immediate is set. */
#define TOTAL(R, value) (op->immediate ? SATURATED(R, value) : (value))
DOT2(v_dot2_i32_i16, i32, i16, i32, TOTAL(i32, (i64)(a0 * b0) + (i64)(a1 * b1) + c))
DOT2(v_dot2_u32_u16, u32, u16, u32, TOTAL(u32, (i64)((u32)a0 * b0) + (i64)((u32)a1 * b1) + c))

static inline i64 dot_signed(u32 a, u32 b, int bits) {
    i64 total = 0;
    for (int at = 32 - bits; at >= 0; at -= bits)
        total += ((i32)(a << at) >> (32 - bits)) * ((i32)(b << at) >> (32 - bits));
    return total;
}
static inline i64 dot_unsigned(u32 a, u32 b, int bits) {
    i64 total = 0;
    for (int at = 0; at < 32; at += bits)
        total += (a >> at & ((1u << bits) - 1)) * (b >> at & ((1u << bits) - 1));
    return total;
}
OP3(v_dot4_i32_i8, i32, u32, u32, i32, TOTAL(i32, dot_signed(a, b, 8) + c))
OP3(v_dot8_i32_i4, i32, u32, u32, i32, TOTAL(i32, dot_signed(a, b, 4) + c))
OP3(v_dot4_u32_u8, u32, u32, u32, u32, TOTAL(u32, dot_unsigned(a, b, 8) + c))
OP3(v_dot8_u32_u4, u32, u32, u32, u32, TOTAL(u32, dot_unsigned(a, b, 4) + c))

/* -- multiply-add with two roundings ----------------------------------------------------------- */

static inline f32 rounded_to_half(f32 a) { return half_to_float(float_to_half(a)); }
static inline f32 mad_f16(f32 a, f32 b, f32 c) { return sum(rounded_to_half(product(a, b)), c); }

/* CDNA2's unfused multiply-add always treats subnormals as zero. */
static inline f32 mad_f32(f32 a, f32 b, f32 c) {
    return flushed(sum(flushed(product(flushed(a), flushed(b))), flushed(c)));
}
OP3(v_mad_f16, f32, f32, f32, f32, mad_f16(a, b, c))
OP3(v_mad_f32, f32, f32, f32, f32, mad_f32(a, b, c))
OP2(v_mul_legacy_f32, f32, f32, f32, a == 0 || b == 0 ? 0 : product(a, b))
