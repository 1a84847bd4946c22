/* Operations of the vector ALU, one line for each: the type of its result, the types of its
 * sources and an expression of C that computes one lane.
 *
 *     OP2(v_add_u32, u32, u32, u32, a + b)
 *
 * defines op_v_add_u32, which units/native/alu.py finds by its name: an operation needs no further
 * entry. Its sources are called a, b and c. `i` is the number of the lane. The types are those with
 * a GET and a PUT below. f16 values are held as f32; `bit` is one of a lane mask. */
#ifndef CUPYGEMM_VALU_H
#define CUPYGEMM_VALU_H

#include "alu.h"

enum source_type { AS_B32, AS_B64, AS_B16, AS_F16, AS_BF16, AS_MASK };

/* A source operand. Its bits are selected, the sign modifiers are applied, and the result is
 * converted to its type. */
struct valu_source {
    int32_t file, reg;          /* enum source_file; the register, or the code of a special one */
    int32_t type;               /* enum source_type */
    int32_t low, bits, extends; /* the field that is read, if `bits` is not 0 */
    int32_t flushes;            /* f32 values whose subnormals become zero if MODE says so */
    int32_t unused;
    uint64_t keep, flip; /* the modifiers: (bits & keep) ^ flip */
    uint64_t constant;
};

enum { MAX_SOURCES = 5, BLOCK = 32 }; /* waves that execute together, at most */
enum result_type { TO_B32, TO_B64, TO_B16, TO_F16, TO_MASK };
enum part { WHOLE, PRESERVE, PAD, SIGN_EXTEND }; /* the treatment of the bits outside a part */
enum { NO_DPP = 0, DPP = 1, DPP_ZERO = 2 };      /* DPP_ZERO: an invalid lane reads 0 */

/* An operand of consecutive waves: a row of 64 words for each, `step` words apart. All waves share
 * a row if `step` is 0. Values of 64 bits have their upper halves in separate rows, as in the
 * register file. Values of 16 bits, and the two words of a lane mask, are at the start of a row. */
struct rows {
    u32 *low, *high;
    int64_t step;
};

struct valu_operation;
/* `mask` has a word for each wave. */
typedef void lane_function(const struct rows *out, const struct rows *in,
                           const struct valu_operation *op, uint64_t *mask, int waves);

struct valu_operation {
    lane_function *function;
    int32_t num_sources, passes; /* a packed operation makes two passes, with separate sources */
    struct valu_source sources[2][MAX_SOURCES];
    int32_t result_type;         /* enum result_type */
    int32_t result, mask, mask2; /* registers, -1 for none */
    int32_t clamps;              /* a float result, to [0, 1] */
    int32_t part, low, bits;     /* enum part: the field of the register that is written */
    int32_t dpp;
    int32_t flushes; /* the result is f32, and its subnormals become zero if MODE says so */
    uint32_t immediate;
    float scale; /* the output modifier of such a result, which applies only if it flushes */
    int32_t unused;
    const float *table;  /* the values of the codes of an 8-bit format */
    uint64_t enabled;    /* lanes that DPP may write */
    int8_t lanes[LANES]; /* the lane that DPP reads, -1 for none */
};

typedef u32 bit; /* 0 or 1 */

