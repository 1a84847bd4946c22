/* Matrix instructions (MFMA, SMFMAC) of many waves.
 *
 * One call executes one instruction for a range of waves, reading and writing the vector register file
 * in place: EXEC does not matter to them. Per wave: decode A and B (mfma_operands.h), copy C to an
 * accumulator laid out as the registers of D, run one tile function on each row of 16 neighbouring
 * lanes of it, store it. Columns are the vector dimension: loops over 16 columns are written plainly
 * for the compiler to vectorise.
 *
 * Arithmetic after MMA-Sim (Xie et al., arXiv 2511.10909; github.com/microsoft/MMA-Sim), which matches
 * the hardware of CDNA1 to CDNA3 bit for bit; the tile functions say what each does. Nothing equal
 * is published for CDNA4: its instructions take CDNA3's scheme with CDNA3's group sizes, which is an
 * assumption. Assumed too: a NaN result is 0x7FC00000, an int32 sum wraps around, a block scale adds
 * to its elements' exponents, and a sparse product groups the stored elements.
 */
#include "mfma_operands.h"

enum { COLUMNS = 16, MAX_D = 32 };

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

/* ---- Fused dot products (CDNA3) --------------------------------------------------------------- */

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

/* ---- IEEE arithmetic -------------------------------------------------------------------------- */

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

/* ---- Integers --------------------------------------------------------------------------------- */

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

/* ---- One wave --------------------------------------------------------------------------------- */

typedef void (*tile_function)(const tile *, vector32 *);

static const tile_function TILES[][2] = {
    [FUSED] = {fused_tile, fused_tile_by_lane},
    [FUSED_FP8] = {fused_fp8_tile, NULL},
    [PAIRWISE] = {pairwise_tile, pairwise_tile_by_lane},
    [FMA_F32] = {fma_f32_tile, fma_f32_tile_by_lane},
    [INTEGER] = {integer_tile, integer_tile_by_lane},
};

/* Room for one wave's operands; too large to clear, so nothing relies on its old contents. */
typedef struct {
    operand a, b, by_lane;
    int32_t b_row[MAX_ROWS][MAX_K];
    _Alignas(64) uint32_t d[MAX_D][LANES];
} workspace;

/* A block scale (e8m0) is the exponent of 32 consecutive k of one row: lane k / 32 * rows + row. */
static void apply_scale(const wave_registers *file, int reg, int byte, int k, operand *x) {
    const uint32_t *lanes = row_of(file, reg);
    for (int e = 0; e < k; e++)
        for (int i = 0; i < x->pitch; i++) {
            int code = (int)(lanes[e / 32 * x->pitch + i] >> 8 * byte & 0xFF);
            x->exponent[e * x->pitch + i] += code - 127;
            x->special |= code == 0xFF;
        }
}

static void scale_values(const wave_registers *file, int reg, int byte, int k, operand *x) {
    const uint32_t *lanes = row_of(file, reg);
    for (int e = 0; e < k; e++)
        for (int i = 0; i < x->pitch; i++) {
            int code = (int)(lanes[e / 32 * x->pitch + i] >> 8 * byte & 0xFF);
            double *value = &x->value[e * x->pitch + i];
            *value = code == 0xFF ? (double)NAN : ldexp(*value, code - 127);
        }
}

static int max_exponent(const operand *x, int k) {
    int largest = INT32_MIN;
    for (int at = 0; at < k * x->pitch; at++)
        largest = x->exponent[at] > largest ? x->exponent[at] : largest;
    return largest;
}

/* Decode A and B; returns whether the finite arithmetic needs overriding. */
static int decode(const mfma_op *op, const wave_registers *file, int a_k, workspace *w) {
    static const enum decoding HOW[] = {
        [FUSED] = AS_SPLIT, [FUSED_FP8] = AS_SPLIT, [PAIRWISE] = AS_FLUSHED,
        [FMA_F32] = AS_F32, [FMA_F64] = AS_F64,     [INTEGER] = AS_INTEGER,
    };
    const int rows = op->m * op->blocks, columns = op->n * op->blocks;
    const placement a = {&op->a, op->a_reg, rows, a_k * rows / LANES, op->chunked_a, NULL};
    const placement b = {&op->b,        op->b_reg, columns, op->k * columns / LANES,
                         op->chunked_b, op->b_lane};
    const enum decoding how = HOW[op->arithmetic];
    w->a.special = w->b.special = 0;
    decode_operand(file, &a, op->truncate, how, &w->a);
    decode_operand(file, &b, op->truncate, how, &w->b);
    if (how != AS_SPLIT)
        return 0;
    if (op->scale_a >= 0) {
        apply_scale(file, op->scale_a, op->scale_a_byte, op->k, &w->a);
        apply_scale(file, op->scale_b, op->scale_b_byte, op->k, &w->b);
    }
    int special = w->a.special | w->b.special;
    if (!special && (op->a.bias == 127 || op->scale_a >= 0)) /* could a product reach 2^128? */
        special = max_exponent(&w->a, a_k) + max_exponent(&w->b, op->k) >= 127;
    if (!special)
        return 0;
    decode_operand(file, &a, op->truncate, AS_SPECIAL, &w->a);
    decode_operand(file, &b, op->truncate, AS_SPECIAL, &w->b);
    if (op->scale_a >= 0) {
        scale_values(file, op->scale_a, op->scale_a_byte, op->k, &w->a);
        scale_values(file, op->scale_b, op->scale_b_byte, op->k, &w->b);
    }
    return 1;
}

/* Which row of B each stored element of a row of A meets. A sparse A stores 2 of every 4 elements,
 * and 2 bits for each say which. */
