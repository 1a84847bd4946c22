/* The rows of 64 lanes that instructions of the vector ALU read and write: fetching a source into
 * a row, and writing a row to a register in some lanes. */
#ifndef CUPYGEMM_VALU_ROWS_H
#define CUPYGEMM_VALU_ROWS_H

#include "active_lanes.h"
#include "half.h"
#include "valu.h"
#include "valu_functions.h"

static inline u64 exec_of(const struct machine *m, int64_t wave) { return scalar64(m, EXEC, wave); }

/* -- sources ----------------------------------------------------------------------------------- */

/* Operands of several waves that are not whole registers. */
struct block {
    u32 low[BLOCK * LANES], high[BLOCK * LANES];
};

static inline struct rows rows_of(struct block *b) { return (struct rows){b->low, b->high, LANES}; }

/* Read a register through the lane pattern of DPP. */
static inline void gather(u32 *out, const u32 *row, const struct valu_operation *op, u64 exec) {
    for (int i = 0; i < LANES; ++i) {
        int lane = op->lanes[i];
        bool valid = op->dpp != DPP_ZERO || (lane >= 0 && exec >> (lane & 63) & 1);
        out[i] = valid ? row[lane < 0 ? 0 : lane] : 0;
    }
}

static inline void spread(u32 value, u32 *row) {
    for (int i = 0; i < LANES; ++i)
        row[i] = value;
}

/* Return the 64 words of a source: those of the register itself, or `buffer`. */
static inline const u32 *words(const struct machine *m, const struct valu_operation *op,
                               const struct valu_source *s, int word, bool dpp, int64_t wave,
                               u32 *buffer) {
    if (s->file == FROM_VECTOR) {
        const u32 *row = vector_row(m, s->reg + word, wave);
        if (!dpp)
            return row;
        gather(buffer, row, op, exec_of(m, wave));
        return buffer;
    }
    u32 value = (u32)(s->constant >> 32 * word);
    if (s->file == FROM_SCALAR)
        value = scalar(m, s->reg + word, wave);
    else if (s->file == FROM_SPECIAL)
        value = word ? 0 : special_source(m, s->reg, wave);
    spread(value, buffer);
    return buffer;
}

/* Write the bits of a word that are selected, after the sign modifiers. */
static inline void select_bits(const struct valu_source *s, const u32 *raw, u32 *row) {
    u32 keep = (u32)s->keep, flip = (u32)s->flip;
    u32 up = s->bits ? 32 - s->low - s->bits : 0, down = s->bits ? 32 - s->bits : 0;
    if (s->bits && s->extends)
        for (int i = 0; i < LANES; ++i)
            row[i] = ((u32)((i32)(raw[i] << up) >> down) & keep) ^ flip;
    else
        for (int i = 0; i < LANES; ++i)
            row[i] = (raw[i] << up >> down & keep) ^ flip;
}

/* Fetch a source of a wave into a row. */
static inline void fetch(const struct machine *m, const struct valu_operation *op,
                         const struct valu_source *s, bool dpp, int64_t wave, u32 *low, u32 *high) {
    u32 buffer[LANES], field[LANES];
    if (s->type == AS_MASK) {
        u64 mask = s->file == FROM_SCALAR ? scalar64(m, s->reg, wave) : s->constant;
        low[0] = (u32)mask;
        low[1] = (u32)(mask >> 32);
        return;
    }
    const u32 *first = words(m, op, s, 0, dpp, wave, buffer);
    if (s->type == AS_B32) {
        select_bits(s, first, low);
    } else if (s->type == AS_B64) {
        u32 keep = (u32)(s->keep >> 32), flip = (u32)(s->flip >> 32);
        for (int i = 0; i < LANES; ++i)
            low[i] = (first[i] & (u32)s->keep) ^ (u32)s->flip;
        const u32 *second = words(m, op, s, 1, dpp, wave, buffer);
        for (int i = 0; i < LANES; ++i)
            high[i] = (second[i] & keep) ^ flip;
    } else {
        select_bits(s, first, field);
        u16 *narrow = (u16 *)low;
        f32 *values = (f32 *)low;
        for (int i = 0; s->type == AS_B16 && i < LANES; ++i)
            narrow[i] = (u16)field[i];
        for (int i = 0; s->type == AS_F16 && i < LANES; ++i)
            values[i] = half_to_float((u16)field[i]);
        for (int i = 0; s->type == AS_BF16 && i < LANES; ++i)
            low[i] = field[i] << 16;
    }
    if (!s->flushes || m->mode & KEEP_F32_INPUTS)
        return;
    f32 *values = (f32 *)low;
    for (int i = 0; i < LANES; ++i)
        values[i] = flushed(values[i]);
}

