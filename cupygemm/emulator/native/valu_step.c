/* Execute an instruction of the vector ALU in one wave: fetch its sources, compute, write.
 *
 * A source that is a whole register of 32 bits is read in place, and such a result is written in
 * place where every lane is active. Anything else passes through rows on the stack. */
#include "half.h"
#include "valu.h"
#include "valu_functions.h"

static inline u64 exec_of(const struct machine *m, int64_t wave) { return scalar64(m, EXEC, wave); }

static void expand_mask(u32 *out, u64 mask) {
    for (int half = 0; half < 2; ++half) {
        u32 word = (u32)(mask >> 32 * half);
        for (int k = 0; k < 32; ++k)
            out[32 * half + k] = word >> k & 1;
    }
}

/* -- sources ----------------------------------------------------------------------------------- */

/* Read a register through the lane pattern of DPP. */
static void gather(u32 *out, const u32 *row, const struct valu_operation *op, u64 exec) {
    for (int i = 0; i < LANES; ++i) {
        int lane = op->lanes[i];
        bool valid = op->dpp != DPP_ZERO || (lane >= 0 && exec >> (lane & 63) & 1);
        out[i] = valid ? row[lane < 0 ? 0 : lane] : 0;
    }
}

static inline const u32 *spread(u32 value, u32 *buffer) {
    for (int i = 0; i < LANES; ++i)
        buffer[i] = value;
    return buffer;
}

/* Return the 64 words of a source: those of the register itself, or `buffer`. */
static const u32 *words(const struct machine *m, const struct valu_operation *op,
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
    return spread(value, buffer);
}

static const u32 *select_bits(const struct valu_source *s, const u32 *raw, u32 *buffer) {
    if (s->bits) {
        u32 up = 32 - s->low - s->bits, down = 32 - s->bits;
        for (int i = 0; i < LANES; ++i) {
            u32 field = raw[i] << up;
            buffer[i] = s->extends ? (u32)((i32)field >> down) : field >> down;
        }
        raw = buffer;
    }
    u32 keep = (u32)s->keep, flip = (u32)s->flip;
    if (keep == ~0u && flip == 0)
        return raw;
    for (int i = 0; i < LANES; ++i)
        buffer[i] = (raw[i] & keep) ^ flip;
    return buffer;
}

static const void *fetch_as_is(const struct machine *m, const struct valu_operation *op,
                               const struct valu_source *s, bool dpp, int64_t wave,
                               union row *row) {
    u32 low[LANES], high[LANES];
    if (s->type == AS_MASK) {
        expand_mask(row->u32,
                    s->file == FROM_SCALAR ? scalar64(m, s->reg, wave) : (uint64_t)s->constant);
        return row;
    }
    if (s->type == AS_B32)
        return select_bits(s, words(m, op, s, 0, dpp, wave, row->u32), row->u32);
    if (s->type == AS_B64 && s->file == FROM_SCALAR) {
        u64 value = (scalar64(m, s->reg, wave) & s->keep) ^ s->flip;
        for (int i = 0; i < LANES; ++i)
            row->u64[i] = value;
        return row;
    }
    const u32 *first = words(m, op, s, 0, dpp, wave, low);
    if (s->type == AS_B64) {
        const u32 *second = words(m, op, s, 1, dpp, wave, high);
        for (int i = 0; i < LANES; ++i)
            row->u64[i] = ((first[i] | (u64)second[i] << 32) & s->keep) ^ s->flip;
        return row;
    }
    first = select_bits(s, first, low);
    if (s->type == AS_B16)
        for (int i = 0; i < LANES; ++i)
            row->u16[i] = (u16)first[i];
    else if (s->type == AS_F16)
        for (int i = 0; i < LANES; ++i)
            row->f32[i] = half_to_float((u16)first[i]);
    else
        for (int i = 0; i < LANES; ++i)
            row->u32[i] = first[i] << 16;
    return row;
}

