/* The operands of one matrix instruction: converted from vector registers of a wave to arrays
 * indexed by matrix coordinates, and the record that Python passes to mfma.c.
 *
 * A lane holds elements of one row of A (one column of B), packed from the lowest bit of its first
 * register. With M rows and B blocks, lane l holds row l % M of block l / M % B, and its element e
 * is k = l / (M * B) * (elements per lane) + e: AMD's matrix instruction calculator gives the
 * formulas for CDNA1 to CDNA3, and the ISA guides print the layouts.
 *
 * Decoded operands are stored k-major, (k, block, row), so that the values of 16 neighbouring rows
 * or columns are one vector. A floating-point value is kept as significand and exponent, since the
 * fused dot products of CDNA3 align by the exponents of the operands, not of the products.
 */
#ifndef CUPYGEMM_MFMA_OPERANDS_H
#define CUPYGEMM_MFMA_OPERANDS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 64, MAX_ELEMENTS = 2048, MAX_K = 128, MAX_ROWS = 32 };

/* The encoding of Inf and NaN, as in `Format.special` of formats.py. */
enum { SPECIAL_IEEE, SPECIAL_FN, SPECIAL_FNUZ, SPECIAL_NONE };

/* A number format of A or B; for an integer one only `bits` is used. */
typedef struct {
    int32_t bits, mantissa_bits, bias, special;
} mfma_format;

enum arithmetic {
    FUSED,     /* one aligned sum of `group` products and C */
    FUSED_FP8, /* the same for 16 products, even and odd ones separately */
    PAIRWISE,  /* float32 sums in a tree of `group`, subnormals flushed */
    FMA_F32,   /* one fused multiply-add after another */
    FMA_F64,
    INTEGER,
};

/* Mirrors matrix.py's _Instruction: keep both in step. Registers index the whole vector file. */
typedef struct {
    int32_t arithmetic, group;
    int32_t m, n, k, blocks;
    mfma_format a, b;
    int32_t truncate;             /* xf32: drop the low 13 bits of A and B */
    int32_t chunked_a, chunked_b; /* f8f6f4 with 8-bit elements: a lane has two chunks of 16 k */
    int32_t a_reg, b_reg, c_reg, d_reg; /* c_reg < 0: every element of C is `constant` */
    int32_t d_count;
    uint32_t constant[2];
    int32_t negate;           /* f64: bit 0 negates A, bit 1 B, bit 2 C */
    int32_t scale_a, scale_b; /* registers of block scales, < 0: none */
    int32_t scale_a_byte, scale_b_byte;
    int32_t index_reg, index_shift; /* sparse: register of the index pairs, < 0: dense */
    uint8_t a_block[16];            /* block of A that block b multiplies (CBSZ, ABID) */
    uint8_t b_lane[LANES];          /* lane whose B lane l uses (BLGP) */
} mfma_op;

/* One decoded operand, k-major with `pitch` rows or columns per k. The arithmetic determines which
 * arrays are used: number and exponent for a fused operand of moderate exponents, significand and
 * exponent for any other, and also the value if there is an Inf or NaN. */
typedef struct {
    union {
        _Alignas(64) float number[MAX_ELEMENTS];
        _Alignas(64) float significand[MAX_ELEMENTS];
    };
    _Alignas(64) int32_t exponent[MAX_ELEMENTS];
    _Alignas(64) double value[MAX_ELEMENTS];
    int pitch;
    int special;             /* an Inf or NaN is among them */
    int32_t lowest, highest; /* exponents: of the numbers but 0, of all */
} operand;

/* The vector registers of one wave. */
typedef struct {
    uint32_t *base;
    int64_t stride; /* elements from one register to the next */
} wave_registers;

static inline uint32_t *row_of(const wave_registers *file, int reg) {
    return file->base + reg * file->stride;
}

/* Codes of element e of all lanes: `bits` bits at bit e * bits of the packed registers. */
static inline void extract(const wave_registers *file, int reg, int bits, int e,
                           uint32_t codes[LANES]) {
    int position = e * bits;
    int shift = position % 32;
    const uint32_t *low = row_of(file, reg + position / 32);
    uint32_t mask = bits == 32 ? 0xFFFFFFFFu : (1u << bits) - 1;
    if (shift + bits <= 32) {
        for (int l = 0; l < LANES; l++)
            codes[l] = low[l] >> shift & mask;
    } else { /* a 6-bit element across two registers */
        const uint32_t *high = row_of(file, reg + position / 32 + 1);
        for (int l = 0; l < LANES; l++)
            codes[l] = (low[l] >> shift | high[l] << (32 - shift)) & mask;
    }
}

/* Significand and exponent of 64 codes. A subnormal keeps the smallest exponent; zero has -126 in
 * every format, as MMA-Sim found. Returns whether one of them is Inf or NaN. */
