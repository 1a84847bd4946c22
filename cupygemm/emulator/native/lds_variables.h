/* Accesses to LDS outside the variable that the source names: see units/lds/shared_arrays.py. */
#ifndef CUPYGEMM_LDS_VARIABLES_H
#define CUPYGEMM_LDS_VARIABLES_H

#include "machine.h"

/* The variable of an instruction; NULL if it is not known. */
static inline const struct named_access *named_access(const struct machine *m, uint32_t pc) {
    int64_t low = 0, high = m->num_named;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (m->named[middle].pc < (int64_t)pc)
            low = middle + 1;
        else
            high = middle;
    }
    return low < m->num_named && m->named[low].pc == (int64_t)pc ? &m->named[low] : NULL;
}

/* The active lanes whose accesses begin inside a variable. */
static inline uint64_t lanes_inside(int64_t low, int64_t high, uint64_t exec,
                                    const uint32_t *address) {
    uint64_t inside = 0;
    for (int lane = 0; lane < LANES; lane++)
        inside |= (uint64_t)(address[lane] - (uint32_t)low < (uint32_t)(high - low)) << lane;
    return inside & exec;
}

/* The variable that most lanes access. */
static inline struct named_access most_accessed(const struct machine *m, uint64_t exec,
                                                const uint32_t *address) {
    struct named_access found = {0, 0, m->lds_bytes};
    int most = 0;
    for (int64_t i = 0; i < m->num_variables; i++) {
        int64_t low = m->variables[2 * i], high = m->variables[2 * i + 1];
        int count = __builtin_popcountll(lanes_inside(low, high, exec, address));
        if (count > most) {
            most = count;
            found = (struct named_access){0, low, high};
        }
    }
    return found;
}

/* Check an access; one of an instruction's two may be to another variable, with all its lanes. */
static inline int check_variable(struct machine *m, const struct operation *op,
                                 const struct named_access *named, uint64_t exec,
                                 const uint32_t *address) {
    struct named_access meant = named->low < 0 ? most_accessed(m, exec, address) : *named;
    uint64_t outside = exec & ~lanes_inside(meant.low, meant.high, exec, address);
    if (!outside || (op->pair && outside == exec))
        return OK;
    int lane = first_lane(outside);
    int code = raise(m, OTHER_VARIABLE, lane, address[lane], op->bytes, op->kind != LOAD);
    if (code) {
        m->fault.lanes = outside;
        m->fault.other = meant.low;
    }
    return code;
}

#endif
