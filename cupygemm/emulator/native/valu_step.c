/* Execute an instruction of the vector ALU in some waves: find its sources, compute, write.
 *
 * The registers of consecutive waves are contiguous, so one call of an operation's
 * function computes up to BLOCK waves. A source that is a whole register is read in place, and a
 * result is written in place if every lane is active. All other operands are copied to rows on the
 * stack. */
#include "valu_rows.h"

/* -- instructions ------------------------------------------------------------------------------ */

/* How a source is fetched: in place, in place unless a lane is subnormal, from a scalar register,
 * from a lane mask there, once for all waves, or by `fetch`. */
enum fetching { IN_PLACE, IF_NORMAL, FROM_WORD, FROM_MASK, ONCE, BY_FETCH };

static enum fetching fetching_of(const struct machine *m, const struct valu_source *s, bool dpp) {
    if (s->file == FROM_CONSTANT)
        return ONCE;
    if (s->type == AS_MASK && s->file == FROM_SCALAR)
        return FROM_MASK;
    bool flushes = s->flushes && !(m->mode & KEEP_F32_INPUTS), wide = s->type == AS_B64;
    bool whole = wide ? s->keep == ~0ull && !s->flip
                      : s->type == AS_B32 && !s->bits && (u32)s->keep == ~0u && !(u32)s->flip;
    if (dpp || !whole || s->file == FROM_SPECIAL || (flushes && s->file != FROM_VECTOR))
        return BY_FETCH;
    return s->file != FROM_VECTOR ? FROM_WORD : flushes ? IF_NORMAL : IN_PLACE;
}

/* An instruction, and how it fetches its sources. */
struct step {
    const struct valu_operation *op;
    enum fetching how[MAX_SOURCES];
    bool writes_whole; /* registers */
    bool finishes;     /* the result of the function */
    struct block sources[MAX_SOURCES];
};

static void prepare(const struct machine *m, struct step *s) {
    const struct valu_operation *op = s->op;
    for (int k = 0; k < op->num_sources; ++k) {
        const struct valu_source *source = &op->sources[0][k];
        s->how[k] = fetching_of(m, source, op->dpp && k == 0);
        if (s->how[k] == ONCE)
            fetch(m, op, source, false, 0, s->sources[k].low, s->sources[k].high);
    }
    bool whole = op->result_type == TO_B32 || op->result_type == TO_B64;
    s->writes_whole = whole && !op->dpp && op->part == WHOLE;
    s->finishes = op->clamps || changes_result(m, op);
}

/* Whether an f32 value of some waves is subnormal. */
static bool any_subnormal(const u32 *row, int waves) {
    u32 found = 0;
    for (int i = 0; i < waves * LANES; ++i)
        found |= (row[i] & 0x7FFFFFFFu) - 1 < 0x7FFFFFu;
    return found != 0;
}

static bool differ(const u32 *values, int count) {
    u32 different = 0;
    for (int at = 1; at < count; ++at)
        different |= values[at] ^ values[0];
    return different != 0;
}

/* Spread a scalar register, or a pair, of consecutive waves: a row for each wave, or one
 * for all if their values are equal. */
static void spread_scalar(const struct machine *m, const struct valu_source *source, int64_t first,
                          int waves, struct rows *rows) {
    bool wide = source->type == AS_B64;
    const u32 *low = m->sgpr + source->reg * m->num_waves + first, *high = low + m->num_waves;
    if (!differ(low, waves) && !(wide && differ(high, waves))) {
        rows->step = 0;
        waves = 1;
    }
    for (int at = 0; at < waves; ++at)
        spread(low[at], rows->low + at * LANES);
    for (int at = 0; wide && at < waves; ++at)
        spread(high[at], rows->high + at * LANES);
}

/* The masks of consecutive waves: two words of each row. */
static void spread_masks(const struct machine *m, const struct valu_source *source, int64_t first,
                         int waves, u32 *rows) {
    const u32 *low = m->sgpr + source->reg * m->num_waves + first, *high = low + m->num_waves;
    for (int at = 0; at < waves; ++at) {
        rows[at * LANES] = low[at];
        rows[at * LANES + 1] = high[at];
    }
}

