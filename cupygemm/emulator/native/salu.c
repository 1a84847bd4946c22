/* The scalar ALU: the functions that units/scalar/arithmetic.py defines on arrays, for one wave. */
#include "salu.h"

/* -- two operands ------------------------------------------------------------------------------ */

#define LOGIC(name, expression)                                                                    \
    SCALAR2(s_##name##_b32, u32, u32, r = (u32)(expression), scc = r != 0)                         \
    SCALAR2(s_##name##_b64, u64, u64, r = (expression), scc = r != 0)
LOGIC(and, a &b)
LOGIC(or, a | b)
LOGIC(xor, a ^ b)
LOGIC(andn2, a & ~b)
LOGIC(orn2, a | ~b)
LOGIC(nand, ~(a &b))
LOGIC(nor, ~(a | b))
LOGIC(xnor, ~(a ^ b))
LOGIC(andn1, ~a &b)
LOGIC(orn1, ~a | b)

SCALAR2(s_add_u32, u32, u32, r = (u64)a + b, scc = r >> 32 & 1)
SCALAR2(s_addc_u32, u32, u32, r = (u64)a + b + scc, scc = r >> 32 & 1)
SCALAR2(s_sub_u32, u32, u32, r = a - b, scc = b > a)
SCALAR2(s_subb_u32, u32, u32, r = (u64)a - b - scc, scc = (u64)b + scc > a)
SCALAR2(s_add_i32, i32, i32, r = (u64)((i64)a + b), scc = (i64)r != (i32)r)
SCALAR2(s_sub_i32, i32, i32, r = (u64)((i64)a - b), scc = (i64)r != (i32)r)
SCALAR2(s_min_i32, i32, i32, scc = a < b, r = (u64)(scc ? a : b))
SCALAR2(s_min_u32, u32, u32, scc = a < b, r = scc ? a : b)
SCALAR2(s_max_i32, i32, i32, scc = a > b, r = (u64)(scc ? a : b))
SCALAR2(s_max_u32, u32, u32, scc = a > b, r = scc ? a : b)
SCALAR2(s_cselect_b32, u32, u32, r = scc ? a : b)
SCALAR2(s_cselect_b64, u64, u64, r = scc ? a : b)
SCALAR2(s_bfm_b32, u32, u32, r = ((1u << (a & 31)) - 1) << (b & 31))
SCALAR2(s_bfm_b64, u32, u32, r = ((1ull << (a & 63)) - 1) << (b & 63))
SCALAR2(s_mul_i32, u32, u32, r = a * b)
SCALAR2(s_mul_hi_u32, u32, u32, r = (u64)a * b >> 32)
SCALAR2(s_mul_hi_i32, i32, i32, r = (u64)((i64)a * b) >> 32)
SCALAR2(s_lshl1_add_u32, u32, u32, r = ((u64)a << 1) + b, scc = r >> 32 != 0)
SCALAR2(s_lshl2_add_u32, u32, u32, r = ((u64)a << 2) + b, scc = r >> 32 != 0)
SCALAR2(s_lshl3_add_u32, u32, u32, r = ((u64)a << 3) + b, scc = r >> 32 != 0)
SCALAR2(s_lshl4_add_u32, u32, u32, r = ((u64)a << 4) + b, scc = r >> 32 != 0)
SCALAR2(s_absdiff_i32, u32, u32, r = (a - b) >> 31 ? b - a : a - b, scc = r != 0)
SCALAR2(s_pack_ll_b32_b16, u32, u32, r = (a & 0xFFFF) | b << 16)
SCALAR2(s_pack_lh_b32_b16, u32, u32, r = (a & 0xFFFF) | (b & 0xFFFF0000))
SCALAR2(s_pack_hh_b32_b16, u32, u32, r = a >> 16 | (b & 0xFFFF0000))
SCALAR2(s_lshl_b32, u32, u32, r = a << (b & 31), scc = r != 0)
SCALAR2(s_lshl_b64, u64, u32, r = a << (b & 63), scc = r != 0)
SCALAR2(s_lshr_b32, u32, u32, r = a >> (b & 31), scc = r != 0)
SCALAR2(s_lshr_b64, u64, u32, r = a >> (b & 63), scc = r != 0)
SCALAR2(s_ashr_i32, i32, u32, r = (u32)(a >> (b & 31)), scc = r != 0)
SCALAR2(s_ashr_i64, i64, u32, r = (u64)(a >> (b & 63)), scc = r != 0)

/* Shift the field to the top, then down again; `control` has the offset and, above, the width. */
static inline u64 extract(u64 value, u32 control, u32 bits, bool is_signed) {
    u32 offset = control & (bits - 1), width = control >> 16 & 0x7F;
    if (width == 0)
        return 0;
    u32 up = 64 - (width > bits ? bits : width);
    u64 field = value >> offset << up;
    return is_signed ? (u64)((i64)field >> up) : field >> up;
}
SCALAR2(s_bfe_u32, u32, u32, r = extract(a, b, 32, false), scc = r != 0)
SCALAR2(s_bfe_i32, u32, u32, r = (u32)extract(a, b, 32, true), scc = r != 0)
SCALAR2(s_bfe_u64, u64, u32, r = extract(a, b, 64, false), scc = r != 0)
SCALAR2(s_bfe_i64, u64, u32, r = extract(a, b, 64, true), scc = r != 0)

/* -- one operand ------------------------------------------------------------------------------- */

static inline u32 leading_zeros(u64 a, int bits) {
    return a ? (u32)(__builtin_clzll(a) - 64 + bits) : ~0u;
}
static inline u32 trailing_zeros(u64 a) { return a ? (u32)__builtin_ctzll(a) : ~0u; }

static inline u64 reversed(u64 a) {
    a = (a >> 1 & 0x5555555555555555u) | (a & 0x5555555555555555u) << 1;
    a = (a >> 2 & 0x3333333333333333u) | (a & 0x3333333333333333u) << 2;
    a = (a >> 4 & 0x0F0F0F0F0F0F0F0Fu) | (a & 0x0F0F0F0F0F0F0F0Fu) << 4;
    return __builtin_bswap64(a);
}

/* Bit 4i tells whether any of the bits 4i to 4i + 3 is set. */
static inline u64 quads(u64 a) {
    a |= a >> 1;
    return (a | a >> 2) & 0x1111111111111111u;
}
static inline u64 gathered(u64 quad_bits) {
    u64 result = 0;
    for (int i = 0; i < 16; ++i)
        result |= (quad_bits >> 4 * i & 1) << i;
    return result;
}
static inline u64 doubled_bits(u32 a) {
    u64 result = 0;
    for (int i = 0; i < 32; ++i)
        result |= (u64)(a >> i & 1) * 3 << 2 * i;
    return result;
}

#define SINGLES(suffix, type, bits)                                                                \
    SCALAR1(s_mov_##suffix, type, r = a)                                                           \
    SCALAR1(s_not_##suffix, type, r = (type)~a, scc = r != 0)                                      \
    SCALAR1(s_wqm_##suffix, type, r = quads(a) * 15, scc = r != 0)                                 \
    SCALAR1(s_quadmask_##suffix, type, r = gathered(quads(a)), scc = r != 0)                       \
    SCALAR1(s_brev_##suffix, type, r = reversed(a) >> (64 - bits))                                 \
    SCALAR1(s_bcnt0_i32_##suffix, type, r = bits - __builtin_popcountll(a), scc = r != 0)          \
    SCALAR1(s_bcnt1_i32_##suffix, type, r = __builtin_popcountll(a), scc = r != 0)                 \
    SCALAR1(s_ff0_i32_##suffix, type, r = trailing_zeros((type)~a))                                \
    SCALAR1(s_ff1_i32_##suffix, type, r = trailing_zeros(a))                                       \
    SCALAR1(s_flbit_i32_##suffix, type, r = leading_zeros(a, bits))                                \
    SCALAR2(s_cmov_##suffix, type, type, r = scc ? a : (type)old)                                  \
    SCALAR1(s_bitset0_##suffix, u32, r = old & ~((type)1 << (a & (bits - 1))))                     \
    SCALAR1(s_bitset1_##suffix, u32, r = old | (type)1 << (a & (bits - 1)))
SINGLES(b32, u32, 32)
SINGLES(b64, u64, 64)
SCALAR1(s_sext_i32_i8, u32, r = (u32)(i8)a)
SCALAR1(s_sext_i32_i16, u32, r = (u32)(i16)a)
SCALAR1(s_abs_i32, u32, r = a >> 31 ? 0 - a : a, scc = r != 0)
SCALAR1(s_flbit_i32, i32, r = leading_zeros((u32)(a < 0 ? ~a : a), 32))
SCALAR1(s_flbit_i32_i64, i64, r = leading_zeros((u64)(a < 0 ? ~a : a), 64))
SCALAR1(s_bitreplicate_b64_b32, u32, r = doubled_bits(a))

/* -- comparisons ------------------------------------------------------------------------------- */

#define COMPARISONS(type)                                                                          \
    SCALAR2(s_cmp_eq_##type, type, type, scc = a == b)                                             \
    SCALAR2(s_cmp_lg_##type, type, type, scc = a != b)                                             \
    SCALAR2(s_cmp_gt_##type, type, type, scc = a > b)                                              \
    SCALAR2(s_cmp_ge_##type, type, type, scc = a >= b)                                             \
    SCALAR2(s_cmp_lt_##type, type, type, scc = a < b)                                              \
    SCALAR2(s_cmp_le_##type, type, type, scc = a <= b)
COMPARISONS(u32)
COMPARISONS(i32)
SCALAR2(s_cmp_eq_u64, u64, u64, scc = a == b)
SCALAR2(s_cmp_lg_u64, u64, u64, scc = a != b)
SCALAR2(s_bitcmp0_b32, u32, u32, scc = !(a >> (b & 31) & 1))
SCALAR2(s_bitcmp1_b32, u32, u32, scc = a >> (b & 31) & 1)
SCALAR2(s_bitcmp0_b64, u64, u32, scc = !(a >> (b & 63) & 1))
SCALAR2(s_bitcmp1_b64, u64, u32, scc = a >> (b & 63) & 1)

/* -- instructions ------------------------------------------------------------------------------ */

/* Read a register, or a pair, of consecutive waves. */
static void read_register(const struct machine *m, int reg, bool wide, int64_t first, int waves,
                          u64 *values) {
    const u32 *low = m->sgpr + reg * m->num_waves + first, *high = low + m->num_waves;
    for (int at = 0; at < waves; ++at)
        values[at] = low[at];
    for (int at = 0; wide && at < waves; ++at)
        values[at] |= (u64)high[at] << 32;
}

static void write_register(const struct machine *m, int reg, bool wide, int64_t first, int waves,
                           const u64 *values) {
    u32 *low = m->sgpr + reg * m->num_waves + first, *high = low + m->num_waves;
    for (int at = 0; at < waves; ++at)
        low[at] = (u32)values[at];
    for (int at = 0; wide && at < waves; ++at)
        high[at] = (u32)(values[at] >> 32);
}

static void read_source(const struct machine *m, const struct salu_source *s, int64_t first,
                        int waves, u64 *values) {
    if (s->file == FROM_SCALAR) {
        read_register(m, s->reg, s->wide, first, waves, values);
        return;
    }
    const u64 same = s->constant + (s->file == FROM_CODE ? m->code_base : 0);
    for (int at = 0; at < waves; ++at)
        values[at] = s->file == FROM_SPECIAL ? special_source(m, s->reg, first + at) : same;
}

static void execute(struct machine *m, const struct salu_operation *op, int64_t first, int waves) {
    u64 a[SCALAR_BLOCK], b[SCALAR_BLOCK], old[SCALAR_BLOCK] = {0}, result[SCALAR_BLOCK];
    read_source(m, &op->sources[0], first, waves, a);
    read_source(m, &op->sources[1], first, waves, b);
    if (op->result >= 0)
        read_register(m, op->result, op->wide, first, waves, old);
    op->function(result, a, b, old, m->scc + first, waves);
    if (op->kind == SAVES_EXEC)
        write_register(m, op->result, true, first, waves, b);
    if (op->kind != TO_DESTINATION)
        write_register(m, EXEC, true, first, waves, result);
    if (op->kind != SAVES_EXEC && op->result >= 0)
        write_register(m, op->result, op->wide, first, waves, result);
}

void salu_waves(struct machine *m, const void *operation, struct waves part) {
    for (int64_t at = 0, waves; at < part.count; at += waves) {
        waves = consecutive(part, at, SCALAR_BLOCK);
        execute(m, operation, wave_at(part, at), (int)waves);
    }
}

void salu(struct machine *m, const void *operation, int64_t wave) {
    execute(m, operation, wave, 1);
}
