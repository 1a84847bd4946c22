/* Races in global memory, from a record of the last accesses to each 16 bytes.
 *
 * Two accesses of different waves to one byte, one of them a write, must be ordered: within a
 * workgroup by a barrier (no wait: its waves share a vector L1, which works in order;
 * LLVM, "User Guide for AMDGPU Backend", memory model); between workgroups by an atomic.
 * Which atomic does not matter. An access is ordered before all that a wave does after an acquire,
 * if the acquire comes later than a release by the accessing workgroup. An acquire is an atomic, or
 * a load past the caches. A release is a store or an atomic after the access was waited for: by the
 * access's own wave, or, after a barrier, by the releasing wave.
 *
 * All accesses of a launch are ordered before the next launch, unless that is in another stream and
 * does not wait. A clock runs over all launches, and `rivals` lists the times of unordered ones
 * (stream_order.py). All other records of earlier launches are ignored.
 *
 * An access that bypasses the caches (sc0, sc1; glc) is treated as atomic. It races with nothing in
 * its launch, and with those accesses in another stream that are not atomic. Two writes of the same
 * value do not race. A plain store and an atomic that computes (no swap, which may belong to a
 * lock) do: the store erases what the atomic has counted. The atomic comes first if the storing
 * workgroup has acquired since, as the last of several workgroups has.
 *
 * A record keeps the last write, or the first that is not released, and the last reads of two
 * waves, each with the wave's earlier bytes that are ordered like it. So a race with another access
 * may be missed, but no false race is reported. */
#ifndef CUPYGEMM_GLOBAL_ORDER_H
#define CUPYGEMM_GLOBAL_ORDER_H

#include "addresses.h"
#include "lanes.h"

static const uint32_t WAVE_BITS = 0xFFFFFF, PC_BITS = 0x3FFFFF, COHERENT = 1u << 22,
                      ATOMIC_SITE = 1u << 23, SCALAR_SITE = 1u << 23; /* of writes, of loads */

struct global_view {
    struct machine *m;
    int64_t wave;      /* in the batch */
    uint32_t own, now; /* wave in the launch */
    int32_t settled;   /* operations of the wave that a barrier or a release follows */
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

static inline int32_t settled_of(const struct machine *m, int64_t wave) {
    const struct release *last = m->releases + wave * RELEASES;
    int32_t passed = m->vm_passed[wave];
    return last->time && last->done > passed ? last->done : passed;
}

static inline struct global_view global_view(struct machine *m, int64_t wave, uint32_t how,
                                             uint32_t pc) {
    uint32_t own = (uint32_t)(m->first_wave + m->workgroup[wave] * m->waves_per_group +
                              m->wave_in_group[wave]) &
                   WAVE_BITS;
    uint32_t now = ++*m->clock;
    return (struct global_view){m,
                                wave,
                                own,
                                now,
                                settled_of(m, wave),
                                {now, (uint32_t)m->vm_issued[wave], own, (pc / 4 & PC_BITS) | how}};
}

/* -- order ------------------------------------------------------------------------------------- */

/* A barrier may pass either on to the other waves of the workgroup: it is not waited for. */
static inline void acquire(const struct global_view *v) {
    v->m->acquired[v->m->workgroup[v->wave]] = v->now;
}

/* If a wave has waited for what it did before its latest barrier, it has executed a fence since. A
 * fence is cumulative: it also releases what the rest of the workgroup did before that barrier.
 * Otherwise only what was waited for is released: a store may overtake stores to other
 * addresses. What other waves have done since the barrier is not released, unless they may say so
 * in LDS: this wave may have come here before them. */
static inline void release(const struct global_view *v) {
    struct machine *m = v->m;
    const int32_t *waves = m->wave_ids + (int64_t)m->workgroup[v->wave] * MAX_WAVES;
    bool fenced = m->vm_waited[v->wave] >= m->vm_passed[v->wave];
    for (int64_t i = 0; i < m->waves_per_group; i++) {
        bool known = waves[i] == v->wave || m->lds_orders;
        int32_t done = (known ? m->vm_waited : m->vm_released)[waves[i]];
        int32_t passed = m->vm_passed[waves[i]];
        struct release *ring = m->releases + (int64_t)waves[i] * RELEASES;
        done = fenced && passed > done ? passed : done;
        if (ring[0].time && ring[0].done >= done)
            continue;
        memmove(ring + 1, ring, (RELEASES - 1) * sizeof *ring); /* newest first */
        ring[0] = (struct release){v->now, done};
    }
}

/* Whether a wave of this batch released its operation `seq` before time `acquired`. If the
 * release may have been dropped from the record, the answer is yes. */
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
    int64_t low = 0, high = count; /* the first interval that ends at `time` or later */
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (intervals[middle].last < time)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && intervals[low].first <= time;
}

