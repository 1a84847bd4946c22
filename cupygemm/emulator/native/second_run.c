/* Execute an instruction on the undefined bits of its registers, before it runs on the values.
 *
 * Most instructions of the vector ALU and most accesses to memory have this second run in C.
 * Python (definedness/uses.py) defines its meaning, and runs all other instructions. It also
 * reports an undefined value that is used: here, the run then returns false, having changed nothing
 * that Python would not change, too. */
#include "undefined_registers.h"
#include "valu_rows.h"

/* -- rules ------------------------------------------------------------------------------------- */

/* A source of a wave, or its undefined bits, for each lane. */
struct lanes {
    u64 of[LANES];
};

static void fetch_lanes(const struct machine *m, const struct valu_operation *op,
                        const struct valu_source *source, int64_t wave, struct lanes *out) {
    u32 low[LANES], high[LANES] = {0};
    const u16 *narrow = (const u16 *)low;
    fetch(m, op, source, false, wave, low, high);
    for (int i = 0; i < LANES; ++i)
        out->of[i] = source->type == AS_MASK  ? (low[i / 32] >> i % 32 & 1 ? ~0ull : 0)
                     : source->type == AS_B16 ? narrow[i]
                     : source->type == AS_B32 ? low[i]
                                              : low[i] | (u64)high[i] << 32;
}

static u64 everywhere(u64 bits) { return bits ? ~0ull : 0; }

/* The undefined bits of a sum: bit i depends on the bits up to i. */
static u64 upward(u64 bits) { return bits | (0 - bits); }

/* The undefined bits of a bitwise function: those that undefined inputs can change. */
static u64 of_logic(uint32_t table, const struct lanes *bits, const struct lanes *values,
                    int inputs, int lane) {
    u64 can_be[2] = {0, 0};
    for (int row = 0; row < 1 << inputs; ++row) {
        u64 term = ~0ull;
        for (int k = 0; k < inputs; ++k) {
            u64 value = values[k].of[lane];
            term &= (row >> (inputs - 1 - k) & 1 ? value : ~value) | bits[k].of[lane];
        }
        can_be[table >> row & 1] |= term;
    }
    return can_be[0] & can_be[1];
}

/* The operation itself moves the bits of its data; an undefined bit of another source makes
 * everything undefined. */
static void of_move(const struct machine *m, const struct machine *on_bits,
                    const struct second_run *s, const struct lanes *bits, int64_t wave,
                    struct lanes *out) {
    const struct valu_operation *op = &s->operation;
    struct block sources[MAX_SOURCES], result;
    struct rows in[MAX_SOURCES], to = rows_of(&result);
    const u16 *narrow = (const u16 *)result.low;
    for (int k = 0; k < op->num_sources; ++k) {
        bool moves = s->moves >> k & 1;
        in[k] = rows_of(&sources[k]);
        fetch(moves ? on_bits : m, op, &op->sources[!moves][k], false, wave, in[k].low, in[k].high);
    }
    u64 mask;
    op->function(&to, in, op, &mask, 1);
    for (int i = 0; i < LANES; ++i) {
        out->of[i] = op->result_type == TO_B16   ? narrow[i]
                     : op->result_type == TO_B32 ? result.low[i]
                                                 : result.low[i] | (u64)result.high[i] << 32;
        for (int k = 0; k < op->num_sources; ++k)
            out->of[i] |= s->moves >> k & 1 ? 0 : everywhere(bits[k].of[i]);
    }
}

static u64 of_lane(const struct second_run *s, const struct lanes *bits, const struct lanes *values,
                   int lane) {
    int inputs = s->operation.num_sources;
    u64 a = bits[0].of[lane], any = 0;
    for (int k = 0; k < inputs; ++k)
        any |= bits[k].of[lane];
    switch (s->rule) {
    case SAME: return a;
    case SUM: return upward(any);
    case SHIFTED_SUM:
        return upward(a << (values[1].of[lane] & 31) | bits[2].of[lane]) |
               everywhere(bits[1].of[lane]);
    case LOGIC: return of_logic(s->table, bits, values, inputs, lane);
    case SELECT:
        if (bits[2].of[lane])
            return (values[0].of[lane] ^ values[1].of[lane]) | a | bits[1].of[lane];
        return values[2].of[lane] ? bits[1].of[lane] : a;
    default: return everywhere(any);
    }
}