static void find_rows(const mfma_op *op, const wave_registers *file, int a_k, workspace *w) {
    if (op->index_reg < 0) {
        for (int k = 0; k < a_k; k++)
            w->b_row[0][k] = k;
        return;
    }
    const uint32_t *index = row_of(file, op->index_reg);
    const int per_lane = a_k * op->m / LANES;
    for (int l = 0; l < LANES; l++)
        for (int e = 0; e < per_lane; e++) {
            int stored = l / op->m * per_lane + e;
            int pick = (int)(index[l] >> (op->index_shift + 2 * e) & 3);
            w->b_row[l % op->m][stored] = stored / 2 * 4 + pick;
        }
}

/* 4x4 blocks: 16 columns span four blocks, so that A differs by lane. Lay it out as (row, k, lane). */
static void spread_by_lane(const mfma_op *op, workspace *w) {
    const int lanes = 4 * op->blocks;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < op->k; k++)
            for (int l = 0; l < lanes; l++) {
                int from = k * lanes + 4 * op->a_block[l / 4] + i, to = (i * op->k + k) * lanes + l;
                w->by_lane.significand[to] = w->a.significand[from];
                w->by_lane.exponent[to] = w->a.exponent[from];
                w->by_lane.value[to] = w->a.value[from];
            }
}

static void load_c(const mfma_op *op, const wave_registers *file, workspace *w) {
    for (int g = 0; g < op->d_count; g++) {
        if (op->c_reg >= 0) {
            memcpy(w->d[g], row_of(file, op->c_reg + g), sizeof w->d[g]);
        } else {
            uint32_t constant = op->constant[op->arithmetic == FMA_F64 ? g % 2 : 0];
            for (int l = 0; l < LANES; l++)
                w->d[g][l] = constant;
        }
        if (op->arithmetic == PAIRWISE)
            for (int l = 0; l < LANES; l++)
                w->d[g][l] = bits_of(flush_to_plus_zero(f32_of(w->d[g][l])));
    }
}

static void f64_wave(const mfma_op *op, tile *t, workspace *w) {
    const int by_lane = op->m == 4;
    const double sign_a = op->negate & 1 ? -1.0 : 1.0, sign_c = op->negate & 4 ? -1.0 : 1.0;
    const double sign_b = op->negate & 2 ? -1.0 : 1.0;
    for (int at = 0; at < op->k * t->b->pitch; at++)
        w->b.value[at] *= sign_a * sign_b;
    for (int i = 0; i < op->m; i++) {
        int low = i / 4 * 2, lane = i % 4 * COLUMNS;
        double c[COLUMNS];
        for (int j = 0; j < COLUMNS; j++) {
            uint64_t both = w->d[low][lane + j] | (uint64_t)w->d[low + 1][lane + j] << 32;
            memcpy(&c[j], &both, sizeof both);
            c[j] *= sign_c;
        }
        t->a_offset = by_lane ? i * op->k * COLUMNS : i;
        fma_f64_tile(t, by_lane, c);
        for (int j = 0; j < COLUMNS; j++) {
            uint64_t both;
            memcpy(&both, &c[j], sizeof both);
            both = c[j] == c[j] ? both : 0x7FF8000000000000u;
            w->d[low][lane + j] = (uint32_t)both;
            w->d[low + 1][lane + j] = (uint32_t)(both >> 32);
        }
    }
}

static void run_wave(const mfma_op *op, const wave_registers *file, workspace *w) {
    const int a_k = op->index_reg < 0 ? op->k : op->k / 2, by_lane = op->m == 4;
    tile t = {&w->a, &w->b, 0, op->m * op->blocks, 0, w->b_row[0], a_k, op->group, 0};
    t.special = decode(op, file, a_k, w);
    find_rows(op, file, a_k, w);
    load_c(op, file, w);
    if (by_lane) {
        spread_by_lane(op, w);
        t.a = &w->by_lane;
    }
    if (op->arithmetic == FMA_F64) {
        f64_wave(op, &t, w);
    } else {
        const tile_function run = TILES[op->arithmetic][by_lane];
        /* Registers of D: 4 rows of a block, then (lanes allowing) the next 4 rows in higher lanes. */
        const int columns = by_lane ? 4 * op->blocks : op->n, blocks = by_lane ? 1 : op->blocks;
        const int bands = LANES / columns;
        for (int block = 0; block < blocks; block++)
            for (int i = 0; i < op->m; i++)
                for (int j = 0; j < columns; j += COLUMNS) {
                    int g = block * (op->m * op->n / LANES) + i / (4 * bands) * 4 + i % 4;
                    int lane = i / 4 % bands * columns + j;
                    t.a_offset = by_lane ? i * op->k * columns + j : op->a_block[block] * op->m + i;
                    t.b_offset = block * op->n + j;
                    if (op->index_reg >= 0)
                        t.b_row = w->b_row[i];
                    run(&t, (vector32 *)&w->d[g][lane]);
                }
    }
    const int is_float = op->arithmetic == PAIRWISE || op->arithmetic == FMA_F32;
    for (int g = 0; g < op->d_count; g++) {
        uint32_t *d = row_of(file, op->d_reg + g);
        for (int l = 0; l < LANES; l++)
            d[l] = is_float ? bits_of(quiet(f32_of(w->d[g][l]))) : w->d[g][l];
    }
}

/* Execute `op` for waves[begin..end), or for waves begin..end-1 where `waves` is NULL. Register r of
 * wave w begins at vgpr[r * stride + 64 * w]. */
void mfma_run(const mfma_op *op, uint32_t *vgpr, int64_t stride, const int64_t *waves,
              int64_t begin, int64_t end) {
    workspace w;
    for (int64_t at = begin; at < end; at++) {
        wave_registers file = {vgpr + LANES * (waves ? waves[at] : at), stride};
        run_wave(op, &file, &w);
    }
}
