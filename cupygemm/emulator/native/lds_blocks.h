/* Records of LDS that cover TOGETHER granules each.
 *
 *     a wave stores to a whole block ─► one record ─► loads of some granules ─► a mask of them
 *
 * Such a block's record replaces those of its granules, which are out of date, until an
 * access comes that it cannot express: then it is copied to them. A block has one write word, and
 * one read word for the granules that were read since; no granule is undefined. */
#ifndef CUPYGEMM_LDS_BLOCKS_H
#define CUPYGEMM_LDS_BLOCKS_H

#include "shadow.h"

enum { FEW_LANES = 8 }; /* which are faster to examine one by one */

/* Bring the granules' records of a block up to date; `records` are the workgroup's. */
__attribute__((noinline, unused)) static void spread_block(struct record *records,
                                                           struct lds_block *b) {
    struct record *r = records + b->first;
    for (int i = 0; i < TOGETHER; i++)
        r[i] = (struct record){b->write, b->readers >> i & 1 ? b->read : 0};
    b->write = 0;
}

/* The slots of the blocks that may contain some granules. */
static inline uint32_t first_slot(uint32_t granule) {
    return granule / TOGETHER - (granule >= TOGETHER);
}
static inline uint32_t last_slot(uint32_t granule) { return granule / TOGETHER; }

/* Whether a slot has a block with some of these granules. */
static inline bool has_some(const struct lds_block *b, uint32_t first, uint32_t last) {
    return b->write && b->first <= last && b->first + TOGETHER > first;
}

/* Spread the blocks of some granules, before the granules are examined one by one. */
static inline void spread_granules(const struct lds_view *v, uint32_t first, uint32_t last) {
    for (uint32_t k = first_slot(first); k <= last_slot(last); k++)
        if (has_some(v->blocks + k, first, last))
            spread_block(v->records, v->blocks + k);
}

/* The lowest and the highest address of some lanes, of which there is at least one. */
struct extent {
    uint32_t low, high;
};

static inline struct extent extent_of(uint64_t exec, const uint32_t *address) {
    struct extent e = {~0u, 0};
    if (__builtin_popcountll(exec) < FEW_LANES) {
        for (uint64_t left = exec; left; left &= left - 1) {
            uint32_t place = address[first_lane(left)];
            e.low = place < e.low ? place : e.low;
            e.high = place > e.high ? place : e.high;
        }
        return e;
    }
    for (int half = 0; half < 2; half++) {
        uint32_t word = (uint32_t)(exec >> 32 * half);
        for (int k = 0; k < 32; k++) {
            uint32_t off = (word >> k & 1) - 1, place = address[32 * half + k];
            e.low = (place | off) < e.low ? place | off : e.low;
            e.high = (place & ~off) > e.high ? place & ~off : e.high;
        }
    }
    return e;
}

static inline void spread_extent(const struct lds_view *v, struct extent e, int bytes) {
    spread_granules(v, e.low >> v->m->shadow_shift,
                    (e.high + (uint32_t)bytes - 1) >> v->m->shadow_shift);
}

#endif
