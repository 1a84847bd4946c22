/* LDS loads and stores of a dword in which lane i accesses the i-th dword after some address, the
 * usual pattern, with all lanes or some of them active.
 *
 * The first and the last address show whether all are in bounds, and the mask of the lanes is also
 * that of the granules that they access. So the records of blocks (lds_blocks.h) are checked
 * without a list of addresses. Accesses that are not plain or that the records cannot express are
 * left to lds.c. */
#ifndef CUPYGEMM_LDS_PLAIN_H
#define CUPYGEMM_LDS_PLAIN_H

#include "active_lanes.h"
#include "lds_block_accesses.h"
#include "lds_variables.h"

/* The addresses of the active lanes: lane i has `first + 4 * i`, which may be outside LDS if
 * lane i is off. */
struct lane_places {
    int64_t first;
    int low, high; /* the first and the last active lane */
};

/* Whether the accesses of an instruction may be plain ones in some wave. */
static inline bool may_be_plain(const struct machine *m, const struct operation *op) {
    bool moves = op->kind == LOAD || (op->kind == STORE && !m->tainted && !op->updates);
    return moves && op->format == DWORDS && op->dwords == 1 && !op->pair && op->address >= 0 &&
           m->shadow && m->shadow_shift == 2 && !m->flags && !m->reads;
}

/* Whether the active lanes' addresses, plus `offset`, have this pattern. */
static inline bool find_places(const struct machine *m, const uint32_t *row, uint32_t offset,
                               uint64_t exec, struct lane_places *p) {
    const int low = first_lane(exec), high = LANES - 1 - __builtin_clzll(exec);
    const uint32_t start = row[low] + offset, base = row[low] - 4 * (uint32_t)low;
    if (row[high] != base + 4 * (uint32_t)high || start & 3 ||
        start + (int64_t)(4 * (high - low + 1)) > m->lds_bytes)
        return false;
    *p = (struct lane_places){(int64_t)start - 4 * low, low, high};
    uint32_t different = 0;
    if (__builtin_popcountll(exec) < FEW_LANES) {
        for (uint64_t left = exec; left; left &= left - 1)
            different |= row[first_lane(left)] ^ (base + 4 * (uint32_t)first_lane(left));
        return !different;
    }
    for (int half = 0; half < 2; half++) {
        const uint32_t word = (uint32_t)(exec >> 32 * half), *at = row + 32 * half;
        const uint32_t from = base + 128 * (uint32_t)half;
        for (int k = 0; k < 32; k++)
            different |= word & LANE_BITS[k] ? at[k] ^ (from + 4 * (uint32_t)k) : 0;
    }
    return !different;
}

/* Shift bits up, or down by a negative number. */
static inline uint64_t moved_bits(uint64_t bits, int64_t up) {
    return up >= 0 ? bits << up : bits >> -up;
}

/* Record loads from such addresses; returns whether they are plainly correct. */
static inline bool read_places(const struct lds_view *v, uint64_t exec,
                               const struct lane_places *p) {
    const int64_t granule = p->first >> 2;
    const uint32_t low = (uint32_t)(granule + p->low), high = (uint32_t)(granule + p->high);
    uint64_t seen = 0;
    for (uint32_t k = first_slot(low); k <= last_slot(high); k++) {
        struct lds_block *b = v->blocks + k;
        if (!has_some(b, low, high))
            continue;
        const int64_t up = granule - (int64_t)b->first;
        if (up >= TOGETHER || up <= -TOGETHER)
            return false;
        const uint64_t granules = moved_bits(exec, up);
        if (granules && !read_block(v, b, granules))
            return false;
        seen |= moved_bits(granules, -up);
    }
    return seen == exec;
}

/* Load the active lanes of a row. */
static inline void load_places(const struct machine *m, const uint8_t *bytes, uint64_t exec,
                               const struct lane_places *p, uint32_t *row) {
    const int64_t end = p->first + 4 * LANES;
    uint32_t data[LANES];
    if (__builtin_popcountll(exec) < FEW_LANES || p->first < 0 || end > m->lds_bytes) {
        for (uint64_t left = exec; left; left &= left - 1)
            memcpy(row + first_lane(left), bytes + p->first + 4 * first_lane(left), 4);
        return;
    }
    memcpy(data, bytes + p->first, sizeof data);
    replace_lanes(row, data, exec);
}

/* Store a row; returns whether a bit changes. */
static inline bool store_places(uint8_t *place, const uint32_t *row) {
    uint32_t before[LANES], changed = 0;
    memcpy(before, place, sizeof before);
    for (int lane = 0; lane < LANES; lane++)
        changed |= before[lane] ^ row[lane];
    memcpy(place, row, sizeof before);
    return changed != 0;
}

/* Whether all addresses are in the variable that an instruction's source names, if one is known. */
static inline bool are_in_variable(const struct machine *m, uint32_t pc,
                                   const struct lane_places *p) {
    const struct named_access *named = m->num_named ? named_access(m, pc) : NULL;
    return !named || (p->first + 4 * p->low >= named->low && p->first + 4 * p->high < named->high);
}

/* Execute a load or store in a wave if it is plain; returns whether it was. If not, only
 * records have changed, which may be updated again. `v` is the view of the previous wave, if
 * any. */
static inline bool access_places(struct machine *m, const struct operation *op, int64_t wave,
                                 uint64_t exec, uint32_t pc, struct lds_view *v) {
    struct lane_places p;
    const uint32_t *addresses = vector_row(m, op->address, wave);
    if ((op->kind == STORE && ~exec) ||
        !find_places(m, addresses, (uint32_t)op->offset, exec, &p) || !are_in_variable(m, pc, &p))
        return false;
    view_next(v, m, wave, 0);
    note_issue(v, pc);
    if (op->kind == LOAD) {
        if (!read_places(v, exec, &p))
            return false;
        load_places(m, v->bytes, exec, &p, vector_row(m, op->result, wave));
        return true;
    }
    if (!write_blocks(v, (uint32_t)(p.first >> 2), TOGETHER))
        return false;
    memory_changes += store_places(v->bytes + p.first, vector_row(m, op->data, wave));
    return true;
}

#endif