static const void *fetch(const struct machine *m, const struct valu_operation *op,
                         const struct valu_source *s, bool dpp, int64_t wave, union row *row) {
    const void *found = fetch_as_is(m, op, s, dpp, wave, row);
    if (!s->flushes || m->mode & KEEP_F32_INPUTS)
        return found;
    f32 values[LANES]; /* a copy, which cannot overlap: the loop vectorises */
    memcpy(values, found, sizeof values);
    for (int i = 0; i < LANES; ++i)
        row->f32[i] = flushed(values[i]);
    return row;
}

/* -- results ----------------------------------------------------------------------------------- */

/* The bits of half a wave's mask, so that testing them for 32 lanes is one vector operation. */
#define EIGHT(low)                                                                                 \
    1u << (low), 2u << (low), 4u << (low), 8u << (low), 16u << (low), 32u << (low), 64u << (low),  \
        128u << (low)
static const u32 LANE_BITS[32] = {EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24)};

static void write_lanes(u32 *restrict row, const u32 *restrict value, u64 lanes) {
    if (lanes == ~0ull) {
        memcpy(row, value, LANES * sizeof *row);
        return;
    }
    for (int half = 0; half < 2; ++half) {
        u32 word = (u32)(lanes >> 32 * half), *to = row + 32 * half;
        const u32 *from = value + 32 * half;
        for (int k = 0; k < 32; ++k) { /* written without a choice of addresses: it vectorises */
            u32 chosen = word & LANE_BITS[k] ? ~0u : 0;
            to[k] = (from[k] & chosen) | (to[k] & ~chosen);
        }
    }
}

/* The clamp of MODE.DX10_CLAMP, which makes 0 of NaN. */
#define CLAMPED(x) ((x) > 0 ? ((x) < 1 ? (x) : 1) : 0)

static void clamp(const struct valu_operation *op, union row *row) {
    if (op->result_type == TO_B64)
        for (int i = 0; i < LANES; ++i)
            row->f64[i] = CLAMPED(row->f64[i]);
    else
        for (int i = 0; i < LANES; ++i)
            row->f32[i] = CLAMPED(row->f32[i]);
}

static bool changes_result(const struct machine *m, const struct valu_operation *op) {
    return op->flushes && !(m->mode & KEEP_F32_RESULTS);
}

/* Flush an f32 result, then scale it: the output modifier does not count where subnormals stay. */
static void flush_and_scale(const struct valu_operation *op, union row *row) {
    for (int i = 0; i < LANES; ++i)
        row->f32[i] = flushed(row->f32[i]);
    if (op->scale != 1)
        for (int i = 0; i < LANES; ++i)
            row->f32[i] *= op->scale;
}

/* Finish a float result. */
static void finish(const struct machine *m, const struct valu_operation *op, union row *row) {
    if (changes_result(m, op))
        flush_and_scale(op, row);
    if (op->clamps)
        clamp(op, row);
}

/* Turn results of 16 bits into words. */
static void widen(const struct valu_operation *op, const union row *row, u32 *out) {
    if (op->result_type == TO_F16)
        for (int i = 0; i < LANES; ++i)
            out[i] = float_to_half(row->f32[i]);
    else
        for (int i = 0; i < LANES; ++i)
            out[i] = row->u16[i];
}

