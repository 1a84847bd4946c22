/* The arithmetic of matrix instructions, on 16 neighbouring columns of D.
 *
 * A tile function adds to C the products of K elements of A with K rows of 16 columns of B. Loops
 * over the 16 columns are written plainly, on local arrays, for the compiler to vectorise.
 *
 * After MMA-Sim (Xie et al., arXiv 2511.10909; github.com/microsoft/MMA-Sim), which matches the
 * hardware of CDNA1 to CDNA3 bit for bit. Nothing comparable is published for CDNA4: its
 * instructions use CDNA3's scheme with CDNA3's group sizes, which is an assumption. It is also
 * assumed that a NaN result
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

/* The operands of one tile function: K elements of A, for one row or for 16 rows, and K rows of 16
 * columns of B. */
typedef struct {
    const operand *a, *b;
    int a_offset, a_pitch; /* of A's element k: a_offset + k * a_pitch (+ column) */
    int b_offset;
    const int32_t *b_row; /* row of B that element k of A meets: k itself when dense */
    int k, group;
    int special; /* an Inf or NaN is among the operands or the products */
    int numbers; /* a fused product's operands are decoded as numbers */
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

/* The least exponent of a product of numbers: the powers of two that scale sums are normal. */
enum { LOWEST_PRODUCT = -100 };

/* 16 columns; a processor with shorter vectors uses several. */
typedef float floats __attribute__((vector_size(64)));
typedef float some_floats __attribute__((vector_size(32)));
typedef int32_t some_ints __attribute__((vector_size(32)));
typedef int64_t some_longs __attribute__((vector_size(64)));
typedef double some_doubles __attribute__((vector_size(64)));

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("clang loop unroll(full)") /* arrays of vectors stay in registers */
#if defined(__x86_64__)
#define WIDE __attribute__((min_vector_width(512)))
#else
#define WIDE
#endif

/* The elements of 16 columns, or one element 16 times. */
ALWAYS_INLINE void take_floats(const float *from, int by_lane, floats *into) {
    if (by_lane)
        memcpy(into, from, sizeof *into);
    else
        *into = *from - (floats){0};
}

ALWAYS_INLINE void take_ints(const int32_t *from, int by_lane, ints *into) {
    if (by_lane)
        memcpy(into, from, sizeof *into);
    else
        *into = *from - (ints){0};
}

/* The sum of products that are numbers, truncated one by one, in units of 2^(top - 24). If the
 * scale is too large, all products are 0. */
ALWAYS_INLINE ints sum_of_numbers(const floats *product, ints top, int count) {
    const ints scale = __builtin_elementwise_min(127 + 24 - top, 254 - (ints){0});
    ints total = {0};
    UNROLLED
    for (int q = 0; q < count; q++)
        total += __builtin_convertvector(product[q] * (floats)(scale << 23), ints);
    return total;
}

/* Sum `count` products aligned to the largest of their exponents, each truncated (towards zero)
 * below 24 fraction bits: sum in units of 2^(top - 24). The significands' product is exact in
 * float32, as is that of numbers. */
ALWAYS_INLINE void aligned_sum(const tile *t, int a_lane, int numbers, int first, int step,
                               int count, ints *sum, ints *top) {
    const float *a = t->a->significand + t->a_offset, *b = t->b->significand + t->b_offset;
    const int32_t *ea = t->a->exponent + t->a_offset, *eb = t->b->exponent + t->b_offset;
    floats product[8];
    ints exponent[8], total = {0};
    for (int q = 0; q < count; q++) {
        int k = first + q * step, at = k * t->a_pitch, bt = t->b_row[k] * t->b->pitch;
        floats x, y;
        ints ex, ey;
        take_floats(a + at, a_lane, &x);
        take_floats(b + bt, 1, &y);
        take_ints(ea + at, a_lane, &ex);
        take_ints(eb + bt, 1, &ey);
        product[q] = x * y;
        exponent[q] = ex + ey;
        *top = q ? __builtin_elementwise_max(*top, exponent[q]) : exponent[q];
    }
    if (numbers) {
        *sum = sum_of_numbers(product, *top, count);
        return;
    }
    for (int q = 0; q < count; q++) { /* from 100 on, the shift is far beyond the last bit */
        ints scale = 127 + 24 - __builtin_elementwise_min(*top - exponent[q], 100 - (ints){0});
        total += __builtin_convertvector(product[q] * (floats)(scale << 23), ints);
    }
    *sum = total;
}

ALWAYS_INLINE void widen(const ints *from, int half, some_longs *into) {
    some_ints part;
    memcpy(&part, (const char *)from + half * (int)sizeof part, sizeof part);
    *into = __builtin_convertvector(part, some_longs);
}

/* Add C and round to nearest even. The sum keeps 31 fraction bits and C 24, both rounded down,
 * relative to the larger exponent. With 8-bit inputs, a C that is wholly below counts as zero. */
ALWAYS_INLINE void add_c(const ints *sum, const ints *top, int fp8, floats *c) {
    const ints field = (ints)*c >> 23 & 0xFF;
    const ints c_exponent = __builtin_elementwise_max(field, 1 - (ints){0}) - 127;
    const ints largest = __builtin_elementwise_max(*top, c_exponent);
    /* The exponent fields of the powers of two that scale the sum and C. */
    const ints sum_power = 7 + 1023 + *top - largest, c_power = 24 + 1023 - largest;
    floats addend = *c;
    if (fp8)
        addend = (floats)((ints)addend & ~(c_exponent < largest - 25));
    floats result;
    for (int half = 0; half < 2; half++) {
        some_longs power, inverse;
        some_floats narrow;
        some_ints part;
        memcpy(&part, (const char *)sum + half * (int)sizeof part, sizeof part);
        memcpy(&narrow, (const char *)&addend + half * (int)sizeof narrow, sizeof narrow);
        widen(&sum_power, half, &power);
        some_doubles s = __builtin_convertvector(part, some_doubles);
        s = __builtin_elementwise_floor(s * (some_doubles)(power << 52));
        widen(&c_power, half, &power);
        inverse = (1023 + 24 + 1023 - 31) - power;
        some_doubles d = __builtin_convertvector(narrow, some_doubles);
        d = __builtin_elementwise_floor(d * (some_doubles)(power << 52)) * 128.0;
        narrow = __builtin_convertvector((s + d) * (some_doubles)(inverse << 52), some_floats);
        memcpy((char *)&result + half * (int)sizeof narrow, &narrow, sizeof narrow);
    }
    /* An Inf stays Inf, since everything else is finite. */
    const ints special = field == 0xFF, is_nan = special & (((ints)*c & 0x7FFFFF) != 0);
    const ints kept = (is_nan & 0x7FC00000) | (~is_nan & (ints)*c);
    *c = (floats)((special & kept) | (~special & (ints)result));
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

ALWAYS_INLINE void fused(const tile *t, int a_lane, int group, vector32 *into) {
    floats c;
    memcpy(&c, into, sizeof c);
    for (int k = 0; k < t->k; k += group) {
        ints sum, top;
        vector32 before, after;
        memcpy(&before, &c, sizeof c);
        aligned_sum(t, a_lane, 0, k, 1, group, &sum, &top);
        add_c(&sum, &top, 0, &c);
        if (!t->special)
            continue;
        memcpy(&after, &c, sizeof c);
        override_specials(t, a_lane, k, group, &before, &after);
        memcpy(&c, &after, sizeof c);
    }
    memcpy(into, &c, sizeof c);
}

WIDE static void fused_tile(const tile *t, vector32 *c) {
    if (t->group == 4)
        fused(t, 0, 4, c);
    else
        fused(t, 0, 8, c);
}

WIDE static void fused_tile_by_lane(const tile *t, vector32 *c) { fused(t, 1, 4, c); }

/* 8-bit inputs: the 8 even and the 8 odd products of 16 are summed separately, then together. */
ALWAYS_INLINE void fused_fp8(const tile *t, int numbers, vector32 *into) {
    floats c;
    memcpy(&c, into, sizeof c);
    for (int k = 0; k < t->k; k += 16) {
        ints even, odd, even_top, odd_top;
        vector32 before, after;
        memcpy(&before, &c, sizeof c);
        aligned_sum(t, 0, numbers, k, 2, 8, &even, &even_top);
        aligned_sum(t, 0, numbers, k + 1, 2, 8, &odd, &odd_top);
        const ints none = {0}, most = 31 - none, top = __builtin_elementwise_max(even_top, odd_top);
        even >>= __builtin_elementwise_min(top - even_top, most);
        odd >>= __builtin_elementwise_min(top - odd_top, most);
        even += odd;
        add_c(&even, &top, 1, &c);
        if (numbers || !t->special)
            continue;
        memcpy(&after, &c, sizeof c);
        override_specials(t, 0, k, 16, &before, &after);
        memcpy(&c, &after, sizeof c);
    }
    memcpy(into, &c, sizeof c);
}

WIDE static void fused_fp8_tile(const tile *t, vector32 *c) {
    t->numbers ? fused_fp8(t, 1, c) : fused_fp8(t, 0, c);
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
