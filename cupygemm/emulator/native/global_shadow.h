/* Races in global memory, from a record of who last touched each 16 bytes.
 *
 * Two accesses of different waves to one byte, one of them a write, must be ordered: within a
 * workgroup by a barrier (no wait: the waves of a workgroup share a vector L1, which works in
 * order; LLVM, "User Guide for AMDGPU Backend", memory model); between workgroups by an atomic.
 * Which atomic is not looked at: an access is ordered before all that a wave does after it has
 * acquired (an atomic, or a load past the caches) later than the accessing workgroup released (a
 * store or an atomic after the access was waited for, or after a barrier). What ends with the
 * launch is ordered before the next, unless that is in another stream and does not wait: a clock
 * runs over all launches, and `rivals` lists the times of unordered ones (stream_order.py). All
 * other records of earlier launches count for nothing.
 *
 * An access that bypasses the caches (sc0, sc1; glc) is taken for an atomic one, and atomics race
 * with nothing, but in another stream only with one another. Nor do two writes of the same value.
 * A record keeps the last write and the last reads of two waves: a race with an earlier one is
 * missed, none is invented. */
#ifndef CUPYGEMM_GLOBAL_SHADOW_H
#define CUPYGEMM_GLOBAL_SHADOW_H

#include "addresses.h"
#include "lanes.h"

static const uint32_t WAVE_BITS = 0xFFFFFF, PC_BITS = 0x3FFFFF, COHERENT = 1u << 22;

struct global_view {
    struct machine *m;
    int64_t wave;      /* in the batch */
    uint32_t own, now; /* wave in the launch */
    struct site site;  /* of the executing access, without its bytes */
};

static inline uint32_t wave_of_site(const struct site *s) { return s->wave & WAVE_BITS; }
static inline uint32_t bytes_of_site(const struct site *s) {
    return s->wave >> 24 | s->pc >> 24 << 8;
}

static inline struct site with_bytes(struct site s, uint32_t bytes) {
    s.wave |= bytes << 24;
    s.pc |= bytes >> 8 << 24;
    return s;
}

static inline struct global_view global_view(struct machine *m, int64_t wave, bool coherent,
                                             uint32_t pc) {
    uint32_t own = (uint32_t)(m->first_wave + m->workgroup[wave] * m->waves_per_group +
                              m->wave_in_group[wave]) &
                   WAVE_BITS;
    uint32_t now = ++*m->clock;
    return (struct global_view){
        m,
        wave,
        own,
        now,
        {now, (uint32_t)m->vm_issued[wave], own, (pc / 4 & PC_BITS) | (coherent ? COHERENT : 0)}};
}

/* -- order ------------------------------------------------------------------------------------- */

/* A barrier may carry either to the other waves of the workgroup: it is not waited for. */
static inline void acquire(const struct global_view *v) {
    v->m->acquired[v->m->workgroup[v->wave]] = v->now;
}

static inline void release(const struct global_view *v) {
    struct machine *m = v->m;
    const int32_t *waves = m->wave_ids + (int64_t)m->workgroup[v->wave] * MAX_WAVES;
    for (int64_t i = 0; i < m->waves_per_group; i++) {
        int32_t waited = m->vm_waited[waves[i]], passed = m->vm_passed[waves[i]];
        int32_t done = waited > passed ? waited : passed;
        struct release *ring = m->releases + (int64_t)waves[i] * RELEASES;
        if (ring[0].time && ring[0].done == done)
            continue;
        memmove(ring + 1, ring, (RELEASES - 1) * sizeof *ring); /* newest first */
        ring[0] = (struct release){v->now, done};
    }
}

/* Whether a wave of this batch released its operation `seq` before time `acquired`. Where the
 * release may be one that is no longer on record, the answer is yes. */
static inline bool released_by(const struct machine *m, int64_t wave, uint32_t seq,
                               uint32_t acquired) {
    const struct release *ring = m->releases + wave * RELEASES;
    for (int i = 0; i < RELEASES && ring[i].time; i++) {
        if ((int32_t)((uint32_t)ring[i].done - seq) < 0)
            return false;
        if (ring[i].time < acquired || i == RELEASES - 1)
            return true;
    }
    return false;
}

static inline bool is_current(const struct global_view *v, const struct site *s) {
    return s->time >= v->m->launch_start;
}

