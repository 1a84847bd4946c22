/* The arithmetic of matrix instructions, on 16 neighbouring columns of D.
 *
 * A tile function adds to C the products of K elements of A with K rows of 16 columns of B. Loops
 * over the 16 columns are written plainly, on local arrays, for the compiler to vectorise.
 *
 * After MMA-Sim (Xie et al., arXiv 2511.10909; github.com/microsoft/MMA-Sim), which matches the
 * hardware of CDNA1 to CDNA3 bit for bit. Nothing equal is published for CDNA4: its instructions
 * take CDNA3's scheme with CDNA3's group sizes, which is an assumption. Assumed too: a NaN result
 * is 0x7FC00000, an int32 sum wraps around, a block scale adds to its elements' exponents, and a
 * sparse product groups the stored elements.
 */
#ifndef CUPYGEMM_MFMA_TILES_H
#define CUPYGEMM_MFMA_TILES_H

#include "mfma_operands.h"

enum { COLUMNS = 16 };

typedef union {
    float f[COLUMNS];
    int32_t i[COLUMNS];
} vector32;

/* What one tile function multiplies: K elements of A, for one row or for 16 rows, by K rows of 16
 * columns of B. */
typedef struct {
    const operand *a, *b;
    int a_offset, a_pitch; /* of A's element k: a_offset + k * a_pitch (+ column) */
    int b_offset;
    const int32_t *b_row; /* row of B that element k of A meets: k itself when dense */
    int k, group;
    int special;
} tile;