static inline int split(const uint32_t codes[LANES], const mfma_format *f, float *significand,
                        int32_t *exponent) {
    const uint32_t sign = 1u << (f->bits - 1);
    const int mantissa_bits = f->mantissa_bits, bias = f->bias;
    const uint32_t hidden = 1u << mantissa_bits, top = (sign - 1) >> mantissa_bits << mantissa_bits;
    const uint32_t special_from = f->special == SPECIAL_IEEE ? top
                                  : f->special == SPECIAL_FN ? sign - 1
                                                             : sign;
    const uint32_t minus_zero = f->special == SPECIAL_FNUZ ? sign : 0xFFFFFFFFu;
    const float unit = 1.0f / (float)hidden;
    uint32_t special = 0;
    for (int l = 0; l < LANES; l++) {
        uint32_t magnitude = codes[l] & (sign - 1);
        int32_t field = (int32_t)(magnitude >> mantissa_bits);
        int32_t whole = (int32_t)((magnitude & (hidden - 1)) | (field ? hidden : 0));
        significand[l] = (float)(codes[l] & sign ? -whole : whole) * unit;
        exponent[l] = whole == 0 ? -126 : (field ? field : 1) - bias;
        special |= (magnitude >= special_from) | (codes[l] == minus_zero);
    }
    return special != 0;
}

/* The numbers themselves, and their exponents as in `split`. Inf and NaN are wrong, and
 * so is a number below 2^-126, which its exponent reveals. */
static inline int numbers_of(const uint32_t codes[LANES], const mfma_format *f, float *number,
                             int32_t *exponent) {
    uint32_t special = 0;
    if (f->bias == 127) { /* the high bits of a float32 */
        for (int l = 0; l < LANES; l++) {
            uint32_t bits = codes[l] << (32 - f->bits);
            int32_t field = (int32_t)(bits >> 23 & 0xFF);
            memcpy(&number[l], &bits, sizeof bits);
            exponent[l] = (field ? field : 1) - 127;
            special |= field == 0xFF;
        }
    } else {
        special = (uint32_t)split(codes, f, number, exponent);
        for (int l = 0; l < LANES; l++) {
            uint32_t bits = (uint32_t)(exponent[l] + 127) << 23;
            float power;
            memcpy(&power, &bits, sizeof bits);
            number[l] *= power;
        }
    }
    return special != 0;
}

/* The value of one code, Inf and NaN included. */
static inline double value_of(uint32_t code, const mfma_format *f) {
    const uint32_t sign = 1u << (f->bits - 1), hidden = 1u << f->mantissa_bits;
    uint32_t magnitude = code & (sign - 1), mantissa = magnitude & (hidden - 1);
    int field = (int)(magnitude >> f->mantissa_bits);
    int top = (int)((sign - 1) >> f->mantissa_bits);
    double value =
        ldexp(mantissa + (field ? hidden : 0), (field ? field : 1) - f->bias - f->mantissa_bits);
    if (f->special == SPECIAL_IEEE && field == top)
        value = mantissa ? (double)NAN : (double)INFINITY;
    if (f->special == SPECIAL_FN && magnitude == sign - 1)
        value = (double)NAN;
    if (f->special == SPECIAL_FNUZ && code == sign)
        value = (double)NAN;
    return code & sign ? -value : value;
}

/* The registers of one operand and how it is packed. */
typedef struct {
    const mfma_format *format;
    int reg, rows, per_lane, chunked;
    const uint8_t *lane; /* permutation of the lanes, or NULL */
} placement;

/* k of element e in the lanes of k group g (lanes g * rows .. ). */
static inline int k_of(const placement *p, int g, int e) {
    if (p->chunked) /* ROCm's composable kernel tests print this layout: test/mx_mfma_op */
        return 16 * g + e % 16 + e / 16 * (16 * (LANES / p->rows));
    return g * p->per_lane + e;
}

static inline void permuted(uint32_t codes[LANES], const uint8_t *lane) {
    uint32_t old[LANES];
    memcpy(old, codes, sizeof old);
    for (int l = 0; l < LANES; l++)
        codes[l] = old[lane[l]];
}

static inline uint32_t truncated(uint32_t code) {
    int is_nan = (code & 0x7FFFFFFFu) > 0x7F800000u;
    return (code & ~0x1FFFu) | (is_nan ? 0x400000u : 0); /* a NaN stays one */
}

