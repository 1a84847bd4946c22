/* Integer operations of the vector ALU: moves, bits, sums, products, shifts, minima, counting. */
#include "valu.h"
#include "valu_functions.h"

/* -- moves and bits ---------------------------------------------------------------------------- */

COPY(v_mov_b32)
OP1(v_mov_b64, u64, u64, a)
OP3(v_cndmask_b32, u32, u32, u32, bit, c ? b : a)
OP1(v_not_b32, u32, u32, ~a)
OP2(v_and_b32, u32, u32, u32, a &b)
OP2(v_or_b32, u32, u32, u32, a | b)
OP2(v_xor_b32, u32, u32, u32, a ^ b)
OP2(v_xnor_b32, u32, u32, u32, ~(a ^ b))
OP3(v_and_or_b32, u32, u32, u32, u32, (a & b) | c)
OP3(v_or3_b32, u32, u32, u32, u32, a | b | c)
OP3(v_bfi_b32, u32, u32, u32, u32, (a & b) | (~a & c))
OP3(v_perm_b32, u32, u32, u32, u32, permuted(a, b, c))
OP3(v_alignbit_b32, u32, u32, u32, u32, ((u64)a << 32 | b) >> (c & 31))
OP3(v_alignbyte_b32, u32, u32, u32, u32, ((u64)a << 32 | b) >> 8 * (c & 3))