/* -- writing ----------------------------------------------------------------------------------- */

/* The clamp of MODE.DX10_CLAMP, which maps NaN to 0. */
#define CLAMPED(x) ((x) > 0 ? ((x) < 1 ? (x) : 1) : 0)

static inline void clamp(const struct valu_operation *op, u32 *low, u32 *high) {
    f32 *values = (f32 *)low;
    if (op->result_type != TO_B64) {
        for (int i = 0; i < LANES; ++i)
            values[i] = CLAMPED(values[i]);
        return;
    }
    for (int i = 0; i < LANES; ++i) {
        f64 value = as_f64(low[i] | (u64)high[i] << 32);
        u64 bits = bits_f64(CLAMPED(value));
        low[i] = (u32)bits;
        high[i] = (u32)(bits >> 32);
    }
}

static inline bool changes_result(const struct machine *m, const struct valu_operation *op) {
    return op->flushes && !(m->mode & KEEP_F32_RESULTS);
}

/* Flush an f32 result, then scale it: the output modifier is ignored if subnormals are kept. */
static inline void flush_and_scale(const struct valu_operation *op, u32 *low) {
    f32 *values = (f32 *)low;
    for (int i = 0; i < LANES; ++i)
        values[i] = flushed(values[i]);
    if (op->scale != 1)
        for (int i = 0; i < LANES; ++i)
            values[i] *= op->scale;
}

/* Finish a float result. */
static inline void finish(const struct machine *m, const struct valu_operation *op, u32 *low,
                          u32 *high) {
    if (changes_result(m, op))
        flush_and_scale(op, low);
    if (op->clamps)
        clamp(op, low, high);
}

/* Turn results of 16 bits into words. */
static inline void widen(const struct valu_operation *op, const u32 *low, u32 *out) {
    const f32 *values = (const f32 *)low;
    const u16 *narrow = (const u16 *)low;
    if (op->result_type == TO_F16)
        for (int i = 0; i < LANES; ++i)
            out[i] = float_to_half(values[i]);
    else
        for (int i = 0; i < LANES; ++i)
            out[i] = narrow[i];
}

/* Place a result in the field of the register that it is written to. */
static inline void place(const struct valu_operation *op, u32 *value, const u32 *row) {
    u32 field = (u32)low_bits(op->bits), low = op->low;
    for (int i = 0; i < LANES; ++i) {
        u32 part = (value[i] & field) << low;
        if (op->part == PRESERVE)
            part |= row[i] & ~(field << low);
        else if (op->part == SIGN_EXTEND)
            part |= value[i] >> (op->bits - 1) & 1 ? ~0u << low << op->bits % 32 : 0;
        value[i] = part;
    }
}

/* The lanes that an instruction writes. */
static inline u64 written_lanes(const struct valu_operation *op, u64 exec) {
    if (!op->dpp)
        return exec;
    u64 lanes = exec & op->enabled;
    if (op->dpp == DPP_ZERO)
        return lanes;
    for (int i = 0; i < LANES; ++i)
        if (op->lanes[i] < 0 || !(exec >> op->lanes[i] & 1))
            lanes &= ~(1ull << i);
    return lanes;
}

/* Write a row of results to the registers of a wave. */
static inline void write_result(struct machine *m, const struct valu_operation *op, int64_t wave,
                                u32 *low, u32 *high, u64 lanes) {
    u32 *to = vector_row(m, op->result, wave), wide[LANES];
    finish(m, op, low, high);
    if (op->result_type == TO_B64) {
        replace_lanes(to, low, lanes);
        replace_lanes(vector_row(m, op->result + 1, wave), high, lanes);
        return;
    }
    if (op->result_type != TO_B32) {
        widen(op, low, wide);
        low = wide;
    }
    if (op->part != WHOLE)
        place(op, low, to);
    replace_lanes(to, low, lanes);
}

static inline void write_mask(struct machine *m, const struct valu_operation *op, int64_t wave,
                              u64 mask) {
    if (op->mask >= 0)
        set_scalar64(m, op->mask, wave, mask);
    if (op->mask2 >= 0)
        set_scalar64(m, op->mask2, wave, mask);
}

#endif
