#include "lds_pending.h"

/* Record the listed loads of a workgroup, in order. */
void record_loads(struct machine *m, int64_t group) {
    struct lds_pending *p = m->pending + group;
    struct lds_view v = {0};
    for (uint32_t k = 0; k < p->count; k++) {
        const struct lds_load *load = pending_loads(m, group) + k;
        view_next(&v, m, load->wave, 0);
        v.seq = load->seq;
        v.new_read = (v.new_read & ~0xFFFFFFFFull) | load->seq;
        for (uint64_t left = load->exec; left; left &= left - 1) {
            struct record *r = v.records + load->granule[first_lane(left)];
            for (uint32_t i = 0; i < load->each; i++)
                r[i].read = read_word(&v, r[i].read);
        }
    }
    p->count = 0;
}

/* Whether every wave may read all granules of a block. Nearly always, the number of each store is
 * among those that all waves have released. */
static bool is_settled(const struct lds_view *v, const int32_t *released, int64_t block) {
    const int64_t first = block * TOGETHER, left = v->m->shadow_stride - first;
    const struct record *r = v->records + first;
    const int count = left < TOGETHER ? (int)left : TOGETHER;
    int32_t least = released[0];
    for (int64_t wave = 1; wave < v->m->waves_per_group; wave++)
        least = released[wave] - least < 0 ? released[wave] : least;
    uint64_t unsettled = 0;
    for (int i = 0; i < count; i++)
        unsettled |=
            ((r[i].write & (WRITTEN | TAINTED | BY_LOAD)) ^ WRITTEN) | after(r[i].write, least);
    if (!unsettled)
        return true;
    unsettled = 0;
    for (int i = 0; i < count; i++) {
        const uint64_t write = r[i].write;
        unsettled |= ((write & (WRITTEN | TAINTED)) != WRITTEN) |
                     after(write, released[write >> 32 & (2 * MAX_WAVES - 1)]);
    }
    return !unsettled;
}

/* Examine the blocks from `first` to `last`; returns whether all are settled. */
bool settle_blocks(const struct lds_view *v, int64_t first, int64_t last) {
    struct machine *m = v->m;
    uint8_t *settled = settled_blocks(m, m->workgroup[v->wave]);
    int32_t released[2 * MAX_WAVES];
    if (memchr(settled + first, NOT_SETTLED, (size_t)(last - first + 1)))
        return false;
    memcpy(released, v->ordered, sizeof released);
    released[v->own] = m->lds_released[v->wave];
    released[MAX_WAVES + v->own] = m->vm_released[v->wave];
    spread_granules(v, (uint32_t)first * TOGETHER, (uint32_t)last * TOGETHER + TOGETHER - 1);
    bool all = true;
    for (int64_t k = first; k <= last; k++) {
        if (settled[k] == UNKNOWN)
            settled[k] = is_settled(v, released, k) ? SETTLED : NOT_SETTLED;
        all &= settled[k] == SETTLED;
    }
    return all;
}

/* Forget all reads of a workgroup: none can matter, and epochs are about to repeat. */
static void forget_reads(struct machine *m, int64_t group) {
    struct record *r = m->shadow + group * m->shadow_stride;
    struct lds_block *b = m->blocks + group * blocks_of_group(m);
    for (int64_t i = 0; i < m->shadow_stride; i++)
        r[i].read = 0;
    for (int64_t k = 0; k < blocks_of_group(m); k++)
        b[k].read = b[k].readers = 0;
}

/* Drop or record the listed loads of a workgroup whose waves are about to pass a barrier. */
void pass_lds_barrier(struct machine *m, int64_t group) {
    if (!m->defers)
        return;
    struct lds_pending *p = m->pending + group;
    bool waited = true;
    for (int64_t k = 0; k < m->waves_per_group; k++) {
        const int64_t wave = m->wave_ids[group * MAX_WAVES + k];
        waited &= m->lds_waited[wave] == m->lds_issued[wave];
    }
    if (!waited)
        record_loads(m, group);
    else if (!(((uint64_t)m->barrier_epoch[group] + 1) << 48 & EPOCH))
        forget_reads(m, group);
    p->count = p->recorded = 0;
    uint8_t *settled = settled_blocks(m, group);
    for (int64_t k = 0; k < blocks_of_group(m); k++)
        settled[k] = settled[k] == SETTLED ? SETTLED : UNKNOWN;
}

/* Whether the run loop may list loads from now on: flags order waves one by one. */
void begin_deferring(struct machine *m) {
    m->defers = m->shadow && m->shadow_shift == 2 && !m->flags && !m->reads;
}

/* Record all listed loads, unless the batch has ended. */
void end_deferring(struct machine *m, bool has_ended) {
    const int64_t groups = m->num_waves / m->waves_per_group;
    if (!m->defers)
        return;
    for (int64_t group = 0; group < groups && !has_ended; group++)
        record_loads(m, group);
    memset(m->pending, 0, (size_t)groups * sizeof *m->pending);
    memset(m->settled, UNKNOWN, (size_t)(groups * blocks_of_group(m)));
    m->defers = false;
}