/* Whether undefined bits can change the comparison of two integers. */
static bool is_unsure(const struct second_run *s, const struct lanes *bits,
                      const struct lanes *values, int lane) {
    const int32_t type = s->operation.sources[1][0].type;
    const int top = type == AS_B16 ? 15 : type == AS_B32 ? 31 : 63;
    const u64 sign = s->table & SIGNED ? 1ull << top : 0; /* flipped, integers are in order */
    const u64 a = values[0].of[lane] ^ sign, b = values[1].of[lane] ^ sign;
    const u64 in_a = bits[0].of[lane], in_b = bits[1].of[lane], unsure = in_a | in_b;
    switch (s->table & ~(u32)SIGNED) {
    case EQUAL: return unsure && !((a ^ b) & ~unsure);
    case LESS: return ((a & ~in_a) < (b | in_b)) != ((a | in_a) < (b & ~in_b));
    default: return ((a & ~in_a) <= (b | in_b)) != ((a | in_a) <= (b & ~in_b));
    }
}

static void write_lane_mask(struct machine *on_bits, const struct second_run *s,
                            const struct lanes *bits, const struct lanes *values, int64_t wave,
                            u64 exec) {
    u64 mask = 0;
    for (int i = 0; i < LANES; ++i)
        if (s->rule == COMPARE)
            mask |= (u64)is_unsure(s, bits, values, i) << i;
        else
            for (int k = 0; k < s->operation.num_sources; ++k)
                mask |= (u64)(bits[k].of[i] != 0) << i;
    write_mask(on_bits, &s->operation, wave, mask & exec);
}

static void write_bits(struct machine *on_bits, const struct valu_operation *op,
                       const struct lanes *result, int64_t wave, u64 exec) {
    u32 low[LANES], high[LANES];
    u16 *narrow = (u16 *)low;
    for (int i = 0; i < LANES; ++i) {
        high[i] = (u32)(result->of[i] >> 32);
        if (op->result_type == TO_B16)
            narrow[i] = (u16)result->of[i];
        else
            low[i] = (u32)result->of[i];
    }
    write_result(on_bits, op, wave, low, high, exec);
}

/* The second run of a lane-wise instruction, or of one that works on pairs of registers. */
static void of_wave(const struct machine *m, struct machine *on_bits, const struct second_run *s,
                    int64_t wave) {
    const struct valu_operation *op = &s->operation;
    struct lanes bits[MAX_SOURCES], values[MAX_SOURCES], results[2];
    u64 exec = exec_of(m, wave);
    for (int pass = 0; pass < op->passes; ++pass) {
        for (int k = 0; k < op->num_sources; ++k) {
            fetch_lanes(on_bits, op, &op->sources[pass][k], wave, &bits[k]);
            if (op->passes == 1)
                fetch_lanes(m, op, &op->sources[1][k], wave, &values[k]);
        }
        if (s->rule == MOVE)
            of_move(m, on_bits, s, bits, wave, &results[pass]);
        else
            for (int i = 0; i < LANES; ++i)
                results[pass].of[i] = of_lane(s, bits, values, i);
    }
    if (op->mask >= 0)
        write_lane_mask(on_bits, s, bits, values, wave, exec);
    for (int pass = 0; pass < op->passes && op->result >= 0; ++pass) {
        struct valu_operation to = *op;
        to.result += pass;
        write_bits(on_bits, &to, &results[pass], wave, exec);
    }
}

/* v_readlane and v_writelane: one lane, active or not. */
static void of_one_lane(const struct machine *m, struct machine *on_bits,
                        const struct second_run *s, int64_t wave) {
    const struct valu_operation *op = &s->operation;
    struct lanes bits, unsure, chosen;
    fetch_lanes(on_bits, op, &op->sources[0][0], wave, &bits);
    fetch_lanes(on_bits, op, &op->sources[0][1], wave, &unsure);
    fetch_lanes(m, op, &op->sources[1][1], wave, &chosen);
    int lane = chosen.of[0] & (LANES - 1);
    if (s->rule == READ_LANE)
        set_scalar(on_bits, op->result, wave, (u32)(bits.of[lane] | everywhere(unsure.of[0])));
    else
        vector_row(on_bits, op->result, wave)[lane] = (u32)bits.of[0];
}

/* -- origins ----------------------------------------------------------------------------------- */

