/* Functions of one lane that both the NumPy path (valu.c) and the native one call. */
#ifndef CUPYGEMM_VALU_FUNCTIONS_H
#define CUPYGEMM_VALU_FUNCTIONS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef float f32;
typedef double f64;

/* Of several NaNs, an operation returns the first, made quiet. The compiler may exchange the
 * operands of an instruction and thereby the resulting NaN, so the functions select it
 * explicitly. */
#define DEFINE_NAN(type, bits, quiet)                                                              \
    static inline type quiet_##type(type a) {                                                      \
        bits word;                                                                                 \
        memcpy(&word, &a, sizeof word);                                                            \
        word |= a != a ? quiet : 0;                                                                \
        memcpy(&a, &word, sizeof a);                                                               \
        return a;                                                                                  \
    }
DEFINE_NAN(f32, uint32_t, 0x400000u)
DEFINE_NAN(f64, uint64_t, 0x8000000000000u)
#undef DEFINE_NAN
#define OF_NAN(type, a, result) ((a) != (a) ? quiet_##type(a) : (result))

/* Replace a subnormal by zero of its sign. */
static inline f32 flushed(f32 a) { return fabsf(a) < 0x1p-126f ? copysignf(0, a) : a; }

static inline f32 fma_f32(f32 a, f32 b, f32 c) {
    f32 result = fmaf(a, b, c);
    return OF_NAN(f32, a, OF_NAN(f32, b, OF_NAN(f32, c, result)));
}
static inline f64 fma_f64(f64 a, f64 b, f64 c) {
    f64 result = fma(a, b, c);
    return OF_NAN(f64, a, OF_NAN(f64, b, OF_NAN(f64, c, result)));
}

/* In fma_units.c. */
uint64_t fma_in_units(double a, double b, double c, int unit);

/* The last step of division: a*b + c, times 2^±64 (f32) or 2^±128 (f64) where `scaled` is set,
 * in the direction that undoes v_div_scale; rounded once, also to a subnormal. */
#define DEFINE_DIV_FMAS(type, bits, up, log2_up, smallest_normal, log2_smallest)                   \
    static inline type div_fmas_##type(type a, type b, type c, int scaled) {                       \
        type result = fma_##type(a, b, c);                                                         \
        if (!scaled)                                                                               \
            return result;                                                                         \
        int raise = fabs(c) >= 2;                                                                  \
        type moved = result * (raise ? up : 1 / up);                                               \
        if (result != 0 && fabs(moved) <= smallest_normal) {                                       \
            int unit = log2_smallest - (raise ? log2_up : -log2_up);                               \
            bits magnitude = (bits)fma_in_units(a, b, c, unit);                                    \
            memcpy(&moved, &magnitude, sizeof moved);                                              \
            moved = signbit(result) ? -moved : moved;                                              \
        }                                                                                          \
        return moved;                                                                              \
    }
DEFINE_DIV_FMAS(f32, uint32_t, 0x1p64f, 64, 0x1p-126f, -149)
DEFINE_DIV_FMAS(f64, uint64_t, 0x1p128, 128, 0x1p-1022, -1074)
#undef DEFINE_DIV_FMAS

/* Minimum, maximum and median. A number is preferred to a quiet NaN; if `signalling` has the quiet
 * bit (in IEEE mode), a signalling NaN wins and becomes quiet. Comparing the bits, mirrored for
 * negative numbers, orders -0 below +0. */
#define DEFINE_PICK(name, bits, infinity, quiet, better)                                           \
    static inline u##bits name(u##bits x, u##bits y, u##bits signalling) {                         \
        const u##bits magnitude = ~(u##bits)0 >> 1;                                                \
        bits order_x = (bits)(x ^ ((u##bits)((bits)x < 0 ? -1 : 0) >> 1));                         \
        bits order_y = (bits)(y ^ ((u##bits)((bits)y < 0 ? -1 : 0) >> 1));                         \
        int nan_x = (x & magnitude) > infinity, nan_y = (y & magnitude) > infinity;                \
        u##bits result = order_x better order_y ? x : y;                                           \
        result = nan_y ? x : result;                                                               \
        result = nan_x ? y : result;                                                               \
        result = (nan_x & nan_y) ? x | quiet : result;                                             \
        result = (nan_y & ((~y & signalling) != 0)) ? y | quiet : result;                          \
        return (nan_x & ((~x & signalling) != 0)) ? x | quiet : result;                            \
    }
DEFINE_PICK(min_f32, int32_t, 0x7F800000u, 0x400000u, <)
DEFINE_PICK(max_f32, int32_t, 0x7F800000u, 0x400000u, >)
DEFINE_PICK(min_f64, int64_t, 0x7FF0000000000000u, 0x8000000000000u, <)
DEFINE_PICK(max_f64, int64_t, 0x7FF0000000000000u, 0x8000000000000u, >)
#undef DEFINE_PICK

/* Remove the largest of three; the median is the larger of the others; NaN makes it the minimum. */
static inline int is_nan(uint32_t x) { return (x & ~0u >> 1) > 0x7F800000u; }

static inline uint32_t med3_f32(uint32_t x, uint32_t y, uint32_t z, uint32_t signalling) {
    uint32_t low = min_f32(x, y, signalling), high = max_f32(x, y, signalling);
    uint32_t least = min_f32(low, z, signalling);
    uint32_t median = max_f32(low, min_f32(high, z, signalling), signalling);
    return (is_nan(x) | is_nan(y) | is_nan(z)) ? least : median;
}

/* v_perm_b32: four bytes out of {a, b}. A selector of 8 to 11 replicates the sign of byte 1, 3, 5
 * or 7, 12 gives zero, and a larger one 255. */
static inline uint32_t permuted_byte(uint32_t a, uint32_t b, uint32_t pick) {
    uint32_t byte = ((pick & 4) ? a : b) >> (pick & 3) * 8 & 0xFF;
    uint32_t sign = (((pick & 2) ? a : b) >> ((pick & 1) * 16 + 15) & 1) * 0xFF;
    uint32_t beyond = pick < 12 ? sign : pick == 12 ? 0 : 0xFF;
    return pick < 8 ? byte : beyond;
}

static inline uint32_t permuted(uint32_t a, uint32_t b, uint32_t picks) {
    return permuted_byte(a, b, picks & 0xFF) | permuted_byte(a, b, picks >> 8 & 0xFF) << 8 |
           permuted_byte(a, b, picks >> 16 & 0xFF) << 16 | permuted_byte(a, b, picks >> 24) << 24;
}

/* sin(2 pi a) and cos(2 pi a); outside the documented domain of 256 turns, their values at 0. */
static inline f64 sine_of_turns(f64 a) {
    f64 inside = sin(0x1.921fb54442d18p2 * (a - rint(a)));
    return fabs(a) <= 256 ? inside : fabs(a) < INFINITY ? 0.0 : (f64)NAN;
}
static inline f64 cosine_of_turns(f64 a) {
    f64 inside = cos(0x1.921fb54442d18p2 * (a - rint(a)));
    return fabs(a) <= 256 ? inside : fabs(a) < INFINITY ? 1.0 : (f64)NAN;
}

#endif