/* Whether a time is in one of some intervals. */
static inline bool within(const struct interval *intervals, int64_t count, uint32_t time) {
    int64_t low = 0, high = count; /* the first that ends at `time` or later */
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (intervals[middle].last < time)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && intervals[low].first <= time;
}

/* Whether an access is of an earlier launch that nothing orders before this one. */
static inline bool is_rival(const struct global_view *v, const struct site *s) {
    const struct machine *m = v->m;
    return m->num_rivals && !is_current(v, s) && within(m->rivals, m->num_rivals, s->time);
}

/* A launch that has acquired may be ordered after what happens in another stream. */
static inline bool may_be_ordered(const struct global_view *v) {
    return v->m->acquired[v->m->workgroup[v->wave]] >= v->m->launch_start;
}

static inline bool global_ordered(const struct global_view *v, const struct site *s) {
    const struct machine *m = v->m;
    uint32_t other = wave_of_site(s);
    if (other == v->own)
        return true;
    int64_t group = other / m->waves_per_group - m->first_wave / m->waves_per_group;
    bool in_batch = group >= 0 && group < m->num_groups;
    int64_t index = in_batch ? m->wave_ids[group * MAX_WAVES + other % m->waves_per_group] : 0;
    if (in_batch && group == m->workgroup[v->wave] &&
        (int32_t)(s->seq - (uint32_t)m->vm_passed[index]) <= 0)
        return true;
    uint32_t acquired = m->acquired[m->workgroup[v->wave]];
    if (acquired < m->launch_start)
        return false;
    return !in_batch || released_by(m, index, s->seq, acquired);
}

static inline bool conflicts(const struct global_view *v, const struct site *s, uint32_t bytes) {
    if (!(bytes_of_site(s) & bytes))
        return false;
    if (!is_current(v, s))
        return is_rival(v, s) && !(s->pc & v->site.pc & COHERENT) && !may_be_ordered(v);
    return !((s->pc | v->site.pc) & COHERENT) && !global_ordered(v, s);
}

static inline int global_race(const struct global_view *v, int code, const struct access *a,
                              int lane, const struct site *s) {
    struct machine *m = v->m;
    bool writes = code != GLOBAL_RACE_READ;
    if (!is_current(v, s))
        code += STREAM_RACE_READ - GLOBAL_RACE_READ;
    if (!raise(m, code, lane, a->address[lane], a->bytes[lane], writes))
        return OK;
    m->fault.other_wave = (int32_t)wave_of_site(s);
    m->fault.other_pc = 4 * (int64_t)(s->pc & PC_BITS);
    m->fault.other = s->time;
    return code;
}

/* -- one granule ------------------------------------------------------------------------------- */

static inline void note_site(const struct global_view *v, struct site *s, uint32_t bytes) {
    bool mine = is_current(v, s) && wave_of_site(s) == v->own;
    *s = with_bytes(v->site, mine ? bytes_of_site(s) | bytes : bytes);
}

/* Whether an access is of another wave, in this launch. */
static inline bool is_foreign(const struct global_view *v, const struct site *s) {
    return is_current(v, s) && wave_of_site(s) != v->own;
}

/* An unordered read of another stream is kept rather than one of this launch. */
static inline void note_read(const struct global_view *v, struct global_record *r, uint32_t bytes) {
    bool foreign = is_rival(v, &r->read);
    if (foreign || (is_current(v, &r->read) && wave_of_site(&r->read) != v->own &&
                    !is_rival(v, &r->other_read)))
        r->other_read = r->read;
    note_site(v, &r->read, bytes);
}

/* The bytes of an access that lie in the granule at `start`. */
static inline uint32_t bytes_in(uint64_t start, uint64_t address, int bytes) {
    uint64_t first = address > start ? address - start : 0;
    uint64_t end = address + (uint64_t)bytes - start;
    return (uint32_t)(low_bits((int)(end < GRANULE ? end : GRANULE)) & ~low_bits((int)first));
}

static inline int global_read(const struct global_view *v, const struct access *a, int lane,
                              struct global_record *r, uint32_t bytes) {
    if (conflicts(v, &r->write, bytes))
        return global_race(v, GLOBAL_RACE_READ, a, lane, &r->write);
    note_read(v, r, bytes);
    return OK;
}