/* Whether an access belongs to an earlier launch that is unordered with this one. */
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

/* Whether a write and an earlier write disturb each other. */
static inline bool overwrites(const struct global_view *v, const struct site *s, uint32_t bytes) {
    if (conflicts(v, s, bytes))
        return true;
    bool mixed = (s->pc ^ v->site.pc) & COHERENT && (s->pc | v->site.pc) & ATOMIC_SITE;
    if (!mixed || !(bytes_of_site(s) & bytes) || !is_current(v, s))
        return false;
    uint32_t acquired = v->m->acquired[v->m->workgroup[v->wave]];
    return !(s->pc & ATOMIC_SITE && acquired > s->time) && !global_ordered(v, s);
}

/* Whether a plain store stays on record when its workgroup executes an atomic after it: the atomics
 * of other workgroups race with the store only. That they come after this atomic orders nothing, as
 * they might have come before it. */
static inline bool keeps_store(uint32_t now, uint32_t before, bool covers) {
    return now & ATOMIC_SITE && !(before & COHERENT) && covers;
}

/* Whether no write-back of the L2 can follow an instruction (units/memory/write_backs.py). */
static inline bool never_writes_back(const struct machine *m, int64_t pc) {
    return pc / 4 < m->num_without_write_back && m->without_write_back[pc / 4];
}

/* Whether a store of a workgroup on another XCD is still in the L2 there, and either
 * atomics order the store before this access, or none of its waves can write back any more. Loads
 * past the caches do not see it, either. */
static inline bool stays_in_l2(const struct global_view *v, const struct site *s, uint32_t bytes) {
    const struct machine *m = v->m;
    if (m->num_xcds <= 1 || s->pc & COHERENT || !(bytes_of_site(s) & bytes) || !is_current(v, s))
        return false;
    int64_t wave = wave_of_site(s), number = wave / m->waves_per_group;
    if (number % m->num_xcds == v->own / m->waves_per_group % m->num_xcds)
        return false;
    int64_t group = number - m->first_wave / m->waves_per_group;
    if (group < 0 || group >= m->num_groups) /* it has ended */
        return never_writes_back(m, 4 * (int64_t)(s->pc & PC_BITS));
    const int32_t *ids = m->wave_ids + group * MAX_WAVES;
    if ((int32_t)(s->seq - (uint32_t)m->written_back[ids[wave % m->waves_per_group]]) <= 0)
        return false;
    bool gone = true;
    for (int64_t i = 0; i < m->waves_per_group; i++)
        gone &= never_writes_back(m, m->pcs[ids[i]]);
    return gone || global_ordered(v, s);
}

/* Whether a load has brought a line into this workgroup's L1 that may still be there. */
static inline bool stays_in_l1(const struct global_view *v, const struct site *load) {
    const struct machine *m = v->m;
    return is_current(v, load) && !(load->pc & (COHERENT | SCALAR_SITE)) &&
           wave_of_site(load) / m->waves_per_group == v->own / m->waves_per_group &&
           load->time > m->invalidated[m->workgroup[v->wave]];
}

