/* Order by flags in LDS, such as between the waves that load tiles and those that multiply them:
 *
 *     write the tile ─► add to the flag            loop: read the flag ─► read the tile
 *
 * LDS executes the operations of a wave in order, so a wave that sees the flag set sees all that
 * the other had written or read before. Direct-to-LDS loads are included if vmcnt was waited for;
 * if a FLAT instruction sets the flag, operations are included only if lgkmcnt was, since
 * FLAT may overtake them. A flag is an address that all active lanes of a store or an atomic write.
 * It is waited for by an instruction in a loop that does nothing else, or an atomic load
 * (units/lds/polling.py). All other reads are checked as usual, since seeing a flag once proves
 * nothing. An atomic adds to what the flag orders, a store replaces it. A flag is forgotten after
 * FLAGS newer ones.
 *
 * A wave that waits for a count of 1 may find 2. It would have gone on at 1, had it come earlier,
 * so only what the flag ordered then is ordered before what follows (units/lds/wait_conditions.py):
 *
 *     writes to the flag   0 ── wave 0 adds: 1 ── wave 1 adds: 2 ── the wave reads 2
 *                                      └── the earliest at which the loop ends
 *
 * Writes that the wave knows of by a barrier or another flag cannot come after it, so that it
 * cannot have found an older value. */
#ifndef CUPYGEMM_LDS_FLAGS_H
#define CUPYGEMM_LDS_FLAGS_H

#include "definedness.h"
#include "shadow.h"

/* The condition under which an instruction goes on waiting, 0 if it is unknown; NULL if it does not
 * wait. */
static inline const int64_t *poll_at(const struct machine *m, uint32_t pc) {
    for (int64_t i = 0; i < m->num_polls; i++)
        if (m->polls[2 * i] == (int64_t)pc)
            return m->polls + 2 * i + 1;
    return NULL;
}

/* The flag at an address; if there is none, the one that was written longest ago. */
static inline struct lds_flag *flag_at(struct lds_flags *flags, uint32_t address) {
    struct lds_flag *oldest = flags->flag;
    for (struct lds_flag *f = flags->flag; f < flags->flag + FLAGS; f++) {
        if (f->used && f->address == address)
            return f;
        oldest = f->used < oldest->used ? f : oldest;
    }
    return oldest;
}

/* Whether all lanes access one address. */
static inline bool is_same(uint64_t exec, const uint32_t *address) {
    for (uint64_t left = exec; left; left &= left - 1)
        if (address[first_lane(left)] != address[first_lane(exec)])
            return false;
    return true;
}

static inline struct flag_state *latest(struct lds_flag *f) {
    return f->state + (f->writes - 1) % STATES;
}

static inline uint32_t value_at(const struct lds_view *v, uint32_t address) {
    uint32_t value = 0;
    if (address + sizeof value <= (uint64_t)v->m->lds_bytes)
        memcpy(&value, v->bytes + address, sizeof value);
    return value;
}

/* Whether a loop goes on at a value of its flag. */
static inline bool goes_on(const struct machine *m, int64_t wave, int64_t condition,
                           uint32_t value) {
    enum { LESS = 1, EQUAL = 2, GREATER = 4, UNSIGNED = 8, STAYS = 16, REGISTER = 32 };
    uint32_t operand = (uint32_t)((uint64_t)condition >> 32);
    operand = condition & REGISTER ? scalar(m, operand, wave) : operand;
    bool less = condition & UNSIGNED ? value < operand : (int32_t)value < (int32_t)operand;
    int64_t relation = value == operand ? EQUAL : less ? LESS : GREATER;
    return !(condition & relation) != !!(condition & STAYS);
}

/* Return the earliest state of a flag at which a loop might have ended, as it ends now. */
static inline const struct flag_state *earliest_end(const struct lds_view *v, struct lds_flag *f,
                                                    int64_t condition) {
    struct flag_state *end = latest(f);
    for (uint32_t i = 1; i <= STATES && i <= f->writes; i++) {
        struct flag_state *s = f->state + (f->writes - i) % STATES;
        if (!goes_on(v->m, v->wave, condition, s->value))
            end = s;
        if (s->wave < 0 || !after(s->seq, v->ordered[s->wave]))
            break;
    }
    return end;
}

/* Record that a wave has seen a flag. */
static inline void acquire_flag(const struct lds_view *v, uint32_t address, int64_t condition) {
    struct lds_flag *f = flag_at(v->flags, address);
    if (!f->used || f->address != address)
        return;
    const struct flag_state *s = latest(f);
    latest(f)->value = value_at(v, address);
    if (condition && !goes_on(v->m, v->wave, condition, s->value))
        s = earliest_end(v, f, condition);
    int32_t *lds = v->flags->lds[v->own], *vm = v->flags->vm[v->own];
    for (int64_t i = 0; i < v->m->waves_per_group; i++) {
        lds[i] = later(lds[i], s->lds[i]);
        vm[i] = later(vm[i], s->vm[i]);
    }
}

/* Record that a wave writes a possible flag, after `done` of its operations in LDS. */
static inline void release_flag(const struct lds_view *v, uint64_t exec, const uint32_t *address,
                                bool adds, int32_t done) {
    uint32_t first = address[first_lane(exec)];
    if (!is_same(exec, address))
        return;
    struct lds_flag *f = flag_at(v->flags, first);
    if (!f->used || f->address != first) {
        memset(f, 0, sizeof *f);
        f->address = first;
        f->writes = 1;
        f->state[0].wave = -1;
    }
    struct flag_state *before = latest(f);
    before->value = value_at(v, first);
    f->used = ++v->flags->time;
    f->writes++;
    struct flag_state *s = latest(f);
    if (adds)
        *s = *before;
    else
        memset(s, 0, sizeof *s);
    s->wave = (int32_t)v->own;
    s->seq = v->seq;
    for (int64_t i = 0; i < v->m->waves_per_group; i++) {
        s->lds[i] = later(s->lds[i], v->flags->lds[v->own][i]);
        s->vm[i] = later(s->vm[i], v->flags->vm[v->own][i]);
    }
    s->lds[v->own] = later(s->lds[v->own], done);
    s->vm[v->own] = later(s->vm[v->own], v->m->vm_waited[v->wave]);
}

/* Process the lanes of an instruction that waits for flags: it races with nothing. */
static int poll_flags(const struct lds_view *v, const struct operation *op, uint64_t exec,
                      const uint32_t *address, uint32_t pc, int64_t condition) {
    struct machine *m = v->m;
    int code = OK, n;
    struct fault first;
    condition = is_same(exec, address) ? condition : 0;
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        const struct record *r = granules(v, address[lane], op->bytes, &n);
        bool undefined = !(r->write & WRITTEN) || r->write & TAINTED;
        if (op->kind == ATOMIC && undefined)
            code =
                collect(m, code, raise(m, LDS_UNINITIALISED, lane, address[lane], op->bytes, false),
                        lane, &first);
        else if (op->kind == LOAD && m->undefined)
            note_lds_load(m, op, v, op->result, lane, address[lane], pc);
        acquire_flag(v, address[lane], condition);
    }
    return code;
}

#endif