/* `same` tells whether the write changes nothing; it is only asked where that matters. */
static inline int global_write(const struct global_view *v, const struct access *a, int lane,
                               struct global_record *r, uint32_t bytes, bool same) {
    if (conflicts(v, &r->read, bytes))
        return global_race(v, GLOBAL_RACE_WRITE_READ, a, lane, &r->read);
    if (conflicts(v, &r->other_read, bytes))
        return global_race(v, GLOBAL_RACE_WRITE_READ, a, lane, &r->other_read);
    if (!same && conflicts(v, &r->write, bytes))
        return global_race(v, GLOBAL_RACE_WRITE_WRITE, a, lane, &r->write);
    note_site(v, &r->write, bytes);
    return OK;
}

/* -- accesses ---------------------------------------------------------------------------------- */

static inline bool stores_the_same(const struct machine *m, const struct operation *op,
                                   int64_t wave, const struct access *a, int lane) {
    uint8_t data[16], *pointer[LANES];
    pointer[lane] = data;
    copy_lanes(op, vector_row(m, op->data, wave), (size_t)m->row_dwords, 1ull << lane, pointer,
               NULL);
    return memcmp(data, (const void *)(uintptr_t)a->address[lane], a->bytes[lane]) == 0;
}

static inline int note_lane(const struct global_view *v, const struct operation *op,
                            const struct access *a, int lane) {
    const struct machine *m = v->m;
    uint64_t address = a->address[lane], end = address + a->bytes[lane];
    bool writes = op->kind == STORE || op->kind == ATOMIC;
    for (uint64_t start = address & ~(uint64_t)(GRANULE - 1); start < end; start += GRANULE) {
        struct global_record *r = m->global_shadow + (start - m->global_base) / GRANULE;
        uint32_t bytes = bytes_in(start, address, a->bytes[lane]);
        int code;
        if (writes) {
            bool foreign = is_current(v, &r->write) ? wave_of_site(&r->write) != v->own
                                                    : is_rival(v, &r->write);
            bool same = foreign && op->kind == STORE && stores_the_same(m, op, v->wave, a, lane);
            code = global_write(v, a, lane, r, bytes, same);
        } else {
            code = global_read(v, a, lane, r, bytes);
        }
        if (code)
            return code;
    }
    return OK;
}

/* Note the accesses of adjacent lanes, granule by granule. Returns false where something may be
 * wrong; what has been noted by then may be noted again, lane by lane. */
static inline bool note_stretch(const struct global_view *v, const struct operation *op,
                                const struct access *a, bool writes) {
    const struct machine *m = v->m;
    uint64_t first = a->address[0], size = (uint64_t)(a->adjacent * op->bytes);
    if (first < m->global_base || first + size > m->global_end)
        return false;
    for (uint64_t start = first & ~(uint64_t)(GRANULE - 1); start < first + size;
         start += GRANULE) {
        struct global_record *r = m->global_shadow + (start - m->global_base) / GRANULE;
        uint32_t bytes = bytes_in(start, first, (int)size);
        if (conflicts(v, &r->write, bytes))
            return false;
        if (!writes) {
            note_read(v, r, bytes);
            continue;
        }
        if (conflicts(v, &r->read, bytes) || conflicts(v, &r->other_read, bytes))
            return false;
        note_site(v, &r->write, bytes);
    }
    return true;
}

/* Note the accesses of lanes of which each touches one granule, whose records cannot matter to it:
 * they are of earlier launches, or the wave's own. Returns the other lanes. */
static inline uint64_t note_plain_lanes(const struct global_view *view, const struct access *a,
                                        uint64_t lanes, bool writes) {
    const struct global_view v = *view;
    const struct machine *m = v.m;
    const uint64_t base = m->global_base, end = m->global_end;
    uint64_t careful = 0;
    if (m->num_rivals)
        return lanes;
    for (uint64_t left = lanes; left; left &= left - 1) {
        int lane = first_lane(left), bytes = a->bytes[lane];
        uint64_t address = a->address[lane], offset = address % GRANULE;
        if (address < base || address >= end || !bytes || offset + (uint64_t)bytes > GRANULE) {
            careful |= 1ull << lane;
            continue;
        }
        struct global_record *r = m->global_shadow + (address - base) / GRANULE;
        if (is_foreign(&v, &r->write) ||
            (writes && (is_foreign(&v, &r->read) || is_foreign(&v, &r->other_read)))) {
            careful |= 1ull << lane;
            continue;
        }
        struct site *s = writes ? &r->write : &r->read;
        if (!writes && is_foreign(&v, s))
            r->other_read = *s;
        note_site(&v, s, (uint32_t)(low_bits(bytes) << offset));
    }
    return careful;
}