/* Place a result in the field of the register that it is written to. */
static void place(const struct valu_operation *op, u32 *value, const u32 *row) {
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
static u64 written_lanes(const struct valu_operation *op, u64 exec) {
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

static void part_words(const u64 *restrict values, u32 *restrict low, u32 *restrict high) {
    for (int i = 0; i < LANES; ++i) {
        low[i] = (u32)values[i];
        high[i] = (u32)(values[i] >> 32);
    }
}

static void write_result(struct machine *m, const struct valu_operation *op, int64_t wave,
                         union row *row, u64 lanes) {
    u32 *to = vector_row(m, op->result, wave), low[LANES], high[LANES];
    finish(m, op, row);
    if (op->result_type == TO_B64) {
        u32 *upper = vector_row(m, op->result + 1, wave);
        bool all = lanes == ~0ull;
        part_words(row->u64, all ? to : low, all ? upper : high);
        if (!all) {
            write_lanes(to, low, lanes);
            write_lanes(upper, high, lanes);
        }
        return;
    }
    u32 *value = row->u32;
    if (op->result_type != TO_B32)
        widen(op, row, value = low);
    if (op->part != WHOLE)
        place(op, value, to);
    write_lanes(to, value, lanes);
}

static void write_mask(struct machine *m, const struct valu_operation *op, int64_t wave, u64 mask) {
    if (op->mask >= 0)
        set_scalar64(m, op->mask, wave, mask);
    if (op->mask2 >= 0)
        set_scalar64(m, op->mask2, wave, mask);
}

/* -- instructions ------------------------------------------------------------------------------ */

/* How a source is fetched: in place, from a scalar register, once for all waves, or by `fetch`. */
enum fetching { IN_PLACE, FROM_WORD, ONCE, BY_FETCH };

static enum fetching fetching_of(const struct machine *m, const struct valu_source *s, bool dpp) {
    if (s->file == FROM_CONSTANT)
        return ONCE;
    bool flushes = s->flushes && !(m->mode & KEEP_F32_INPUTS);
    bool as_is = s->type == AS_B32 && !s->bits && (u32)s->keep == ~0u && !(u32)s->flip;
    if (dpp || flushes || !as_is || s->file == FROM_SPECIAL)
        return BY_FETCH;
    return s->file == FROM_VECTOR ? IN_PLACE : FROM_WORD;
}

/* Compute and write the result of one wave, whose sources are `in`. */
static void compute(struct machine *m, const struct valu_operation *op, int64_t wave,
                    const void *const *in, bool writes_whole) {
    union row result;
    u64 mask = 0, exec = exec_of(m, wave);
    bool in_place = writes_whole && exec == ~0ull;
    op->function(in_place ? vector_row(m, op->result, wave) : result.u32, in, op, &mask);
    if (!in_place && op->result_type != TO_MASK)
        write_result(m, op, wave, &result, written_lanes(op, exec));
    if (op->mask >= 0)
        write_mask(m, op, wave, mask & written_lanes(op, exec));
}

void valu_waves(struct machine *m, const void *operation, struct waves part) {
    const struct valu_operation *op = operation;
    const struct valu_source *sources = op->sources[0];
    union row rows[MAX_SOURCES];
    const void *in[MAX_SOURCES];
    enum fetching how[MAX_SOURCES];
    for (int k = 0; k < op->num_sources; ++k) {
        how[k] = fetching_of(m, &sources[k], op->dpp && k == 0);
        if (how[k] == ONCE)
            in[k] = fetch(m, op, &sources[k], false, 0, &rows[k]);
    }
    bool writes_whole = op->result_type == TO_B32 && !op->dpp && !op->clamps && op->part == WHOLE &&
                        !changes_result(m, op);
    for (int64_t at = 0; at < part.count; ++at) {
        int64_t wave = wave_at(part, at);
        for (int k = 0; k < op->num_sources; ++k) {
            if (how[k] == IN_PLACE)
                in[k] = vector_row(m, sources[k].reg, wave);
            else if (how[k] == FROM_WORD)
                in[k] = spread(scalar(m, sources[k].reg, wave), rows[k].u32);
            else if (how[k] == BY_FETCH)
                in[k] = fetch(m, op, &sources[k], op->dpp && k == 0, wave, &rows[k]);
        }
        compute(m, op, wave, in, writes_whole);
    }
}

void valu_lanewise(struct machine *m, const void *operation, int64_t wave) {
    valu_waves(m, operation, (struct waves){NULL, wave, 1, 1});
}

/* Two passes, whose results are two registers or the halves of one; both are computed before
 * either is written. */
void valu_packed(struct machine *m, const void *operation, int64_t wave) {
    const struct valu_operation *op = operation;
    union row rows[MAX_SOURCES], results[2];
    const void *in[MAX_SOURCES];
    u32 halves[2][LANES];
    u64 mask, exec = exec_of(m, wave);
    for (int pass = 0; pass < 2; ++pass) {
        for (int k = 0; k < op->num_sources; ++k)
            in[k] = fetch(m, op, &op->sources[pass][k], false, wave, &rows[k]);
        op->function(&results[pass], in, op, &mask);
        finish(m, op, &results[pass]);
    }
    if (op->result_type == TO_B32) {
        write_lanes(vector_row(m, op->result, wave), results[0].u32, exec);
        write_lanes(vector_row(m, op->result + 1, wave), results[1].u32, exec);
        return;
    }
    for (int pass = 0; pass < 2; ++pass)
        widen(op, &results[pass], halves[pass]);
    for (int i = 0; i < LANES; ++i)
        halves[0][i] |= halves[1][i] << 16;
    write_lanes(vector_row(m, op->result, wave), halves[0], exec);
}

/* -- between lanes ----------------------------------------------------------------------------- */

static u32 lane_of(struct machine *m, const struct valu_operation *op, int64_t wave, u32 lane) {
    union row row;
    const u32 *value = fetch(m, op, &op->sources[0][0], false, wave, &row);
    return value[lane];
}

static u32 selected_lane(struct machine *m, const struct valu_operation *op, int64_t wave) {
    union row row;
    const u32 *value = fetch(m, op, &op->sources[0][1], false, wave, &row);
    return value[0] & (LANES - 1);
}

/* The lowest active lane, or lane 0 if none is active. */
void valu_v_readfirstlane_b32(struct machine *m, const void *operation, int64_t wave) {
    const struct valu_operation *op = operation;
    u64 exec = exec_of(m, wave);
    set_scalar(m, op->result, wave, lane_of(m, op, wave, exec ? first_lane(exec) : 0));
}

void valu_v_readlane_b32(struct machine *m, const void *operation, int64_t wave) {
    const struct valu_operation *op = operation;
    set_scalar(m, op->result, wave, lane_of(m, op, wave, selected_lane(m, op, wave)));
}

void valu_v_writelane_b32(struct machine *m, const void *operation, int64_t wave) {
    const struct valu_operation *op = operation;
    u32 lane = selected_lane(m, op, wave);
    vector_row(m, op->result, wave)[lane] = lane_of(m, op, wave, lane);
}

/* Exchange two registers in the active lanes. */
void valu_v_swap_b32(struct machine *m, const void *operation, int64_t wave) {
    const struct valu_operation *op = operation;
    u32 first[LANES], *left = vector_row(m, op->result, wave);
    u32 *right = vector_row(m, op->sources[0][0].reg, wave);
    u64 exec = exec_of(m, wave);
    memcpy(first, left, sizeof first);
    if (left == right)
        return;
    write_lanes(left, right, exec);
    write_lanes(right, first, exec);
}

/* Exchange the odd groups of `width` lanes of the result with the even ones of the source, where
 * both lanes are active. */
static void swap_groups(struct machine *m, const struct valu_operation *op, int64_t wave, int width,
                        u64 odd) {
    u32 from_left[LANES], from_right[LANES], *left = vector_row(m, op->result, wave);
    u32 *right = vector_row(m, op->sources[0][0].reg, wave);
    u64 exec = exec_of(m, wave);
    u64 both = exec & (((exec & odd) >> width) | (exec & ~odd) << width);
    for (int i = 0; i < LANES; ++i) {
        from_left[i] = left[i ^ width];
        from_right[i] = right[i ^ width];
    }
    write_lanes(left, from_right, both & odd);
    write_lanes(right, from_left, both & ~odd);
}

void valu_v_permlane16_swap_b32(struct machine *m, const void *operation, int64_t wave) {
    swap_groups(m, operation, wave, 16, 0xFFFF0000FFFF0000u);
}

void valu_v_permlane32_swap_b32(struct machine *m, const void *operation, int64_t wave) {
    swap_groups(m, operation, wave, 32, 0xFFFFFFFF00000000u);
}
