/* Plain accesses to global memory, whose records cannot matter to them: nearly all accesses.
 * At the first other one, `global_shadow.h` takes over. */
#ifndef CUPYGEMM_GLOBAL_PLAIN_H
#define CUPYGEMM_GLOBAL_PLAIN_H

#include "global_order.h"

/* A site as two words, which are loaded and stored as a whole: neighbouring lanes share records. */
struct words {
    uint64_t when, where; /* time and seq; wave and pc, with the bytes */
};

static const uint64_t SITE_BYTES = 0xFF000000FF000000;
static const uint32_t ALL_BYTES = 0xFFFF; /* of a granule */

static inline struct words words_of(const struct site *s) {
    struct words w;
    memcpy(&w.when, &s->time, sizeof w.when);
    memcpy(&w.where, &s->wave, sizeof w.where);
    return w;
}

static inline void set_words(struct site *s, uint64_t when, uint64_t where) {
    memcpy(&s->time, &when, sizeof when);
    memcpy(&s->wave, &where, sizeof where);
}

/* What a plain access needs from the machine, which stores to records cannot change. */
struct plain_view {
    uint64_t when, where;
    uint32_t own, launch_start;
    uint32_t group, others; /* first wave of the workgroup, and number of the others; or any */
    int32_t settled;
    uint32_t cached; /* the vector L1 may hold what was loaded later */
};

/* The time since which loads like this one may be in L1; the end of time if it does not matter. */
static inline uint32_t cached_since(const struct global_view *v) {
    const struct machine *m = v->m;
    bool matters = m->invalidated && !(v->site.pc & (COHERENT | SCALAR_SITE));
    return matters ? m->invalidated[m->workgroup[v->wave]] : UINT32_MAX;
}

static inline struct plain_view plain_view(const struct global_view *v) {
    struct words w = words_of(&v->site);
    const struct machine *m = v->m;
    return (struct plain_view){w.when,
                               w.where,
                               v->own,
                               (uint32_t)m->launch_start,
                               v->own - (uint32_t)m->wave_in_group[v->wave],
                               m->communicates ? (uint32_t)m->waves_per_group - 1 : ~0u,
                               v->settled,
                               cached_since(v)};
}

static inline bool of_launch(struct plain_view v, struct words w) {
    return (uint32_t)w.when >= v.launch_start;
}

static inline bool of_wave(struct plain_view v, struct words w) {
    return ((uint32_t)w.where & WAVE_BITS) == v.own;
}

static inline bool of_group(struct plain_view v, struct words w) {
    return ((uint32_t)w.where & WAVE_BITS) - v.group <= v.others;
}

/* The bytes that an access takes over from the wave's own earlier one: see note_site. */
static inline uint64_t bytes_before(struct plain_view v, struct words w) {
    bool alike = !((v.where ^ w.where) >> 32 & COHERENT) && (int32_t)(w.when >> 32) - v.settled > 0;
    return of_launch(v, w) && alike ? w.where & SITE_BYTES : 0;
}

/* Bytes of a granule as the bits of a site's second word. */
static inline uint64_t in_site(uint32_t bytes) {
    return (uint64_t)(bytes & 0xFF) << 24 | (uint64_t)(bytes >> 8) << 56;
}

/* Whether a site may matter to an access: of another wave of this launch, with a common byte. */
static inline bool may_matter(struct plain_view v, struct words w, uint64_t bytes) {
    return of_launch(v, w) & !of_wave(v, w) & ((w.where & bytes) != 0);
}

/* Record an access if the existing record cannot matter to it, being of earlier launches, of the
 * same wave or of other bytes; returns whether it is. No other stream may have an unordered
 * launch. */
__attribute__((always_inline)) static inline bool
note_plain(struct plain_view v, struct global_record *r, uint32_t bytes, bool writes) {
    const struct words write = words_of(&r->write), read = words_of(&r->read);
    const uint64_t accessed = in_site(bytes), where = v.where | accessed;
    if (may_matter(v, write, accessed))
        return false;
    if (writes) {
        if (of_launch(v, write) && !of_group(v, write)) /* other bytes: see keeps_first */
            return false;
        if (may_matter(v, read, accessed) || may_matter(v, words_of(&r->other_read), accessed))
            return false;
        bool mine = of_wave(v, write);
        if (!of_launch(v, write) || !mine ||
            !keeps_store((uint32_t)(v.where >> 32), (uint32_t)(write.where >> 32),
                         !(accessed & ~write.where)))
            set_words(&r->write, v.when, where | (mine ? bytes_before(v, write) : 0));
        return true;
    }
    if (of_launch(v, read) && !of_wave(v, read))
        set_words(&r->other_read, read.when, read.where);
    const bool mine = of_wave(v, read);
    const bool stays = mine && of_launch(v, read) && (uint32_t)read.when > v.cached &&
                       !(read.where >> 32 & (COHERENT | SCALAR_SITE));
    const uint64_t when = stays ? v.when >> 32 << 32 | (uint32_t)read.when : v.when;
    set_words(&r->read, when, where | (mine ? bytes_before(v, read) : 0));
    return true;
}