/* Return the load that may have left an old line in L1, from before another workgroup's plain store
 * to what is loaded now; NULL if there is none. */
static inline const struct site *load_before(const struct global_view *v,
                                             const struct global_record *r, uint32_t bytes) {
    const struct machine *m = v->m;
    const struct site *s = &r->write;
    if (!m->invalidated || s->pc & COHERENT || v->site.pc & (COHERENT | SCALAR_SITE) ||
        !(bytes_of_site(s) & bytes) || !is_current(v, s) ||
        wave_of_site(s) / m->waves_per_group == v->own / m->waves_per_group)
        return NULL;
    if (r->read.time < s->time && stays_in_l1(v, &r->read))
        return &r->read;
    return r->other_read.time < s->time && stays_in_l1(v, &r->other_read) ? &r->other_read : NULL;
}

static inline int global_race(const struct global_view *v, int code, const struct access *a,
                              int lane, const struct site *s) {
    struct machine *m = v->m;
    bool writes = code != GLOBAL_RACE_READ && code != UNSEEN_WRITE && code != STALE_LINE;
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

/* An access takes over the bytes of the wave's own earlier one, unless others may be ordered after
 * the earlier one and not after this: they would seem to race with it. */
static inline void note_site(const struct global_view *v, struct site *s, uint32_t bytes) {
    bool mine = is_current(v, s) && wave_of_site(s) == v->own;
    bool alike = !((s->pc ^ v->site.pc) & COHERENT) && (int32_t)s->seq - v->settled > 0;
    *s = with_bytes(v->site, mine && alike ? bytes_of_site(s) | bytes : bytes);
}

/* A load keeps the time of the wave's earlier one if the line may still be in L1 since then. An
 * unordered read in another stream is kept in preference to one of this launch. */
static inline void note_read(const struct global_view *v, struct global_record *r, uint32_t bytes) {
    uint32_t first = r->read.time;
    bool stays = v->m->invalidated && !(v->site.pc & (COHERENT | SCALAR_SITE)) &&
                 wave_of_site(&r->read) == v->own && stays_in_l1(v, &r->read);
    bool foreign = is_rival(v, &r->read);
    if (foreign || (is_current(v, &r->read) && wave_of_site(&r->read) != v->own &&
                    !is_rival(v, &r->other_read)))
        r->other_read = r->read;
    note_site(v, &r->read, bytes);
    r->read.time = stays ? first : r->read.time;
}

/* Bring the granules' records of a line up to date. */
__attribute__((noinline, unused)) static void spread_line(struct line_record *line,
                                                          struct global_record *r) {
    const struct line_record old = *line;
    uint32_t latest = old.latest;
    for (int i = 0; i < LINE / GRANULE; i++) {
        r[i].write = old.write.time ? old.write : r[i].write;
        r[i].read = old.read.time ? old.read : r[i].read;
        r[i].other_read = old.other_read.time ? old.other_read : r[i].other_read;
    }
    latest = old.write.time > latest ? old.write.time : latest;
    latest = old.read.time > latest ? old.read.time : latest;
    *line = (struct line_record){.latest = latest}; /* `other_read` is older than `read` */
}

/* Return the record of the granule at a place, counted from the shadow's base. */
__attribute__((always_inline)) static inline struct global_record *
record_at(struct global_record *records, struct line_record *lines, uint64_t place) {
    struct line_record *line = lines + place / LINE;
    if (line->write.time | line->read.time | line->other_read.time)
        spread_line(line, records + place / LINE * (LINE / GRANULE));
    return records + place / GRANULE;
}

/* The same for an access that is about to be recorded there. */
__attribute__((always_inline)) static inline struct global_record *
record_to_note(const struct global_view *v, uint64_t place) {
    struct global_record *r = record_at(v->m->global_shadow, v->m->global_lines, place);
    v->m->global_lines[place / LINE].latest = v->now;
    return r;
}

/* The bytes of an access in the granule at `start`. */
static inline uint32_t bytes_in(uint64_t start, uint64_t address, int bytes) {
    uint64_t first = address > start ? address - start : 0;
    uint64_t end = address + (uint64_t)bytes - start;
    return (uint32_t)(low_bits((int)(end < GRANULE ? end : GRANULE)) & ~low_bits((int)first));
}

static inline int global_read(const struct global_view *v, const struct access *a, int lane,
                              struct global_record *r, uint32_t bytes) {
    if (conflicts(v, &r->write, bytes))
        return global_race(v, GLOBAL_RACE_READ, a, lane, &r->write);
    if (stays_in_l2(v, &r->write, bytes)) {
        int code = global_race(v, UNSEEN_WRITE, a, lane, &r->write);
        if (code)
            return code;
    }
    const struct site *before = load_before(v, r, bytes);
    if (before) {
        int code = global_race(v, STALE_LINE, a, lane, &r->write);
        v->m->fault.other_seq = 4 * (int32_t)(before->pc & PC_BITS);
        if (code)
            return code;
    }
    note_read(v, r, bytes);
    return OK;
}

/* Whether another workgroup's unreleased store to other bytes of a granule stays on
 * record. Of several such stores, the first stays in every other granule and the last in the
 * rest: the workgroup that reads them all may have stored last, or first. */
static inline bool keeps_first(const struct global_view *v, const struct global_record *r,
                               uint32_t bytes) {
    const struct machine *m = v->m;
    const struct site *s = &r->write;
    int64_t group = wave_of_site(s) / m->waves_per_group - m->first_wave / m->waves_per_group;
    if ((r - m->global_shadow) % 2 || !is_current(v, s) || bytes_of_site(s) & bytes ||
        s->pc & COHERENT || group < 0 || group >= m->num_groups || group == m->workgroup[v->wave])
        return false;
    int64_t wave = m->wave_ids[group * MAX_WAVES + wave_of_site(s) % m->waves_per_group];
    return !released_by(m, wave, s->seq, v->now);
}

static inline void note_write(const struct global_view *v, struct global_record *r,
                              uint32_t bytes) {
    if (keeps_first(v, r, bytes))
        return;
    int64_t waves = v->m->waves_per_group;
    bool ours = is_current(v, &r->write) && wave_of_site(&r->write) / waves == v->own / waves;
    bool covers = !(bytes & ~bytes_of_site(&r->write));
    if (!ours || !keeps_store(v->site.pc, r->write.pc, covers))
        note_site(v, &r->write, bytes);
}

/* Whether this workgroup has acquired since a write to a granule that a load past the caches has
 * read since, so that its own to the same bytes comes after it. On CDNA2, a flag that workgroups
 * set in turn is set by plain stores. The load on record may be of another workgroup that waits for
 * the flag, too, or for the next one. */
static inline bool has_seen(const struct global_view *v, const struct site *load,
                            const struct site *write) {
    return is_current(v, load) && load->pc & COHERENT && load->time > write->time &&
           v->m->acquired[v->m->workgroup[v->wave]] > write->time;
}

/* `same`: the write changes nothing; it is set only where that matters. */
static inline int global_write(const struct global_view *v, const struct access *a, int lane,
                               struct global_record *r, uint32_t bytes, bool same) {
    if (conflicts(v, &r->read, bytes))
        return global_race(v, GLOBAL_RACE_WRITE_READ, a, lane, &r->read);
    if (conflicts(v, &r->other_read, bytes))
        return global_race(v, GLOBAL_RACE_WRITE_READ, a, lane, &r->other_read);
    bool seen = has_seen(v, &r->read, &r->write) || has_seen(v, &r->other_read, &r->write);
    if (!same && !seen && overwrites(v, &r->write, bytes))
        return global_race(v, GLOBAL_RACE_WRITE_WRITE, a, lane, &r->write);
    note_write(v, r, bytes);
    return OK;
}

#endif
