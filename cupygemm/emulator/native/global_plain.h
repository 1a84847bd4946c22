/* Plain accesses to global memory: those whose records cannot matter to them, nearly all there are.
 * The first other one is left to `global_shadow.h`. */
#ifndef CUPYGEMM_GLOBAL_PLAIN_H
#define CUPYGEMM_GLOBAL_PLAIN_H

#include "global_order.h"

/* A site as two words, which are loaded and stored whole: neighbouring lanes share records. */
struct words {
    uint64_t when, where; /* time and seq; wave and pc, with the bytes */
};

static const uint64_t SITE_BYTES = 0xFF000000FF000000;

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

/* What a plain access needs of the machine, which stores to records cannot change. */
struct plain_view {
    uint64_t when, where;
    uint32_t own, launch_start;
    int32_t settled;
};

static inline struct plain_view plain_view(const struct global_view *v) {
    struct words w = words_of(&v->site);
    return (struct plain_view){w.when, w.where, v->own, (uint32_t)v->m->launch_start, v->settled};
}

static inline bool of_launch(struct plain_view v, struct words w) {
    return (uint32_t)w.when >= v.launch_start;
}

static inline bool of_wave(struct plain_view v, struct words w) {
    return ((uint32_t)w.where & WAVE_BITS) == v.own;
}

/* The bytes that an access takes over from the wave's own one before: see note_site. */
static inline uint64_t bytes_before(struct plain_view v, struct words w) {
    bool alike = !((v.where ^ w.where) >> 32 & COHERENT) && (int32_t)(w.when >> 32) - v.settled > 0;
    return of_launch(v, w) && alike ? w.where & SITE_BYTES : 0;
}

/* Note an access whose record cannot matter to it, being of earlier launches or the wave's own;
 * returns whether it is. No launch of another stream may be unordered. */
static inline bool note_plain(struct plain_view v, struct global_record *r, uint32_t bytes,
                              bool writes) {
    const struct words write = words_of(&r->write), read = words_of(&r->read);
    if (of_launch(v, write) && !of_wave(v, write))
        return false;
    bool foreign = of_launch(v, read) && !of_wave(v, read);
    uint64_t where = v.where | (uint64_t)(bytes & 0xFF) << 24 | (uint64_t)(bytes >> 8) << 56;
    if (writes) {
        const struct words other = words_of(&r->other_read);
        if (foreign || (of_launch(v, other) && !of_wave(v, other)))
            return false;
        set_words(&r->write, v.when, where | bytes_before(v, write));
        return true;
    }
    if (foreign)
        set_words(&r->other_read, read.when, read.where);
    set_words(&r->read, v.when, where | (of_wave(v, read) ? bytes_before(v, read) : 0));
    return true;
}

static inline bool is_foreign(struct plain_view v, const struct site *s) {
    return (s->time >= v.launch_start) & ((s->wave & WAVE_BITS) != v.own);
}

/* Note an access to all bytes of `n` granules, of which no other wave has accessed one in this
 * launch, as in most kernels; returns whether that is so. */
static inline bool note_whole(struct plain_view v, struct global_record *r, uint64_t n,
                              bool writes) {
    bool foreign = false;
    for (uint64_t i = 0; i < n; i++)
        foreign |= is_foreign(v, &r[i].write) | is_foreign(v, &r[i].read) |
                   (writes & is_foreign(v, &r[i].other_read));
    if (foreign)
        return false;
    for (uint64_t i = 0; i < n; i++)
        set_words(writes ? &r[i].write : &r[i].read, v.when, v.where | SITE_BYTES);
    return true;
}

/* Note the accesses of adjacent lanes, granule by granule. Returns false where something may be
 * wrong; what has been noted by then may be noted again, lane by lane. */
static inline bool note_stretch(const struct global_view *view, const struct operation *op,
                                const struct access *a, bool writes) {
    const struct global_view v = *view;
    const struct plain_view plain = plain_view(view);
    const struct machine *m = v.m;
    uint64_t first = a->address[0], size = (uint64_t)(a->adjacent * op->bytes);
    if (first < m->global_base || first + size > m->global_end)
        return false;
    uint64_t start = first & ~(uint64_t)(GRANULE - 1);
    struct global_record *r = m->global_shadow + (start - m->global_base) / GRANULE;
    bool whole = first == start && size % GRANULE == 0 && !m->num_rivals;
    if (whole && note_whole(plain, r, size / GRANULE, writes))
        return true;
    for (; start < first + size; start += GRANULE, r++) {
        uint32_t bytes = bytes_in(start, first, (int)size);
        if (!m->num_rivals && note_plain(plain, r, bytes, writes))
            continue;
        if (conflicts(&v, &r->write, bytes))
            return false;
        if (!writes) {
            note_read(&v, r, bytes);
            continue;
        }
        if (conflicts(&v, &r->read, bytes) || conflicts(&v, &r->other_read, bytes))
            return false;
        note_site(&v, &r->write, bytes);
    }
    return true;
}

/* Note the accesses of lanes of which each touches one granule, and plainly; returns the others.
 * Lanes that follow one another often access the same granule, which is noted once. */
static inline uint64_t note_plain_lanes(const struct global_view *v, const struct access *a,
                                        uint64_t lanes, bool writes) {
    const struct plain_view plain = plain_view(v);
    const uint64_t base = v->m->global_base, extent = v->m->global_end - base;
    struct global_record *records = v->m->global_shadow, *latest = NULL;
    uint64_t careful = 0, same = 0; /* `same`: the lanes that access the latest granule */
    uint32_t accessed = 0;
    if (v->m->num_rivals)
        return lanes;
    uint64_t repeating = repeating_lanes(a, lanes);
    for (uint64_t left = lanes & ~repeating; left; left &= left - 1) {
        int lane = first_lane(left), bytes = a->bytes[lane];
        uint64_t place = a->address[lane] - base, offset = a->address[lane] % GRANULE;
        if (place >= extent || !bytes || offset + (uint64_t)bytes > GRANULE) {
            careful |= 1ull << lane;
            continue;
        }
        struct global_record *r = records + place / GRANULE;
        if (r != latest) {
            if (same && !note_plain(plain, latest, accessed, writes))
                careful |= same;
            latest = r;
            accessed = 0;
            same = 0;
        }
        accessed |= ((1u << bytes) - 1) << offset;
        same |= 1ull << lane;
    }
    if (same && !note_plain(plain, latest, accessed, writes))
        careful |= same;
    for (uint64_t more = careful; more; careful |= more) /* and those that repeat them */
        more = careful << 1 & repeating & ~careful;
    return careful;
}

#endif