static inline float f32_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double power_of_two(int exponent) {
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float quiet(float x) { return x == x ? x : f32_of(0x7FC00000u); }

/* ---- Fused dot products (CDNA3) ---- */

/* Sum `count` products aligned to the largest of their exponents, each cut off (towards zero) below
 * 24 fraction bits: sum in units of 2^(top - 24). The significands' product is exact in float32. */
static inline __attribute__((always_inline)) void aligned_sum(const tile *t, int a_lane, int first,
                                                              int step, int count, vector32 *sum,
                                                              vector32 *top) {
    const float *a = t->a->significand + t->a_offset, *b = t->b->significand + t->b_offset;
    const int32_t *ea = t->a->exponent + t->a_offset, *eb = t->b->exponent + t->b_offset;
    int at[8], bt[8];
    for (int q = 0; q < count; q++) {
        int k = first + q * step;
        at[q] = k * t->a_pitch;
        bt[q] = t->b_row[k] * t->b->pitch;
    }
    for (int j = 0; j < COLUMNS; j++) {
        int32_t exponent[8], largest = INT32_MIN, total = 0;
        for (int q = 0; q < count; q++) {
            exponent[q] = ea[at[q] + a_lane * j] + eb[bt[q] + j];
            largest = exponent[q] > largest ? exponent[q] : largest;
        }
        for (int q = 0; q < count; q++) {
            int32_t shift = largest - exponent[q];
            shift = shift < 100 ? shift : 100; /* far beyond the last bit */
            float scale = f32_of((uint32_t)(127 + 24 - shift) << 23);
            total += (int32_t)(a[at[q] + a_lane * j] * b[bt[q] + j] * scale);
        }
        sum->i[j] = total;
        top->i[j] = largest;
    }
}

/* Add C and round to nearest even. The sum keeps 31 fraction bits and C 24, both cut off downwards,
 * relative to the larger exponent. With 8-bit inputs a C that lies wholly below counts as zero. */
static inline __attribute__((always_inline)) void add_c(const vector32 *sum, const vector32 *top,
                                                        int fp8, vector32 *c) {
    for (int j = 0; j < COLUMNS; j++) {
        uint32_t bits = bits_of(c->f[j]);
        int32_t field = (int32_t)(bits >> 23 & 0xFF);
        int32_t c_exponent = (field ? field : 1) - 127;
        int32_t largest = top->i[j] > c_exponent ? top->i[j] : c_exponent;
        double s = floor((double)sum->i[j] * power_of_two(7 + top->i[j] - largest));
        double addend = floor((double)c->f[j] * power_of_two(24 - largest)) * 128.0;
        addend = fp8 && c_exponent < largest - 25 ? 0.0 : addend;
        float result = (float)((s + addend) * power_of_two(largest - 31));
        c->f[j] = field == 0xFF ? quiet(c->f[j]) : result; /* an Inf stays, all else being finite */
    }
}

/* Inf and NaN among `count` products and C override what the finite path computes. A product of
 * 2^128 or more counts as Inf although C may be of the other sign. */
static void override_specials(const tile *t, int a_lane, int first, int count, const vector32 *c,
                              vector32 *result) {
    for (int j = 0; j < COLUMNS; j++) {
        double total = c->f[j];
        int plus = 0, minus = 0;
        for (int k = first; k < first + count; k++) {
            double product = t->a->value[t->a_offset + k * t->a_pitch + a_lane * j] *
                             t->b->value[t->b_offset + t->b_row[k] * t->b->pitch + j];
            total += product;
            plus |= product >= 0x1p128;
            minus |= product <= -0x1p128;
        }
        if (!isfinite(total)) {
            result->f[j] = quiet((float)total);
        } else if (plus || minus) {
            result->f[j] = plus && minus ? f32_of(0x7FC00000u) : plus ? INFINITY : -INFINITY;
        }
    }
}

static inline __attribute__((always_inline)) void fused(const tile *t, int a_lane, int group,
                                                        vector32 *c) {
    for (int k = 0; k < t->k; k += group) {
        vector32 sum, top, before = *c;
        aligned_sum(t, a_lane, k, 1, group, &sum, &top);
        add_c(&sum, &top, 0, c);
        if (t->special)
            override_specials(t, a_lane, k, group, &before, c);
    }
}

static void fused_tile(const tile *t, vector32 *c) {
    if (t->group == 4)
        fused(t, 0, 4, c);
    else
        fused(t, 0, 8, c);
}

static void fused_tile_by_lane(const tile *t, vector32 *c) { fused(t, 1, 4, c); }

/* 8-bit inputs: the 8 even and the 8 odd products of 16 are summed apart, then together. */
static void fused_fp8_tile(const tile *t, vector32 *c) {
    for (int k = 0; k < t->k; k += 16) {
        vector32 even, odd, even_top, odd_top, before = *c;
        aligned_sum(t, 0, k, 2, 8, &even, &even_top);
        aligned_sum(t, 0, k + 1, 2, 8, &odd, &odd_top);
        for (int j = 0; j < COLUMNS; j++) {
            int32_t difference = even_top.i[j] - odd_top.i[j];
            int32_t lower_even = difference < 0 ? -difference : 0,
                    lower_odd = difference > 0 ? difference : 0;
            lower_even = lower_even < 31 ? lower_even : 31;
            lower_odd = lower_odd < 31 ? lower_odd : 31;
            even.i[j] = (even.i[j] >> lower_even) + (odd.i[j] >> lower_odd);
            even_top.i[j] = difference > 0 ? even_top.i[j] : odd_top.i[j];
        }
        add_c(&even, &even_top, 1, c);
        if (t->special)
            override_specials(t, 0, k, 16, &before, c);
    }
}

/* ---- IEEE arithmetic ---- */

static inline float flushed(float x) { return fabsf(x) < 0x1p-126f ? x * 0.0f : x; }

/* CDNA2, 16-bit inputs: products of a group of 2 or 4 are summed as a tree, then added to C; each
 * result is rounded to float32 and flushed if subnormal. */
static inline __attribute__((always_inline)) void pairwise(const tile *t, int a_lane, int group,
                                                           vector32 *c) {
    const float *a = t->a->significand + t->a_offset, *b = t->b->significand + t->b_offset;
    const int a_pitch = t->a_pitch, b_pitch = t->b->pitch;
    vector32 total = *c;
    for (int k = 0; k < t->k; k += group) {
        for (int j = 0; j < COLUMNS; j++) {
            float product[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            for (int q = 0; q < group; q++) {
                float x = a[(k + q) * a_pitch + a_lane * j], y = b[(k + q) * b_pitch + j];
                product[q] = flushed(fmaf(x, y, 0.0f));
            }
            float dot = flushed(product[0] + product[1]);
            if (group == 4)
                dot = flushed(dot + flushed(product[2] + product[3]));
            total.f[j] = flushed(total.f[j] + dot);
        }
    }
    *c = total;
}

static void pairwise_tile(const tile *t, vector32 *c) {
    if (t->group == 4)
        pairwise(t, 0, 4, c);
    else
        pairwise(t, 0, 2, c);
}

static void pairwise_tile_by_lane(const tile *t, vector32 *c) {
    if (t->group == 4)
        pairwise(t, 1, 4, c);
    else
        pairwise(t, 1, 2, c);
}

static inline __attribute__((always_inline)) void fma_f32(const tile *t, int a_lane, vector32 *c) {
    const float *a = t->a->significand + t->a_offset, *b = t->b->significand + t->b_offset;
    const int a_pitch = t->a_pitch, b_pitch = t->b->pitch;
    vector32 total = *c;
    for (int k = 0; k < t->k; k++)
        for (int j = 0; j < COLUMNS; j++)
            total.f[j] = fmaf(a[k * a_pitch + a_lane * j], b[k * b_pitch + j], total.f[j]);
    *c = total;
}

static void fma_f32_tile(const tile *t, vector32 *c) { fma_f32(t, 0, c); }
static void fma_f32_tile_by_lane(const tile *t, vector32 *c) { fma_f32(t, 1, c); }

static void fma_f64_tile(const tile *t, int a_lane, double *c) {
    const double *a = t->a->value + t->a_offset, *b = t->b->value + t->b_offset;
    for (int k = 0; k < t->k; k++)
        for (int j = 0; j < COLUMNS; j++)
            c[j] = fma(a[k * t->a_pitch + a_lane * j], b[k * t->b->pitch + j], c[j]);
}

/* ---- Integers ---- */

static inline __attribute__((always_inline)) void integer(const tile *t, int a_lane, vector32 *c) {
    const int32_t *a = t->a->exponent + t->a_offset, *b = t->b->exponent + t->b_offset;
    const int a_pitch = t->a_pitch, b_pitch = t->b->pitch;
    uint32_t total[COLUMNS]; /* unsigned: a sum that overflows wraps around */
    memcpy(total, c, sizeof total);
    for (int k = 0; k < t->k; k++) {
        const int32_t *row = b + t->b_row[k] * b_pitch;
        for (int j = 0; j < COLUMNS; j++)
            total[j] += (uint32_t)(a[k * a_pitch + a_lane * j] * row[j]);
    }
    memcpy(c, total, sizeof total);
}

static void integer_tile(const tile *t, vector32 *c) { integer(t, 0, c); }
static void integer_tile_by_lane(const tile *t, vector32 *c) { integer(t, 1, c); }

/* ---- By kind of arithmetic, and by whether A differs by lane (4x4 blocks) ---- */

typedef void (*tile_function)(const tile *, vector32 *);

static const tile_function TILES[][2] = {
    [FUSED] = {fused_tile, fused_tile_by_lane},
    [FUSED_FP8] = {fused_fp8_tile, NULL},
    [PAIRWISE] = {pairwise_tile, pairwise_tile_by_lane},
    [FMA_F32] = {fma_f32_tile, fma_f32_tile_by_lane},
    [INTEGER] = {integer_tile, integer_tile_by_lane},
};

#endif