/* f16 and bf16 of CDNA2 as float32: a subnormal becomes +0. */
static inline void flushed_f32(const uint32_t codes[LANES], const mfma_format *f, float *into) {
    const int half = f->mantissa_bits == 10;
    const float smallest = half ? 0x1p-14f : 0x1p-126f;
    for (int l = 0; l < LANES; l++) {
        uint32_t bits = half ? (codes[l] & 0x7FFF) << 13 : codes[l] << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        if (half) {
            x *=
                0x1p112f; /* from the bias of f16 to that of f32; Inf and NaN need their exponent */
            memcpy(&bits, &x, sizeof x);
            bits |= (x >= 65536.0f ? 0x7F800000u : 0) | (codes[l] & 0x8000) << 16;
            memcpy(&x, &bits, sizeof x);
        }
        into[l] = fabsf(x) < smallest ? 0.0f : x;
    }
}

static inline float flush_to_plus_zero(float x) { return fabsf(x) < 0x1p-126f ? 0.0f : x; }

enum decoding { AS_NUMBERS, AS_SPLIT, AS_SPECIAL, AS_FLUSHED, AS_F32, AS_F64, AS_INTEGER };

/* Decode element e of every lane to 64 consecutive places of the three arrays. */
static inline void decode_element(const wave_registers *file, const placement *p, int e,
                                  int truncate, enum decoding how, operand *into,
                                  float *significand, int32_t *exponent, double *value) {
    const mfma_format *f = p->format;
    uint32_t codes[LANES];
    if (how == AS_F64) {
        const uint32_t *low = row_of(file, p->reg), *high = row_of(file, p->reg + 1);
        for (int l = 0; l < LANES; l++) {
            uint64_t both = low[l] | (uint64_t)high[l] << 32;
            memcpy(&value[l], &both, sizeof both);
        }
        return;
    }
    extract(file, p->reg, f->bits, e, codes);
    if (p->lane)
        permuted(codes, p->lane);
    if (truncate)
        for (int l = 0; l < LANES; l++)
            codes[l] = truncated(codes[l]);
    switch (how) {
    case AS_NUMBERS: into->special |= numbers_of(codes, f, significand, exponent); break;
    case AS_SPLIT: into->special |= split(codes, f, significand, exponent); break;
    case AS_SPECIAL:
        for (int l = 0; l < LANES; l++)
            value[l] = value_of(codes[l], f);
        break;
    case AS_FLUSHED: flushed_f32(codes, f, significand); break;
    case AS_F32: memcpy(significand, codes, sizeof codes); break;
    default:
        for (int l = 0; l < LANES; l++)
            exponent[l] = (int8_t)codes[l];
    }
}

static inline void copy_rows(void *into, const void *from, size_t bytes) {
    if (bytes % 64)
        memcpy(into, from, bytes);
    else
        for (size_t at = 0; at < bytes; at += 64)
            memcpy((uint8_t *)into + at, (const uint8_t *)from + at, 64);
}

typedef int32_t ints __attribute__((vector_size(64)));

/* Note the lowest and the highest exponent of `count` numbers, a multiple of 16. */
static inline void find_extremes(operand *x, int count) {
    const ints none = {0};
    ints low = INT32_MAX - none, high = INT32_MIN - none;
    for (int at = 0; at < count; at += 16) {
        const ints number = *(const ints *)(x->number + at);
        const ints exponent = *(const ints *)(x->exponent + at), is_zero = number << 1 == 0;
        low = __builtin_elementwise_min(low, (exponent & ~is_zero) | (INT32_MAX & is_zero));
        high = __builtin_elementwise_max(high, exponent);
    }
    x->lowest = INT32_MAX;
    x->highest = INT32_MIN;
    for (int i = 0; i < 16; i++) {
        x->lowest = low[i] < x->lowest ? low[i] : x->lowest;
        x->highest = high[i] > x->highest ? high[i] : x->highest;
    }
}

/* Decode a whole operand. */
static inline void decode_operand(const wave_registers *file, const placement *p, int truncate,
                                  enum decoding how, operand *into) {
    _Alignas(64) float significand[LANES];
    _Alignas(64) int32_t exponent[LANES];
    _Alignas(64) double value[LANES];
    const size_t rows = (size_t)p->rows;
    into->pitch = p->rows;
    into->special = 0;
    for (int e = 0; e < p->per_lane; e++) {
        decode_element(file, p, e, truncate, how, into, significand, exponent, value);
        for (int g = 0; g < LANES / p->rows; g++) {
            size_t at = (size_t)k_of(p, g, e) * rows, from = (size_t)g * rows;
            if (how <= AS_SPLIT || how == AS_FLUSHED || how == AS_F32)
                copy_rows(into->significand + at, significand + from, rows * sizeof(float));
            if (how <= AS_SPLIT || how == AS_INTEGER)
                copy_rows(into->exponent + at, exponent + from, rows * sizeof(int32_t));
            if (how == AS_SPECIAL || how == AS_F64)
                copy_rows(into->value + at, value + from, rows * sizeof(double));
        }
    }
}

#endif
