/* Comparisons of the vector ALU, named as v_cmp: v_cmpx writes EXEC besides. If an operand is NaN,
 * only the negated comparisons of floats hold. */
#include "valu.h"

#define INTEGER_COMPARISONS(type)                                                                  \
    COMPARE(v_cmp_f_##type, type, type, 0)                                                         \
    COMPARE(v_cmp_lt_##type, type, type, a < b)                                                    \
    COMPARE(v_cmp_eq_##type, type, type, a == b)                                                   \
    COMPARE(v_cmp_le_##type, type, type, a <= b)                                                   \
    COMPARE(v_cmp_gt_##type, type, type, a > b)                                                    \
    COMPARE(v_cmp_ne_##type, type, type, a != b)                                                   \
    COMPARE(v_cmp_ge_##type, type, type, a >= b)                                                   \
    COMPARE(v_cmp_t_##type, type, type, 1)
INTEGER_COMPARISONS(u32)
INTEGER_COMPARISONS(i32)
INTEGER_COMPARISONS(u64)
INTEGER_COMPARISONS(i64)
INTEGER_COMPARISONS(u16)
INTEGER_COMPARISONS(i16)

#define FLOAT_COMPARISONS(name, type)                                                              \
    COMPARE(v_cmp_f_##name, type, type, 0)                                                         \
    COMPARE(v_cmp_lt_##name, type, type, a < b)                                                    \
    COMPARE(v_cmp_eq_##name, type, type, a == b)                                                   \
    COMPARE(v_cmp_le_##name, type, type, a <= b)                                                   \
    COMPARE(v_cmp_gt_##name, type, type, a > b)                                                    \
    COMPARE(v_cmp_lg_##name, type, type, (a < b) | (a > b))                                        \
    COMPARE(v_cmp_ge_##name, type, type, a >= b)                                                   \
    COMPARE(v_cmp_o_##name, type, type, (a == a) & (b == b))                                       \
    COMPARE(v_cmp_u_##name, type, type, (a != a) | (b != b))                                       \
    COMPARE(v_cmp_nge_##name, type, type, !(a >= b))                                               \
    COMPARE(v_cmp_nlg_##name, type, type, !((a < b) | (a > b)))                                    \
    COMPARE(v_cmp_ngt_##name, type, type, !(a > b))                                                \
    COMPARE(v_cmp_nle_##name, type, type, !(a <= b))                                               \
    COMPARE(v_cmp_neq_##name, type, type, a != b)                                                  \
    COMPARE(v_cmp_nlt_##name, type, type, !(a < b))                                                \
    COMPARE(v_cmp_tru_##name, type, type, 1)
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
