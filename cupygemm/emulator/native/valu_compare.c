/* Comparisons of the vector ALU, named as v_cmp; v_cmpx also writes EXEC. If an operand is NaN,
 * only the negated comparisons of floats hold.
 *
 * Each type has two or three loops over lanes, from which all its comparisons are made by
 * exchanging the operands and by complementing the result. */
#include "valu.h"

/* Find the lanes for which the expression holds; the masks are combined with `flip`. */
#define LANES_WHERE(name, type, expression)                                                        \
    static __attribute__((noinline)) void name##_##type(                                           \
        const struct rows *left, const struct rows *right, u64 flip, u64 *mask, int waves) {       \
        const struct rows in[] = {*left, *right};                                                  \
        EACH_WAVE {                                                                                \
            SOURCE(a, 0);                                                                          \
            SOURCE(b, 1);                                                                          \
            SET_MASK(type a = GET_##type(a); type b = GET_##type(b), expression);                  \
            mask[wave] ^= flip;                                                                    \
        }                                                                                          \
    }

/* A relation of the operands at two places, which one of these loops or its complement finds. */
#define RELATION(name, loop, left, right, flip)                                                    \
    DEFINE_OP(v_cmp_##name) { loop(in + left, in + right, flip, mask, waves); }
/* A relation that is symmetric in the operands. */
#define IN_EITHER_ORDER(name, loop, flip)                                                          \
    DEFINE_OP(v_cmp_##name) {                                                                      \
        u64 more[BLOCK];                                                                           \
        loop(in, in + 1, flip, mask, waves);                                                       \
        loop(in + 1, in, 0, more, waves);                                                          \
        EACH_WAVE                                                                                  \
        mask[wave] = flip ? mask[wave] & ~more[wave] : mask[wave] | more[wave];                    \
    }
#define ALWAYS_IS(name, value)                                                                     \
    DEFINE_OP(v_cmp_##name) {                                                                      \
        EACH_WAVE                                                                                  \
        mask[wave] = value;                                                                        \
    }

#define INTEGER_COMPARISONS(type)                                                                  \
    LANES_WHERE(less, type, a < b)                                                                 \
    LANES_WHERE(equal, type, a == b)                                                               \
    ALWAYS_IS(f_##type, 0)                                                                         \
    RELATION(lt_##type, less_##type, 0, 1, 0)                                                      \
    RELATION(eq_##type, equal_##type, 0, 1, 0)                                                     \
    RELATION(le_##type, less_##type, 1, 0, ~0ull)                                                  \
    RELATION(gt_##type, less_##type, 1, 0, 0)                                                      \
    RELATION(ne_##type, equal_##type, 0, 1, ~0ull)                                                 \
    RELATION(ge_##type, less_##type, 0, 1, ~0ull)                                                  \
    ALWAYS_IS(t_##type, ~0ull)
INTEGER_COMPARISONS(u32)
INTEGER_COMPARISONS(i32)
INTEGER_COMPARISONS(u64)
INTEGER_COMPARISONS(i64)
INTEGER_COMPARISONS(u16)
INTEGER_COMPARISONS(i16)

LANES_WHERE(less, f32, a < b)
LANES_WHERE(equal, f32, a == b)
LANES_WHERE(at_most, f32, a <= b)
LANES_WHERE(less, f64, a < b)
LANES_WHERE(equal, f64, a == b)
LANES_WHERE(at_most, f64, a <= b)

#define FLOAT_COMPARISONS(name, type)                                                              \
    ALWAYS_IS(f_##name, 0)                                                                         \
    RELATION(lt_##name, less_##type, 0, 1, 0)                                                      \
    RELATION(eq_##name, equal_##type, 0, 1, 0)                                                     \
    RELATION(le_##name, at_most_##type, 0, 1, 0)                                                   \
    RELATION(gt_##name, less_##type, 1, 0, 0)                                                      \
    IN_EITHER_ORDER(lg_##name, less_##type, 0)                                                     \
    RELATION(ge_##name, at_most_##type, 1, 0, 0)                                                   \
    IN_EITHER_ORDER(o_##name, at_most_##type, 0)                                                   \
    IN_EITHER_ORDER(u_##name, at_most_##type, ~0ull)                                               \
    RELATION(nge_##name, at_most_##type, 1, 0, ~0ull)                                              \
    IN_EITHER_ORDER(nlg_##name, less_##type, ~0ull)                                                \
    RELATION(ngt_##name, less_##type, 1, 0, ~0ull)                                                 \
    RELATION(nle_##name, at_most_##type, 0, 1, ~0ull)                                              \
    RELATION(neq_##name, equal_##type, 0, 1, ~0ull)                                                \
    RELATION(nlt_##name, less_##type, 0, 1, ~0ull)                                                 \
    ALWAYS_IS(tru_##name, ~0ull)
FLOAT_COMPARISONS(f32, f32)
FLOAT_COMPARISONS(f64, f64)
FLOAT_COMPARISONS(f16, f32)

/* The class of a float: 0 signalling NaN, 1 quiet NaN, 2 -Inf, 3 -normal, 4 -subnormal, 5 -0, 6 +0,
 * 7 +subnormal, 8 +normal, 9 +Inf. The second operand selects classes. */
#define CLASS(name, type, mantissa_bits)                                                           \
    static inline u32 class_##name(type a) {                                                       \
        const type magnitude_mask = (type)((type) ~(type)0 >> 1);                                  \
        const type smallest_normal = (type)((type)1 << mantissa_bits);                             \
        const type infinity = magnitude_mask & (type)(0 - smallest_normal);                        \
        type magnitude = a & magnitude_mask;                                                       \
        u32 size = (magnitude > 0) + (magnitude >= smallest_normal) + (magnitude >= infinity);     \
        u32 class = a > magnitude_mask ? 5 - size : 6 + size;                                      \
        return magnitude > infinity ? a >> (mantissa_bits - 1) & 1 : class;                        \
    }                                                                                              \
    COMPARE(v_cmp_class_##name, type, u32, b >> class_##name(a) & 1)
CLASS(f16, u16, 10)
CLASS(f32, u32, 23)
CLASS(f64, u64, 52)
