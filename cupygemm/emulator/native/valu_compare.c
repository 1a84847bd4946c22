/* Comparisons of the vector ALU, named as v_cmp: v_cmpx writes EXEC besides. If an operand is NaN,
 * only the negated comparisons of floats hold.
 *
 * Each type has two or three loops over lanes, of which all its comparisons are made: by exchanging
 * the operands, and by the complement. */
#include "valu.h"

#define LANES_WHERE(name, type, expression)                                                        \
    static __attribute__((noinline)) u64 name##_##type(const type *as, const type *bs) {           \
        u64 found, *mask = &found;                                                                 \
        SET_MASK(type a = as[i]; type b = bs[i], expression);                                      \
        return found;                                                                              \
    }

/* a and b are the operands of all lanes. */
#define RELATION(name, lanes)                                                                      \
    DEFINE_OP(v_cmp_##name) {                                                                      \
        (void)out;                                                                                 \
        const void *a UNUSED = in[0], *b UNUSED = in[1];                                           \
        *mask = (lanes);                                                                           \
    }

#define INTEGER_COMPARISONS(type)                                                                  \
    LANES_WHERE(less, type, a < b)                                                                 \
    LANES_WHERE(equal, type, a == b)                                                               \
    RELATION(f_##type, 0)                                                                          \
    RELATION(lt_##type, less_##type(a, b))                                                         \
    RELATION(eq_##type, equal_##type(a, b))                                                        \
    RELATION(le_##type, ~less_##type(b, a))                                                        \
    RELATION(gt_##type, less_##type(b, a))                                                         \
    RELATION(ne_##type, ~equal_##type(a, b))                                                       \
    RELATION(ge_##type, ~less_##type(a, b))                                                        \
    RELATION(t_##type, ~0ull)
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
    RELATION(f_##name, 0)                                                                          \
    RELATION(lt_##name, less_##type(a, b))                                                         \
    RELATION(eq_##name, equal_##type(a, b))                                                        \
    RELATION(le_##name, at_most_##type(a, b))                                                      \
    RELATION(gt_##name, less_##type(b, a))                                                         \
    RELATION(lg_##name, less_##type(a, b) | less_##type(b, a))                                     \
    RELATION(ge_##name, at_most_##type(b, a))                                                      \
    RELATION(o_##name, at_most_##type(a, b) | at_most_##type(b, a))                                \
    RELATION(u_##name, ~(at_most_##type(a, b) | at_most_##type(b, a)))                             \
    RELATION(nge_##name, ~at_most_##type(b, a))                                                    \
    RELATION(nlg_##name, ~(less_##type(a, b) | less_##type(b, a)))                                 \
    RELATION(ngt_##name, ~less_##type(b, a))                                                       \
    RELATION(nle_##name, ~at_most_##type(a, b))                                                    \
    RELATION(neq_##name, ~equal_##type(a, b))                                                      \
    RELATION(nlt_##name, ~less_##type(a, b))                                                       \
    RELATION(tru_##name, ~0ull)
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
