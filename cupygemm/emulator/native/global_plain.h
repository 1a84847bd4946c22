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
        bool covers = !((uint64_t)(bytes & 0xFF) << 24 & ~write.where) &&
                      !((uint64_t)(bytes >> 8) << 56 & ~write.where);
        if (!of_launch(v, write) ||
            !keeps_store((uint32_t)(v.where >> 32), (uint32_t)(write.where >> 32),
                         (uint32_t)(write.when >> 32), v.settled, covers))
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

/* Note an access to a whole line whose record cannot matter to it; returns whether it is one. The
 * granules' records must be of earlier launches. */
static inline bool note_line(struct plain_view v, struct line_record *line, bool writes) {
    bool read = is_foreign(v, &line->read), other = is_foreign(v, &line->other_read);
    if (line->latest >= v.launch_start || is_foreign(v, &line->write) || (writes && (read | other)))
        return false;
    if (read && !writes)
        line->other_read = line->read;
    set_words(writes ? &line->write : &line->read, v.when, v.where | SITE_BYTES);
    return true;
}

/* Note what a stretch of `size` bytes from `first` accesses of the granule at `start`. */
static inline bool note_granule(const struct global_view *v, struct plain_view plain,
                                uint64_t start, uint64_t first, uint64_t size, bool writes) {
    struct global_record *r = record_to_note(v, start - v->m->global_base);
    uint32_t bytes = bytes_in(start, first, (int)size);
    if (!v->m->num_rivals && note_plain(plain, r, bytes, writes))
        return true;
    if (writes ? overwrites(v, &r->write, bytes) : conflicts(v, &r->write, bytes))
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

/* Note the accesses of adjacent lanes, by whole lines or by granules. Returns false where something
 * may be wrong; what has been noted by then may be noted again, lane by lane. */
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
        if (whole && note_line(plain, line, writes)) {
            start += LINE;
        } else {
            if (!note_granule(&v, plain, start, first, size, writes))
                return false;
            start += GRANULE;
        }
    }
    return true;
}

/* Note the accesses of lanes that share a whole line, in order; returns the others. A row of a
 * matrix's tile is one or a few lines. */
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
        if (whole && note_line(plain, v->m->global_lines + place / LINE, writes))
            lanes &= ~mask;
    }
    return lanes;
}

/* Note the accesses of lanes of which each touches one granule, and plainly; returns the others.
 * Lanes that follow one another often access the same granule, which is noted once. */
static inline uint64_t note_plain_lanes(const struct global_view *v, const struct access *a,
                                        uint64_t lanes, bool writes) {
    const struct plain_view plain = plain_view(v);
    const uint64_t base = v->m->global_base, extent = v->m->global_end - base;
    struct global_record *latest = NULL;
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
        if (v->m->global_shadow + place / GRANULE != latest) {
            if (same && !note_plain(plain, latest, accessed, writes))
                careful |= same;
            latest = record_to_note(v, place);
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