/* The truth table of three bits: bit 4a + 2b + c of `table`. */
static inline u32 bitop3(u32 table, u32 a, u32 b, u32 c) {
    u32 result = 0;
    for (int row = 0; row < 8; ++row) {
        u32 term = (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
        result |= term & (0 - (table >> row & 1));
    }
    return result;
}
OP3(v_bitop3_b32, u32, u32, u32, u32, bitop3(op->immediate, a, b, c))
OP3(v_bitop3_b16, u16, u16, u16, u16, bitop3(op->immediate, a, b, c))

static inline u32 reversed(u32 a) {
    a = (a >> 1 & 0x55555555u) | (a & 0x55555555u) << 1;
    a = (a >> 2 & 0x33333333u) | (a & 0x33333333u) << 2;
    a = (a >> 4 & 0x0F0F0F0Fu) | (a & 0x0F0F0F0Fu) << 4;
    return a << 24 | (a & 0xFF00u) << 8 | (a >> 8 & 0xFF00u) | a >> 24;
}
OP1(v_bfrev_b32, u32, u32, reversed(a))

/* -- sums -------------------------------------------------------------------------------------- */

SATURATING2(v_add_u32, u32, u32, u32, a + b)
SATURATING2(v_sub_u32, u32, u32, u32, a - b)
SATURATING2(v_subrev_u32, u32, u32, u32, b - a)
SATURATING2(v_add_i32, i32, i32, i32, a + b)
SATURATING2(v_sub_i32, i32, i32, i32, a - b)
SATURATING2(v_add_u16, u16, u16, u16, a + b)
SATURATING2(v_sub_u16, u16, u16, u16, a - b)
SATURATING2(v_subrev_u16, u16, u16, u16, b - a)
SATURATING2(v_add_i16, i16, i16, i16, a + b)
SATURATING2(v_sub_i16, i16, i16, i16, a - b)
OP3(v_add3_u32, u32, u32, u32, u32, a + b + c)
OP3(v_xad_u32, u32, u32, u32, u32, (a ^ b) + c)
OP3(v_lshl_add_u32, u32, u32, u32, u32, (a << (b & 31)) + c)
OP3(v_add_lshl_u32, u32, u32, u32, u32, (a + b) << (c & 31))
OP3(v_lshl_or_b32, u32, u32, u32, u32, (a << (b & 31)) | c)

/* In halves: kernels compute addresses with this, and words of 32 bits take half the work. */
DEFINE_OP(v_lshl_add_u64) {
    EACH_WAVE {
        RESULT;
        SOURCE(a, 0);
        SOURCE(b, 1);
        SOURCE(c, 2);
        EACH_LANE {
            u32 shift = b_low[i] & 7, low = a_low[i] << shift;
            u32 high = a_high[i] << shift | a_low[i] >> 1 >> (31 - shift);
            u32 sum = low + c_low[i], rest = high + c_high[i] + (sum < low);
            r_low[i] = sum;
            r_high[i] = rest;
        }
    }
}

OP2_MASK(v_add_co_u32, u32, u32, u32, a + b, a + b < a)
OP2_MASK(v_sub_co_u32, u32, u32, u32, a - b, a < b)
OP2_MASK(v_subrev_co_u32, u32, u32, u32, b - a, b < a)
OP3_MASK(v_addc_co_u32, u32, u32, u32, bit, a + b + c, ((u64)a + b + c) >> 32)
OP3_MASK(v_subb_co_u32, u32, u32, u32, bit, a - b - c, a < (u64)b + c)
OP3_MASK(v_subbrev_co_u32, u32, u32, u32, bit, b - a - c, b < (u64)a + c)

/* -- products ---------------------------------------------------------------------------------- */

static inline i32 sext24(u32 a) { return (i32)(a << 8) >> 8; }
static inline u32 low24(u32 a) { return a & 0xFFFFFF; }

OP2(v_mul_lo_u32, u32, u32, u32, a *b)
OP2(v_mul_hi_u32, u32, u32, u32, (u64)a *b >> 32)
OP2(v_mul_hi_i32, u32, i32, i32, (i64)a *b >> 32)
OP2(v_mul_u32_u24, u32, u32, u32, low24(a) * low24(b))
OP2(v_mul_i32_i24, u32, u32, u32, (u32)sext24(a) * (u32)sext24(b))
OP2(v_mul_hi_u32_u24, u32, u32, u32, (u64)low24(a) * low24(b) >> 32)
OP2(v_mul_hi_i32_i24, u32, u32, u32, (i64)sext24(a) * sext24(b) >> 32)
OP3(v_mad_u32_u24, u32, u32, u32, u32, low24(a) * low24(b) + c)
OP3(v_mad_i32_i24, u32, u32, u32, u32, (u32)sext24(a) * (u32)sext24(b) + c)
SATURATING2(v_mul_lo_u16, u16, u16, u16, a *b)
SATURATING3(v_mad_u16, u16, u16, u16, u16, a *b + c)
SATURATING3(v_mad_i16, i16, i16, i16, i16, a *b + c)
SATURATING3(v_mad_legacy_u16, u16, u16, u16, u16, a *b + c)
SATURATING3(v_mad_legacy_i16, i16, i16, i16, i16, a *b + c)
SATURATING3(v_mad_u32_u16, u32, u16, u16, u32, a *b + c)
SATURATING3(v_mad_i32_i16, i32, i16, i16, i32, a *b + c)

OP3_MASK(v_mad_u64_u32, u64, u32, u32, u64, (u64)a *b + c, (u64)a *b + c < c)

/* Bit 64 of the 65-bit sum: its sign, which an overflow flips. */
static inline u32 carry_of_i64(u64 product, u64 c) {
    u64 total = product + c, overflow = (product ^ total) & (c ^ total);
    return (total ^ overflow) >> 63;
}
OP3_MASK(v_mad_i64_i32, u64, i32, i32, u64, (u64)((i64)a * b) + c,
         carry_of_i64((u64)((i64)a * b), c))

/* -- shifts and bit fields --------------------------------------------------------------------- */

OP2(v_lshlrev_b32, u32, u32, u32, b << (a & 31))
OP2(v_lshrrev_b32, u32, u32, u32, b >> (a & 31))
OP2(v_ashrrev_i32, u32, u32, i32, b >> (a & 31))
OP2(v_lshlrev_b64, u64, u32, u64, b << (a & 63))
OP2(v_lshrrev_b64, u64, u32, u64, b >> (a & 63))
OP2(v_ashrrev_i64, u64, u32, i64, b >> (a & 63))
OP2(v_lshlrev_b16, u16, u16, u16, (u32)b << (a & 15))
OP2(v_lshrrev_b16, u16, u16, u16, b >> (a & 15))
OP2(v_ashrrev_i16, u16, u16, i16, b >> (a & 15))

static inline i32 extract_signed(i32 a, u32 offset, u32 width) {
    u32 up = (32 - width) & 31;
    return width ? (i32)((u32)(a >> offset) << up) >> up : 0;
}
OP3(v_bfe_u32, u32, u32, u32, u32, a >> (b & 31) & ((1u << (c & 31)) - 1))
OP3(v_bfe_i32, u32, i32, u32, u32, extract_signed(a, b & 31, c & 31))
OP2(v_bfm_b32, u32, u32, u32, ((1u << (a & 31)) - 1) << (b & 31))

/* -- minima, maxima and medians ---------------------------------------------------------------- */

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define EXTREMA(type)                                                                              \
    OP2(v_min_##type, type, type, type, MIN(a, b))                                                 \
    OP2(v_max_##type, type, type, type, MAX(a, b))                                                 \
    OP3(v_min3_##type, type, type, type, type, MIN(MIN(a, b), c))                                  \
    OP3(v_max3_##type, type, type, type, type, MAX(MAX(a, b), c))                                  \
    OP3(v_med3_##type, type, type, type, type, MAX(MIN(a, b), MIN(MAX(a, b), c)))
EXTREMA(u32)
EXTREMA(i32)
EXTREMA(u16)
EXTREMA(i16)

/* -- counting ---------------------------------------------------------------------------------- */

static inline u32 ones(u32 a) { return (u32)__builtin_popcount(a); }

/* The bits of a word that are lanes below `lane` in its half of the wave. */
static inline u32 below(int lane, int half) {
    int within = lane - 32 * half;
    return within <= 0 ? 0 : within >= 32 ? ~0u : (1u << within) - 1;
}

/* The number of zeros above the highest set bit, or -1. */
static inline u32 leading_zeros(u32 a) { return a ? (u32)__builtin_clz(a) : ~0u; }

OP2(v_bcnt_u32_b32, u32, u32, u32, ones(a) + b)
OP2(v_mbcnt_lo_u32_b32, u32, u32, u32, ones(a &below(i, 0)) + b)
OP2(v_mbcnt_hi_u32_b32, u32, u32, u32, ones(a &below(i, 1)) + b)
OP1(v_ffbh_u32, u32, u32, leading_zeros(a))
OP1(v_ffbh_i32, u32, i32, leading_zeros((u32)(a ^ a >> 31)))
OP1(v_ffbl_b32, u32, u32, a ? ones((a & (0 - a)) - 1) : ~0u)
OP1(v_prng_b32, u32, u32, a << 1 ^ (a >> 31 ? 197u : 0))

/* -- bytes ------------------------------------------------------------------------------------- */

static inline u32 difference(u32 a, u32 b) { return a > b ? a - b : b - a; }

static inline u32 sad_u8(u32 a, u32 b) {
    u32 sum = 0;
    for (int at = 0; at < 32; at += 8)
        sum += difference(a >> at & 0xFF, b >> at & 0xFF);
    return sum;
}
OP3(v_sad_u8, u32, u32, u32, u32, sad_u8(a, b) + c)
OP3(v_sad_hi_u8, u32, u32, u32, u32, (sad_u8(a, b) << 16) + c)
OP3(v_sad_u16, u32, u32, u32, u32,
    difference(a & 0xFFFF, b & 0xFFFF) + difference(a >> 16, b >> 16) + c)
OP3(v_sad_u32, u32, u32, u32, u32, difference(a, b) + c)

/* Bytes that are zero in the reference are skipped. */
static inline u32 msad_u8(u32 a, u32 b) {
    u32 sum = 0;
    for (int at = 0; at < 32; at += 8)
        sum += b >> at & 0xFF ? difference(a >> at & 0xFF, b >> at & 0xFF) : 0;
    return sum;
}
OP3(v_msad_u8, u32, u32, u32, u32, msad_u8(a, b) + c)

/* The mean of each pair of bytes, rounded up where the byte of c is odd. */
static inline u32 lerp_u8(u32 a, u32 b, u32 c) {
    u32 result = 0;
    for (int at = 0; at < 32; at += 8)
        result |= ((a >> at & 0xFF) + (b >> at & 0xFF) + (c >> at & 1)) >> 1 << at;
    return result;
}
OP3(v_lerp_u8, u32, u32, u32, u32, lerp_u8(a, b, c))

static inline i32 clipped(i32 a, i32 low, i32 high) { return MIN(MAX(a, low), high); }

OP2(v_cvt_pk_u16_u32, u32, u32, u32, MIN(a, 0xFFFFu) | MIN(b, 0xFFFFu) << 16)
OP2(v_cvt_pk_i16_i32, u32, i32, i32,
    (u16)clipped(a, -32768, 32767) | (u32)(u16)clipped(b, -32768, 32767) << 16)
OP2(v_pack_b32_f16, u32, u16, u16, a | (u32)b << 16)