/* Whether a select takes undefined bits of a register in some lane of the group. */
static bool is_taken(const struct loop *l, const struct second_run *s, int64_t number) {
    const struct machine *m = l->machine;
    const struct valu_operation *op = &s->operation;
    struct waves group = group_waves(l);
    for (int k = 0; k < 2; ++k) {
        const struct valu_source *source = &op->sources[1][k];
        bool is_vector = source->file == FROM_VECTOR;
        int64_t first = source->file == FROM_SCALAR ? FIRST_SCALAR : 0;
        if (source->file > FROM_SCALAR || source->reg + first != number)
            continue;
        for (int64_t at = 0; at < group.count; at++) {
            int64_t wave = wave_at(group, at);
            struct lanes chosen;
            fetch_lanes(m, op, &op->sources[1][2], wave, &chosen);
            for (u64 left = exec_of(m, wave); left; left &= left - 1) {
                int lane = first_lane(left);
                bool undefined = !is_vector || undefined_row(m, number, wave)[lane];
                if (undefined && (chosen.of[lane] != 0) == (k == 1))
                    return true;
            }
        }
    }
    return false;
}

/* The sources in the order in which their origins count; for a select, those that it takes
 * first. */
static struct registers in_order(const struct loop *l, const struct second_run *s) {
    if (s->rule != SELECT)
        return s->sources;
    struct registers found = {0}, left = {0};
    for (int k = 0; k < s->sources.count; k++) {
        int32_t number = s->sources.number[k];
        struct registers *to = is_taken(l, s, number) ? &found : &left;
        to->number[to->count++] = number;
    }
    for (int k = 0; k < left.count; k++)
        found.number[found.count++] = left.number[k];
    return found;
}

/* Each target gets the origin of the first source with undefined bits. */
static void carry_origins(const struct loop *l, const struct second_run *s) {
    const struct machine *m = l->machine;
    struct registers sources = in_order(l, s);
    struct waves group = group_waves(l);
    for (int64_t at = 0; at < group.count; at++) {
        int64_t wave = wave_at(group, at);
        int k = 0;
        while (k < sources.count && !is_affected(m, sources.number[k], wave))
            k++;
        if (k == sources.count)
            continue;
        int32_t origin = *origin_at(m, sources.number[k], wave) | s->origin_flags;
        for (int target = 0; target < s->targets.count; target++)
            *origin_at(m, s->targets.number[target], wave) = origin;
    }
}

/* -- instructions ------------------------------------------------------------------------------ */

static bool run_alu(struct loop *l, const struct second_run *s) {
    bool any = is_any_exposed(l, &s->sources);
    if (any || is_any_marked(l, &s->targets)) {
        struct machine *m = l->machine, on_bits = *m;
        struct waves group = group_waves(l);
        on_bits.vgpr = m->undefined;
        on_bits.sgpr = m->undefined_scalar;
        carry_origins(l, s);
        for (int64_t at = 0; at < group.count; at++)
            (s->rule == READ_LANE || s->rule == WRITE_LANE ? of_one_lane : of_wave)(
                m, &on_bits, s, wave_at(group, at));
    }
    for (int k = 0; k < s->targets.count; k++)
        settle(l, s->targets.number[k], any);
    return true;
}

/* Whether an address is undefined in an active lane. */
static bool is_address_undefined(struct loop *l, int64_t number) {
    if (!is_exposed(l, number))
        return false;
    const struct machine *m = l->machine;
    struct waves group = group_waves(l);
    for (int64_t at = 0; at < group.count; at++) {
        int64_t wave = wave_at(group, at);
        u64 exec = exec_of(m, wave);
        if (number >= FIRST_SCALAR && exec && is_affected(m, number, wave))
            return true;
        if (number >= FIRST_SCALAR)
            continue;
        for (; exec; exec &= exec - 1)
            if (undefined_row(m, number, wave)[first_lane(exec)])
                return true;
    }
    return false;
}

/* Loaded data count as defined, until the load itself finds otherwise. */
static void define_active(const struct loop *l, int64_t reg) {
    struct waves group = group_waves(l);
    for (int64_t at = 0; at < group.count; at++) {
        int64_t wave = wave_at(group, at);
        uint32_t *row = undefined_row(l->machine, reg, wave);
        for (u64 exec = exec_of(l->machine, wave); exec; exec &= exec - 1)
            row[first_lane(exec)] = 0;
    }
}

static bool run_access(struct loop *l, const struct second_run *s) {
    for (int k = 0; k < s->addresses.count; k++)
        if (is_address_undefined(l, s->addresses.number[k]))
            return false;
    l->machine->tainted = is_any_exposed(l, &s->sources);
    for (int k = 0; k < s->targets.count; k++) {
        int64_t reg = s->targets.number[k];
        if (is_set(l->marked, reg))
            define_active(l, reg);
        settle(l, reg, false);
    }
    return true;
}

/* Carry the undefined bits through an instruction for the group; returns false if Python must. */
bool run_again(struct loop *l, const struct instruction *i) {
    const struct second_run *s = i->second_run;
    return s->rule == ACCESS ? run_access(l, s) : run_alu(l, s);
}