/* -- copies, fills and library calls in other streams ------------------------------------------ */

static inline bool touches(const struct stretch *s, uint64_t address, uint64_t bytes) {
    if (address >= s->end || address + bytes <= s->start)
        return false;
    uint64_t offset = address > s->start ? address - s->start : 0, within = offset % s->pitch;
    uint64_t next = s->start + offset - within + s->pitch;
    return within < s->run || (next < address + bytes && next < s->end);
}

static inline int check_stretches(const struct global_view *v, const struct access *a, int lane,
                                  bool writes) {
    struct machine *m = v->m;
    for (int64_t i = 0; i < m->num_stretches; i++) {
        const struct stretch *s = m->stretches + i;
        if (!(writes || s->writes) || !touches(s, a->address[lane], a->bytes[lane]))
            continue;
        int code = !writes     ? STREAM_RACE_READ
                   : s->writes ? STREAM_RACE_WRITE_WRITE
                               : STREAM_RACE_WRITE_READ;
        if (!raise(m, code, lane, a->address[lane], a->bytes[lane], writes))
            return OK;
        m->fault.other = -(i + 1);
        return code;
    }
    return OK;
}

/* Check a scalar load against the writes of other streams. It is not noted. */
static inline int check_scalar(struct machine *m, int64_t wave, uint64_t address, int64_t dwords,
                               uint32_t pc) {
    if (!m->global_shadow || address < m->global_base || address >= m->global_end)
        return OK;
    struct global_view v = {.m = m, .wave = wave, .site = {.pc = pc / 4 & PC_BITS}};
    struct access a;
    a.address[0] = address;
    a.bytes[0] = (uint8_t)(4 * dwords);
    int code = check_stretches(&v, &a, 0, false);
    uint64_t end = address + a.bytes[0];
    for (uint64_t start = address & ~(uint64_t)(GRANULE - 1); !code && start < end;
         start += GRANULE) {
        struct global_record *r = m->global_shadow + (start - m->global_base) / GRANULE;
        if (is_rival(&v, &r->write) &&
            conflicts(&v, &r->write, bytes_in(start, address, a.bytes[0])))
            code = global_race(&v, GLOBAL_RACE_READ, &a, 0, &r->write);
    }
    return code;
}

/* Check and note the accesses of a wave to global memory, before they are made. */
static inline int note_global(struct machine *m, const struct operation *op, int64_t wave,
                              const struct access *a, uint32_t pc) {
    uint64_t lanes = a->exec & ~(a->to_lds | a->to_scratch);
    if (!m->global_shadow || !lanes)
        return OK;
    bool atomic = op->kind == ATOMIC, writes = atomic || op->kind == STORE;
    struct global_view v = global_view(m, wave, atomic || op->coherent, pc);
    int code = OK;
    struct fault first;
    if (a->adjacent && note_stretch(&v, op, a, writes))
        lanes = 0;
    lanes = lanes ? note_plain_lanes(&v, a, lanes, writes) : 0;
    for (uint64_t left = lanes; left; left &= left - 1) {
        int lane = first_lane(left);
        uint64_t address = a->address[lane];
        if (a->bytes[lane] && address >= m->global_base && address < m->global_end)
            code = collect(m, code, note_lane(&v, op, a, lane), lane, &first);
    }
    if (m->num_stretches && !code && !may_be_ordered(&v)) {
        for (uint64_t left = a->exec & ~(a->to_lds | a->to_scratch); left; left &= left - 1) {
            int lane = first_lane(left);
            if (a->bytes[lane])
                code = collect(m, code, check_stretches(&v, a, lane, writes), lane, &first);
        }
    }
    if (writes)
        release(&v);
    if (v.site.pc & COHERENT)
        acquire(&v);
    return code;
}

#endif