/* Record an access to `bytes` of each granule of a line if the line's record cannot matter to it;
 * returns whether it is so. The granules' records must be of earlier launches. */
static inline bool note_line(struct plain_view v, struct line_record *line, uint32_t bytes,
                             bool writes) {
    struct global_record all = {line->write, line->read, line->other_read};
    if (line->latest >= v.launch_start || !note_plain(v, &all, bytes, writes))
        return false;
    line->write = all.write;
    line->read = all.read;
    line->other_read = all.other_read;
    return true;
}

/* Record the bytes of the granule at `start` that a stretch of `size` bytes from `first`
 * accesses. */
static inline bool note_granule(const struct global_view *v, struct plain_view plain,
                                uint64_t start, uint64_t first, uint64_t size, bool writes) {
    struct global_record *r = record_to_note(v, start - v->m->global_base);
    uint32_t bytes = bytes_in(start, first, (int)size);
    if (!v->m->num_rivals && note_plain(plain, r, bytes, writes))
        return true;
    if (writes ? overwrites(v, &r->write, bytes) : conflicts(v, &r->write, bytes))
        return false;
    if (stays_in_l2(v, &r->write, bytes) || (!writes && load_before(v, r, bytes)))
        return false;
    if (!writes) {
        note_read(v, r, bytes);
        return true;
    }
    if (conflicts(v, &r->read, bytes) || conflicts(v, &r->other_read, bytes))
        return false;
    note_write(v, r, bytes);
    return true;
}

/* Record the accesses of adjacent lanes, by whole lines or by granules. Returns false if there may
 * be a fault; what has been recorded by then may be recorded again, lane by lane. */
static inline bool note_stretch(const struct global_view *view, const struct operation *op,
                                const struct access *a, bool writes) {
    const struct global_view v = *view;
    const struct plain_view plain = plain_view(view);
    const struct machine *m = v.m;
    uint64_t first = a->address[0], size = (uint64_t)(a->adjacent * op->bytes), end = first + size;
    if (first < m->global_base || end > m->global_end)
        return false;
    for (uint64_t start = first & ~(uint64_t)(GRANULE - 1); start < end;) {
        bool whole = start % LINE == 0 && start >= first && start + LINE <= end && !m->num_rivals;
        struct line_record *line = m->global_lines + (start - m->global_base) / LINE;
        if (whole && note_line(plain, line, ALL_BYTES, writes)) {
            start += LINE;
        } else {
            if (!note_granule(&v, plain, start, first, size, writes))
                return false;
            start += GRANULE;
        }
    }
    return true;
}

/* Record the accesses of lanes that share a whole line, in order; returns the other lanes. A row of
 * a matrix's tile is one or a few lines. */
static inline uint64_t note_shared_lines(const struct global_view *v, const struct operation *op,
                                         const struct access *a, uint64_t lanes, bool writes) {
    const struct plain_view plain = plain_view(v);
    const uint64_t base = v->m->global_base, extent = v->m->global_end - base;
    const uint64_t *address = a->address, bytes = (uint64_t)op->bytes;
    if (bytes < 4 || LINE % bytes || a->partial || v->m->num_rivals || address[0] % LINE ||
        address[1] != address[0] + bytes)
        return lanes;
    uint64_t follows = 1;
    for (int lane = 1; lane < LANES; lane++)
        follows |= (uint64_t)(address[lane] == address[lane - 1] + bytes) << lane;
    for (int lane = 0, count = LINE / (int)bytes; lane < LANES; lane += count) {
        uint64_t mask = low_bits(count) << lane, place = address[lane] - base;
        bool whole = !(mask & ~lanes) && !(mask & ~(follows | 1ull << lane)) && place < extent &&
                     address[lane] % LINE == 0;
        if (whole && note_line(plain, v->m->global_lines + place / LINE, ALL_BYTES, writes))
            lanes &= ~mask;
    }
    return lanes;
}

