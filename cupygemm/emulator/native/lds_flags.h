/* Order by flags in LDS, such as between the waves that load tiles and those that multiply them:
 *
 *     write the tile ─► add to the flag            loop: read the flag ─► read the tile
 *
 * LDS executes the operations of a wave in order, so a wave that sees the flag set sees all that
 * the other had written or read before. Direct-to-LDS loads are included if vmcnt was waited for;
 * if a FLAT instruction sets the flag, operations are included only if lgkmcnt was, since
 * FLAT may overtake them. A flag is an address that all active lanes of a store or an atomic write.
 * It is waited for by an instruction in a loop that does nothing else (units/lds/polling.py). All
 * other reads are checked as usual, since seeing a flag once proves nothing. An atomic adds to what
 * the flag orders, a store replaces it. A flag is forgotten after FLAGS newer ones. */
#ifndef CUPYGEMM_LDS_FLAGS_H
#define CUPYGEMM_LDS_FLAGS_H

#include "definedness.h"
#include "shadow.h"

static inline bool is_poll(const struct machine *m, uint32_t pc) {
    for (int64_t i = 0; i < m->num_polls; i++)
        if (m->polls[i] == (int64_t)pc)
            return true;
    return false;
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

/* Record that a wave has seen a flag. */
static inline void acquire_flag(const struct lds_view *v, uint32_t address) {
    const struct lds_flag *f = flag_at(v->flags, address);
    if (!f->used || f->address != address)
        return;
    int32_t *lds = v->flags->lds[v->own], *vm = v->flags->vm[v->own];
    for (int64_t i = 0; i < v->m->waves_per_group; i++) {
        lds[i] = later(lds[i], f->lds[i]);
        vm[i] = later(vm[i], f->vm[i]);
    }
}

/* Record that a wave writes a possible flag, after `done` of its operations in LDS. */
static inline void release_flag(const struct lds_view *v, uint64_t exec, const uint32_t *address,
                                bool adds, int32_t done) {
    uint32_t first = address[first_lane(exec)];
    for (uint64_t left = exec; left; left &= left - 1)
        if (address[first_lane(left)] != first)
            return;
    struct lds_flag *f = flag_at(v->flags, first);
    if (!adds || !f->used || f->address != first)
        memset(f, 0, sizeof *f);
    f->address = first;
    f->used = ++v->flags->time;
    for (int64_t i = 0; i < v->m->waves_per_group; i++) {
        f->lds[i] = later(f->lds[i], v->flags->lds[v->own][i]);
        f->vm[i] = later(f->vm[i], v->flags->vm[v->own][i]);
    }
    f->lds[v->own] = later(f->lds[v->own], done);
    f->vm[v->own] = later(f->vm[v->own], v->m->vm_waited[v->wave]);
}

/* Process the lanes of an instruction that waits for flags: it races with nothing. */
static int poll_flags(const struct lds_view *v, const struct operation *op, uint64_t exec,
                      const uint32_t *address, uint32_t pc) {
    struct machine *m = v->m;
    int code = OK, n;
    struct fault first;
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
        acquire_flag(v, address[lane]);
    }
    return code;
}

#endif
