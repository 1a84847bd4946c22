/* Lanes that continue past a barrier that only other lanes of their wave have reached. See
 * units/lds/partial_barriers.py, which does the same when Python executes the barrier. */
#ifndef CUPYGEMM_BARRIER_LANES_H
#define CUPYGEMM_BARRIER_LANES_H

#include "machine.h"

/* Whether lanes of a wave reach a barrier after they skipped an earlier one. */
static inline bool lanes_rejoin(const struct machine *m, int64_t wave) {
    return m->num_skipped && m->skipped[wave] & scalar64(m, EXEC, wave);
}

/* Record that a wave reaches a barrier. */
static inline void note_barrier(struct machine *m, int64_t wave, int64_t pc) {
    uint64_t missing = m->launched[wave] & ~scalar64(m, EXEC, wave);
    if (!missing)
        return;
    if (!m->skipped[wave])
        m->skipped_at[wave] = pc;
    m->skipped[wave] |= missing;
    m->num_skipped = 1;
}

/* Check lanes of a wave that access LDS or global memory. */
static inline int check_barriers(struct machine *m, int64_t wave, uint64_t lanes) {
    if (!m->num_skipped || ignores(m, SKIPPED_BARRIER))
        return OK;
    uint64_t found = m->skipped[wave] & lanes;
    if (!found || !raise(m, SKIPPED_BARRIER, first_lane(found), 0, 0, false))
        return OK;
    m->fault.lanes = found;
    return SKIPPED_BARRIER;
}

#endif