/* Find the rows of a source of `waves` consecutive waves. */
static struct rows source_rows(const struct machine *m, struct step *s, int k, int64_t first,
                               int waves) {
    const struct valu_source *source = &s->op->sources[0][k];
    struct rows rows = rows_of(&s->sources[k]);
    switch (s->how[k]) {
    case IN_PLACE:
        rows.low = vector_row(m, source->reg, first);
        rows.high = vector_row(m, source->reg + (source->type == AS_B64), first);
        break;
    case IF_NORMAL:
        if (!any_subnormal(vector_row(m, source->reg, first), waves)) {
            rows.low = vector_row(m, source->reg, first);
            break;
        } /* fall through */
    case BY_FETCH:
        for (int at = 0; at < waves; ++at)
            fetch(m, s->op, source, s->op->dpp && k == 0, first + at, rows.low + at * LANES,
                  rows.high + at * LANES);
        break;
    case FROM_MASK: spread_masks(m, source, first, waves, rows.low); break;
    case FROM_WORD: spread_scalar(m, source, first, waves, &rows); break;
    default: rows.step = 0;
    }
    return rows;
}

static bool have_all_lanes(const struct machine *m, int64_t first, int waves) {
    const u32 *low = m->sgpr + EXEC * m->num_waves + first, *high = low + m->num_waves;
    u32 all = ~0u;
    for (int at = 0; at < waves; ++at)
        all &= low[at] & high[at];
    return all == ~0u;
}

/* Execute an instruction in consecutive waves, whose registers are contiguous. */
static void execute(struct machine *m, struct step *s, int64_t first, int waves) {
    const struct valu_operation *op = s->op;
    struct rows in[MAX_SOURCES], out;
    struct block result;
    u64 mask[BLOCK] = {0};
    for (int k = 0; k < op->num_sources; ++k)
        in[k] = source_rows(m, s, k, first, waves);
    bool in_place = s->writes_whole && have_all_lanes(m, first, waves);
    out = rows_of(&result);
    if (in_place) {
        out.low = vector_row(m, op->result, first);
        out.high = vector_row(m, op->result + (op->result_type == TO_B64), first);
    }
    op->function(&out, in, op, mask, waves);
    for (int at = 0; in_place && s->finishes && at < waves; ++at)
        finish(m, op, out.low + at * out.step, out.high + at * out.step);
    for (int at = 0; !in_place && op->result_type != TO_MASK && at < waves; ++at)
        write_result(m, op, first + at, result.low + at * LANES, result.high + at * LANES,
                     written_lanes(op, exec_of(m, first + at)));
    for (int at = 0; op->mask >= 0 && at < waves; ++at)
        write_mask(m, op, first + at, mask[at] & written_lanes(op, exec_of(m, first + at)));
}

void valu_waves(struct machine *m, const void *operation, struct waves part) {
    struct step s;
    s.op = operation;
    prepare(m, &s);
    for (int64_t at = 0, waves; at < part.count; at += waves) {
        waves = consecutive(part, at, BLOCK);
        execute(m, &s, wave_at(part, at), (int)waves);
    }
}

void valu_lanewise(struct machine *m, const void *operation, int64_t wave) {
    valu_waves(m, operation, (struct waves){NULL, wave, 1, 1});
}

/* Two passes, whose results are two registers or the halves of one; both are computed before
 * either is written. */
void valu_packed(struct machine *m, const void *operation, int64_t wave) {
    const struct valu_operation *op = operation;
    struct block sources[MAX_SOURCES], results[2];
    struct rows in[MAX_SOURCES];
    u32 halves[2][LANES];
    u64 mask, exec = exec_of(m, wave);
    for (int pass = 0; pass < 2; ++pass) {
        for (int k = 0; k < op->num_sources; ++k) {
            in[k] = rows_of(&sources[k]);
            fetch(m, op, &op->sources[pass][k], false, wave, in[k].low, in[k].high);
        }
        struct rows out = rows_of(&results[pass]);
        op->function(&out, in, op, &mask, 1);
        finish(m, op, out.low, out.high);
    }
    if (op->result_type == TO_B32) {
        replace_lanes(vector_row(m, op->result, wave), results[0].low, exec);
        replace_lanes(vector_row(m, op->result + 1, wave), results[1].low, exec);
        return;
    }
    for (int pass = 0; pass < 2; ++pass)
        widen(op, results[pass].low, halves[pass]);
    for (int i = 0; i < LANES; ++i)
        halves[0][i] |= halves[1][i] << 16;
    replace_lanes(vector_row(m, op->result, wave), halves[0], exec);
}