static inline f64 as_f64(u64 bits) {
    f64 value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline u64 bits_f64(f64 value) {
    u64 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The row of a source, and lane i of it by its type. */
#define SOURCE(x, place)                                                                           \
    const u32 *x##_low UNUSED = in[place].low + wave * in[place].step;                             \
    const u32 *x##_high UNUSED = in[place].high + wave * in[place].step
#define GET_u32(x) x##_low[i]
#define GET_i32(x) ((i32)x##_low[i])
#define GET_bit(x) (x##_low[half] >> (i & 31) & 1) /* `half` of the wave, see EACH_LANE */
#define GET_f32(x) ((const f32 *)x##_low)[i]
#define GET_u16(x) ((const u16 *)x##_low)[i]
#define GET_i16(x) ((const i16 *)x##_low)[i]
#define GET_u64(x) (x##_low[i] | (u64)x##_high[i] << 32)
#define GET_i64(x) ((i64)GET_u64(x))
#define GET_f64(x) as_f64(GET_u64(x))

/* The row of the result, and writing lane i of it by its type. */
#define RESULT                                                                                     \
    u32 *r_low UNUSED = out->low + wave * out->step, *r_high UNUSED = out->high + wave * out->step
#define PUT_u32(value) r_low[i] = (u32)(value)
#define PUT_i32(value) r_low[i] = (u32)(i32)(value)
#define PUT_f32(value) ((f32 *)r_low)[i] = (f32)(value)
#define PUT_u16(value) ((u16 *)r_low)[i] = (u16)(value)
#define PUT_i16(value) ((i16 *)r_low)[i] = (i16)(value)
#define PUT_u64(value)                                                                             \
    do {                                                                                           \
        u64 whole = (value);                                                                       \
        r_low[i] = (u32)whole;                                                                     \
        r_high[i] = (u32)(whole >> 32);                                                            \
    } while (0)
#define PUT_f64(value) PUT_u64(bits_f64(value))

#ifdef __clang__
#define LANES_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define LANES_APART _Pragma("GCC ivdep")
#endif
/* A result may be in the registers of a source: lane i depends on lane i alone. */
#define EACH_LANE                                                                                  \
    for (int half = 0; half < 2; ++half)                                                           \
    LANES_APART for (int i = 32 * half; i < 32 * half + 32; ++i)
#define EACH_WAVE for (int wave = 0; wave < waves; ++wave)

#define UNUSED __attribute__((unused))
#define DEFINE_OP(name)                                                                            \
    void op_##name(const struct rows *out UNUSED, const struct rows *in UNUSED,                    \
                   const struct valu_operation *op UNUSED, uint64_t *mask UNUSED,                  \
                   int waves UNUSED)

/* The sources of a wave, and of its lane i. */
#define SOURCES1 SOURCE(a, 0)
#define SOURCES2                                                                                   \
    SOURCES1;                                                                                      \
    SOURCE(b, 1)
#define SOURCES3                                                                                   \
    SOURCES2;                                                                                      \
    SOURCE(c, 2)
#define LOAD1(A) A a UNUSED = GET_##A(a)
#define LOAD2(A, B)                                                                                \
    LOAD1(A);                                                                                      \
    B b UNUSED = GET_##B(b)
#define LOAD3(A, B, C)                                                                             \
    LOAD2(A, B);                                                                                   \
    C c UNUSED = GET_##C(c)

/* An operation of n sources: `first` precedes all lanes, `loads` the value of each. */
#define OPERATION(name, n, first, R, loads, value)                                                 \
    DEFINE_OP(name) {                                                                              \
        EACH_WAVE {                                                                                \
            RESULT;                                                                                \
            SOURCES##n;                                                                            \
            first;                                                                                 \
            EACH_LANE {                                                                            \
                loads;                                                                             \
                PUT_##R(value);                                                                    \
            }                                                                                      \
        }                                                                                          \
    }
#define OP1(name, R, A, expression) OPERATION(name, 1, , R, LOAD1(A), expression)
#define OP2(name, R, A, B, expression) OPERATION(name, 2, , R, LOAD2(A, B), expression)
#define OP3(name, R, A, B, C, expression) OPERATION(name, 3, , R, LOAD3(A, B, C), expression)
/* An operation whose result is its source. clang would unroll a loop of moves before it looks for
 * vectors. */
#define COPY(name)                                                                                 \
    DEFINE_OP(name) {                                                                              \
        EACH_WAVE {                                                                                \
            RESULT;                                                                                \
            SOURCES1;                                                                              \
            memmove(r_low, a_low, LANES * sizeof *r_low);                                          \
        }                                                                                          \
    }
/* An integer operation and its saturating form, name##_clamp. Both compute in i64, which the
 * compiler narrows where only the low bits count. */
#define LOWEST_u32 0
#define LOWEST_i32 INT32_MIN
#define LOWEST_u16 0
#define LOWEST_i16 INT16_MIN
#define HIGHEST_u32 UINT32_MAX
#define HIGHEST_i32 INT32_MAX
#define HIGHEST_u16 UINT16_MAX
#define HIGHEST_i16 INT16_MAX
#define SATURATED(R, value)                                                                        \
    ((value) < LOWEST_##R ? LOWEST_##R : (value) > HIGHEST_##R ? HIGHEST_##R : (value))
#define SATURATING2(name, R, A, B, expression)                                                     \
    IN_I64_2(name, R, A, B, (R)value, expression)                                                  \
    IN_I64_2(name##_clamp, R, A, B, (R)SATURATED(R, value), expression)
#define IN_I64_2(name, R, A, B, result, expression)                                                \
    OPERATION(name, 2, , R, i64 a = GET_##A(a); i64 b = GET_##B(b);                                \
              i64 value = (expression), result)
#define SATURATING3(name, R, A, B, C, expression)                                                  \
    IN_I64_3(name, R, A, B, C, (R)value, expression)                                               \
    IN_I64_3(name##_clamp, R, A, B, C, (R)SATURATED(R, value), expression)
#define IN_I64_3(name, R, A, B, C, result, expression)                                             \
    OPERATION(name, 3, , R, i64 a = GET_##A(a); i64 b = GET_##B(b); i64 c = GET_##C(c);            \
              i64 value = (expression), result)

/* The mask of the lanes for which an expression holds, in two halves, which vectorise. */
#define SET_MASK(loads, expression)                                                                \
    do {                                                                                           \
        u32 halves[2];                                                                             \
        for (int half = 0; half < 2; ++half) {                                                     \
            u32 word = 0;                                                                          \
            for (int k = 0; k < LANES / 2; ++k) {                                                  \
                int i = 32 * half + k;                                                             \
                loads;                                                                             \
                word |= (expression) ? 1u << k : 0;                                                \
            }                                                                                      \
            halves[half] = word;                                                                   \
        }                                                                                          \
        mask[wave] = halves[0] | (uint64_t)halves[1] << 32;                                        \
    } while (0)

/* A comparison. */
#define COMPARE(name, A, B, expression)                                                            \
    DEFINE_OP(name) {                                                                              \
        EACH_WAVE {                                                                                \
            SOURCES2;                                                                              \
            SET_MASK(LOAD2(A, B), expression);                                                     \
        }                                                                                          \
    }

/* The same with a lane mask as the second result, which is computed first, because the other result
 * may overwrite a source. */
#define OP2_MASK(name, R, A, B, expression, condition)                                             \
    OPERATION(name, 2, SET_MASK(LOAD2(A, B), condition), R, LOAD2(A, B), expression)
#define OP3_MASK(name, R, A, B, C, expression, condition)                                          \
    OPERATION(name, 3, SET_MASK(LOAD3(A, B, C), condition), R, LOAD3(A, B, C), expression)

#endif
