/* Matrix instructions (MFMA, SMFMAC) of many waves.
 *
 * One call executes one instruction for a range of waves, reading and writing the vector register
 * file in place; EXEC is ignored. Per wave: decode A and B (mfma_operands.h), copy C
 * to an accumulator laid out as the registers of D, run a tile function (mfma_tiles.h) on each 16
 * neighbouring lanes of it, which are 16 columns of one row, and store it. A dense product of
 * moderate numbers adds to the registers themselves, two rows at a time (mfma_numbers.h).
 */
#include "mfma_numbers.h"

enum { MAX_D = 32 };

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

/* Decode operands of a fused product as numbers. Returns whether this is possible: all nonzero
 * products are float32 numbers, and so is 2^(24 - the largest exponent of a group). */
static int decode_numbers(const mfma_op *op, const wave_registers *file, const placement *a,
                          const placement *b, workspace *w) {
    if (op->scale_a >= 0 || op->m == 4)
        return 0;
    if (is_plain_bf16(a, op->truncate) && is_plain_bf16(b, op->truncate)) {
        decode_bf16(file, a, &w->a);
        decode_bf16(file, b, &w->b);
    } else {
        decode_operand(file, a, op->truncate, AS_NUMBERS, &w->a);
        decode_operand(file, b, op->truncate, AS_NUMBERS, &w->b);
        find_extremes(&w->a, a->per_lane * LANES);
        find_extremes(&w->b, b->per_lane * LANES);
    }
    return !(w->a.special | w->b.special) && w->a.highest + w->b.highest < 127 &&
           (int64_t)w->a.lowest + w->b.lowest >= LOWEST_PRODUCT;
}

static int is_identity(const uint8_t lane[LANES]) {
    int differ = 0;
    for (int l = 0; l < LANES; l++)
        differ |= lane[l] ^ l;
    return !differ;
}

/* Decode A and B of the operation and record in the tile how. */
static void decode(const mfma_op *op, const wave_registers *file, int a_k, workspace *w, tile *t) {
    static const enum decoding HOW[] = {
        [FUSED] = AS_SPLIT, [FUSED_FP8] = AS_SPLIT, [PAIRWISE] = AS_FLUSHED,
        [FMA_F32] = AS_F32, [FMA_F64] = AS_F64,     [INTEGER] = AS_INTEGER,
    };
    const int rows = op->m * op->blocks, columns = op->n * op->blocks;
    const placement a = {&op->a, op->a_reg, rows, a_k * rows / LANES, op->chunked_a, NULL};
    const placement b = {&op->b,        op->b_reg,
                         columns,       op->k * columns / LANES,
                         op->chunked_b, is_identity(op->b_lane) ? NULL : op->b_lane};
    const enum decoding how = HOW[op->arithmetic];
    if (how == AS_SPLIT && decode_numbers(op, file, &a, &b, w)) {
        t->numbers = 1;
        return;
    }
    decode_operand(file, &a, op->truncate, how, &w->a);
    decode_operand(file, &b, op->truncate, how, &w->b);
    if (how != AS_SPLIT)
        return;
    if (op->scale_a >= 0) {
        apply_scale(file, op->scale_a, op->scale_a_byte, op->k, &w->a);
        apply_scale(file, op->scale_b, op->scale_b_byte, op->k, &w->b);
    }
    t->special = w->a.special | w->b.special;
    if (!t->special && (op->a.bias == 127 || op->scale_a >= 0)) /* could a product reach 2^128? */
        t->special = max_exponent(&w->a, a_k) + max_exponent(&w->b, op->k) >= 127;
    if (!t->special)
        return;
    decode_operand(file, &a, op->truncate, AS_SPECIAL, &w->a);
    decode_operand(file, &b, op->truncate, AS_SPECIAL, &w->b);
    if (op->scale_a >= 0) {
        scale_values(file, op->scale_a, op->scale_a_byte, op->k, &w->a);
        scale_values(file, op->scale_b, op->scale_b_byte, op->k, &w->b);
    }
}

/* Find the row of B that each stored element of a row of A meets. A sparse A stores 2 of every 4
 * elements, with 2 bits each for the position. */
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

/* 4x4 blocks: 16 columns span four blocks, so that A differs by lane: lay it out by lane, as
 * (row, k, lane). */
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

/* Run a dense fused product of numbers directly on the registers. */
static void numbers_wave(const mfma_op *op, const wave_registers *file, tile *t, workspace *w) {
    if (op->c_reg != op->d_reg) {
        load_c(op, file, w);
        for (int g = 0; g < op->d_count; g++)
            memcpy(row_of(file, op->d_reg + g), w->d[g], sizeof w->d[g]);
    }
    /* Four rows are four registers, in the lanes of one of the bands. */
    const int bands = LANES / op->n, per_block = op->m * op->n / LANES;
    for (int block = 0; block < op->blocks; block++)
        for (int i = 0; i < op->m; i += 4) {
            const int g = op->d_reg + block * per_block + i / 4 / bands * 4;
            uint32_t *four = row_of(file, g) + i / 4 % bands * op->n;
            for (int pair = 0; pair < 4; pair += 2)
                for (int j = 0; j < op->n; j += COLUMNS) {
                    uint32_t *row = four + pair * file->stride + j;
                    uint32_t *rows[] = {row, row + file->stride};
                    t->a_offset = op->a_block[block] * op->m + i + pair;
                    t->b_offset = block * op->n + j;
                    numbers_of_rows(t, rows);
                }
        }
}

static void run_wave(const mfma_op *op, const wave_registers *file, workspace *w) {
    const int a_k = op->index_reg < 0 ? op->k : op->k / 2, by_lane = op->m == 4;
    tile t = {&w->a, &w->b, 0, op->m * op->blocks, 0, w->b_row[0], a_k, op->group, 0, 0};
    decode(op, file, a_k, w, &t);
    if (op->arithmetic == FUSED && t.numbers && op->index_reg < 0) {
        numbers_wave(op, file, &t, w);
        return;
    }
    find_rows(op, file, a_k, w);
    load_c(op, file, w);
    if (by_lane) {
        spread_by_lane(op, w);
        t.a = &w->by_lane;
    }
    if (op->arithmetic == FMA_F64) {
        f64_wave(op, &t, w);
    } else {
        const int sparse = op->arithmetic == FUSED && t.numbers; /* dense ones are done */
        const tile_function run = sparse ? fused_numbers_tile : TILES[op->arithmetic][by_lane];
        /* Registers of D: 4 rows of a block, the next 4 rows in higher lanes if there are any. */
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
        for (int l = 0; is_float && l < LANES; l++)
            w->d[g][l] = bits_of(quiet(f32_of(w->d[g][l])));
        memcpy(d, w->d[g], sizeof w->d[g]);
    }
}

/* Execute `op` for waves[begin..end), or for waves begin..end-1 where `waves` is NULL. Register r
 * of wave w begins at vgpr[r * stride + 64 * w]. */
void mfma_run(const mfma_op *op, uint32_t *vgpr, int64_t stride, const int64_t *waves,
              int64_t begin, int64_t end) {
    workspace w;
    for (int64_t at = begin; at < end; at++) {
        wave_registers file = {vgpr + LANES * (waves ? waves[at] : at), stride};
        run_wave(op, &file, &w);
    }
}

/* Lets Python verify that its mirror of the record has the same size. */
int64_t mfma_op_size(void) { return sizeof(mfma_op); }
