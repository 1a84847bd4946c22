/* LDS accesses whose active lanes are contiguous, in the shadow memory.
 *
 * The records of such a stretch are nearly always of few kinds: one or two instructions wrote
 * there, and other waves have since read in some lanes. So equal records are checked
 * once, and updated together. All others are left to lds_shadow.h. */
#ifndef CUPYGEMM_LDS_STRETCH_H
#define CUPYGEMM_LDS_STRETCH_H

#include "lds_blocks.h"
#include "shadow.h"

/* The active lanes, if they are consecutive and their addresses contiguous; else 0 lanes. */
struct lane_run {
    int first, lanes;
};

static inline struct lane_run find_stretch(uint64_t exec, const uint32_t *address, int bytes) {
    const struct lane_run none = {0, 0};
    int lanes = __builtin_popcountll(exec);
    if (lanes < FEW_LANES)
        return none;
    int first = first_lane(exec);
    if (exec >> first != low_bits(lanes))
        return none;
    uint32_t size = (uint32_t)bytes, base = address[first] - (uint32_t)first * size, different = 0;
    if (address[first + lanes - 1] != base + (uint32_t)(first + lanes - 1) * size)
        return none;
    for (int half = 0; half < 2; half++) {
        uint32_t word = (uint32_t)(exec >> 32 * half);
        for (int k = 0; k < 32; k++) {
            uint32_t expected = base + (uint32_t)(32 * half + k) * size;
            different |= (address[32 * half + k] ^ expected) & (0 - (word >> k & 1));
        }
    }
    return different ? none : (struct lane_run){first, lanes};
}

/* Whether every lane's address is in LDS and on a border of its records; without a stretch, this
 * includes inactive lanes. For a stretch, the first and the last address suffice. */
static inline bool are_plain(const struct machine *m, const struct operation *op,
                             const uint32_t *address, struct lane_run s) {
    uint32_t first = address[s.first], last = address[s.lanes ? s.first + s.lanes - 1 : LANES - 1];
    uint32_t bits = (uint32_t)op->bytes | first, high = first > last ? first : last;
    for (int lane = 0; lane < LANES && !s.lanes; lane++) {
        bits |= address[lane];
        high = address[lane] > high ? address[lane] : high;
    }
    bool aligned = !m->shadow || !(bits & (uint32_t)low_bits((int)m->shadow_shift));
    return aligned && (int64_t)high + op->bytes <= m->lds_bytes;
}

enum { MOST_KINDS = 4 };

/* Which of some records, at most TOGETHER, are equal to one. */
__attribute__((always_inline)) static inline uint64_t equal_among(const struct record *r, int count,
                                                                  struct record to) {
    uint64_t equal = 0;
    for (int i = 0; i < count; i++)
        equal |= (uint64_t)!((r[i].write ^ to.write) | (r[i].read ^ to.read)) << i;
    return equal;
}

static inline uint64_t equal_records(const struct record *r, int count, struct record to) {
    return count == TOGETHER ? equal_among(r, TOGETHER, to) : equal_among(r, count, to);
}

static inline void set_records(struct record *r, int count, uint64_t which, struct record to) {
    if (which == low_bits(count))
        for (int i = 0; i < count; i++)
            r[i] = to;
    else
        for (uint64_t left = which; left;) {
            int first = first_lane(left);
            uint64_t after = ~(left >> first);
            int end = after ? first + first_lane(after) : TOGETHER;
            for (int i = first; i < end; i++)
                r[i] = to;
            left &= ~low_bits(end);
        }
}

/* Record the accesses of a stretch; returns the lanes that remain to be checked. `writes` is a
 * constant at each call. */
__attribute__((always_inline)) static inline uint64_t note_stretch(const struct lds_view *v,
                                                                   struct lane_run s,
                                                                   const uint32_t *address,
                                                                   int bytes, bool writes) {
    const int shift = (int)v->m->shadow_shift, each = bytes >> shift; /* records of a lane */
    const uint64_t active = low_bits(s.lanes) << s.first;
    if (bytes & ((1 << shift) - 1))
        return active;
    struct record *r = v->records + (address[s.first] >> shift);
    uint64_t remain = 0;
    for (int done = 0; done < s.lanes * each; done += TOGETHER, r += TOGETHER) {
        int count = s.lanes * each - done < TOGETHER ? s.lanes * each - done : TOGETHER;
        uint64_t unknown = low_bits(count), careful = 0;
        for (int kinds = 0; unknown && kinds < MOST_KINDS; kinds++) {
            struct record found = r[first_lane(unknown)];
            uint64_t equal = equal_records(r, count, found) & unknown;
            unknown &= ~equal;
            if (writes ? !plainly_writable(v, &found) : !plainly_readable(v, found.write))
                careful |= equal;
            else if (!writes)
                set_records(r, count, equal,
                            (struct record){found.write, read_word(v, found.read)});
        }
        if (writes) /* all kinds leave the same record */
            set_records(r, count, low_bits(count) & ~(unknown | careful),
                        (struct record){v->new_write, 0});
        for (uint64_t left = unknown | careful; left; left &= left - 1)
            remain |= 1ull << (s.first + (done + first_lane(left)) / each);
    }
    return remain;
}

static uint64_t read_stretch(const struct lds_view *v, struct lane_run s, const uint32_t *address,
                             int bytes) {
    return note_stretch(v, s, address, bytes, false);
}

static uint64_t write_stretch(const struct lds_view *v, struct lane_run s, const uint32_t *address,
                              int bytes) {
    return note_stretch(v, s, address, bytes, true);
}

#endif