/* Return the bytes of each granule that a whole wave accesses, if they are the same in all granules
 * of some lines (one field of adjacent structures, or every other element); else 0. */
static inline uint32_t bytes_of_stride(const struct operation *op, const struct access *a,
                                       uint64_t lanes) {
    const uint64_t *address = a->address, first = address[0], stride = address[1] - first;
    const uint64_t size = (uint64_t)op->bytes;
    if (lanes != ~0ull || a->partial || stride <= size || GRANULE % stride ||
        LANES * stride % LINE || first % stride + size > stride || (first - first % stride) % LINE)
        return 0;
    uint64_t different = 0;
    for (int lane = 0; lane < LANES; lane++)
        different |= address[lane] ^ (first + (uint64_t)lane * stride);
    uint32_t bytes = 0;
    for (uint64_t at = first % stride; at < GRANULE; at += stride)
        bytes |= (uint32_t)low_bits((int)size) << at;
    return different ? 0 : bytes;
}

/* Record the accesses of a whole wave to the same bytes of all granules of some lines; returns the
 * lanes that remain. */
static inline uint64_t note_strided_lines(const struct global_view *v, const struct operation *op,
                                          const struct access *a, uint64_t lanes, bool writes) {
    const uint32_t bytes = v->m->num_rivals ? 0 : bytes_of_stride(op, a, lanes);
    if (!bytes)
        return lanes;
    const struct plain_view plain = plain_view(v);
    const uint64_t stride = a->address[1] - a->address[0], count = LINE / stride;
    const uint64_t base = v->m->global_base, extent = v->m->global_end - base;
    for (uint64_t lane = 0; lane < LANES; lane += count) {
        uint64_t place = a->address[lane] - base;
        if (place < extent && note_line(plain, v->m->global_lines + place / LINE, bytes, writes))
            lanes &= ~(low_bits((int)count) << lane);
    }
    return lanes;
}

/* Consecutive lanes that access the same granule. */
struct granule_run {
    uint64_t number, lanes; /* the granule, counted from the shadow's base */
    uint32_t bytes;
};

/* Find the runs of lanes; runs that touch no granule, or two, are added to `careful`.
 * It is hard to predict which lanes share a granule, so there is no branch on it. */
static inline int granule_runs(const struct global_view *v, const struct access *a, uint64_t lanes,
                               uint64_t *careful, struct granule_run *runs) {
    const uint64_t base = v->m->global_base, extent = v->m->global_end - base;
    uint64_t latest = ~0ull, mine = 0, unusual = 0;
    uint32_t accessed = 0;
    int n = -1;
    for (uint64_t left = lanes; left; left &= left - 1) {
        int lane = first_lane(left), bytes = a->bytes[lane];
        uint64_t place = a->address[lane] - base, offset = a->address[lane] % GRANULE;
        if (place >= extent || !bytes || offset + (uint64_t)bytes > GRANULE) {
            unusual |= 1ull << lane;
            continue;
        }
        bool same = place / GRANULE == latest;
        latest = place / GRANULE;
        accessed = (accessed & (0 - (uint32_t)same)) | ((1u << bytes) - 1) << offset;
        mine = (mine & (0 - (uint64_t)same)) | (left & -left);
        n += !same;
        runs[n] = (struct granule_run){latest, mine, accessed};
    }
    *careful |= unusual;
    return n + 1;
}

/* Record the accesses of lanes that touch one granule each, and plainly; returns the other lanes.
 * Consecutive lanes often access the same granule, which is recorded once. */
static inline uint64_t note_plain_lanes(const struct global_view *v, const struct access *a,
                                        uint64_t lanes, bool writes) {
    const struct plain_view plain = plain_view(v);
    const uint64_t repeating = repeating_among(a, lanes, a->repeating);
    struct granule_run runs[LANES];
    uint64_t careful = 0;
    if (v->m->num_rivals)
        return lanes;
    const int count = granule_runs(v, a, lanes & ~repeating, &careful, runs);
    for (int k = 0; k < count; k++) {
        struct global_record *r = record_to_note(v, runs[k].number * GRANULE);
        if (!note_plain(plain, r, runs[k].bytes, writes))
            careful |= runs[k].lanes;
    }
    for (uint64_t more = careful; more; careful |= more) /* and those that repeat them */
        more = careful << 1 & repeating & ~careful;
    return careful;
}

#endif
