/* Loads from LDS that are not yet in the records.
 *
 *     stores ─► barrier ─► loads: listed ─► barrier: the list is dropped
 *                                      └──► any other access: the list is recorded first
 *
 * A block of granules is settled if every wave may read all of it: all stores to it are released,
 * and it has no undefined bits. It remains so until the next store. A load from settled blocks has
 * nothing to check, and its records matter only if a store follows before all waves have passed a
 * barrier. So it is listed in the order of loads. If the workgroup's waves have waited for all LDS
 * operations when they pass the barrier, no record of a read can matter any more, and the list is
 * dropped. Only the run loop defers loads: it records them before Python sees the records. */
#ifndef CUPYGEMM_LDS_PENDING_H
#define CUPYGEMM_LDS_PENDING_H

#include "lds_blocks.h"

/* What is known of a block since the last barrier. */
enum settled { UNKNOWN, SETTLED, NOT_SETTLED };

/* Loads of a workgroup that are recorded at once, before blocks are examined: that reads each of
 * their records. */
enum { ENOUGH_LOADS = 4 };

static inline struct lds_load *pending_loads(const struct machine *m, int64_t group) {
    return m->loads + group * m->waves_per_group * PENDING_LOADS;
}

static inline uint8_t *settled_blocks(const struct machine *m, int64_t group) {
    return m->settled + group * blocks_of_group(m);
}

/* lds_pending.c */
void record_loads(struct machine *m, int64_t group);
bool settle_blocks(const struct lds_view *v, int64_t first, int64_t last);
void pass_lds_barrier(struct machine *m, int64_t group);
void begin_deferring(struct machine *m);
void end_deferring(struct machine *m, bool has_ended);

/* Record the listed loads of the workgroup before another access to some granules. */
static inline void stop_deferring(const struct lds_view *v, uint32_t first, uint32_t last,
                                  bool writes) {
    struct machine *m = v->m;
    if (!m->defers)
        return;
    const int64_t group = m->workgroup[v->wave];
    struct lds_pending *p = m->pending + group;
    if (p->count && p->low <= last && p->high >= first)
        record_loads(m, group);
    p->recorded += !writes;
    if (writes)
        memset(settled_blocks(m, group) + first / TOGETHER, NOT_SETTLED,
               last / TOGETHER - first / TOGETHER + 1);
}

/* Bring the records of all granules in an extent up to date, before an access to some of them. */
static inline void update_extent(const struct lds_view *v, struct extent e, int bytes,
                                 bool writes) {
    const int shift = (int)v->m->shadow_shift;
    stop_deferring(v, e.low >> shift, (e.high + (uint32_t)bytes - 1) >> shift, writes);
    spread_extent(v, e, bytes);
}

static inline void update_lanes(const struct lds_view *v, uint64_t exec, const uint32_t *address,
                                int bytes, bool writes) {
    if (v->m->shadow && exec)
        update_extent(v, extent_of(exec, address), bytes, writes);
}

/* List the loads of some lanes if they are from settled blocks; returns whether they are. */
static inline bool defer_load(const struct lds_view *v, uint64_t exec, const uint32_t *address,
                              int bytes, struct extent e) {
    struct machine *m = v->m;
    if (!m->defers || bytes & 3)
        return false;
    const int64_t group = m->workgroup[v->wave];
    struct lds_pending *p = m->pending + group;
    const uint32_t low = e.low / 4, high = (e.high + (uint32_t)bytes - 1) / 4;
    const uint8_t *settled = settled_blocks(m, group);
    uint8_t other = 0;
    for (uint32_t k = low / TOGETHER; k <= high / TOGETHER; k++)
        other |= settled[k] ^ SETTLED;
    if (other && (p->recorded < ENOUGH_LOADS || !settle_blocks(v, low / TOGETHER, high / TOGETHER)))
        return false;
    if (p->count == (uint32_t)m->waves_per_group * PENDING_LOADS)
        record_loads(m, group);
    p->low = p->count && p->low < low ? p->low : low;
    p->high = p->count && p->high > high ? p->high : high;
    struct lds_load *load = pending_loads(m, group) + p->count++;
    load->exec = exec;
    load->wave = (uint32_t)v->wave;
    load->seq = v->seq;
    load->each = (uint32_t)bytes / 4;
    for (int lane = 0; lane < LANES; lane++)
        load->granule[lane] = (uint16_t)(address[lane] / 4);
    return true;
}

#endif
