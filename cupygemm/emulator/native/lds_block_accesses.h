/* The lanes' loads and stores of an LDS instruction in the records of blocks (lds_blocks.h). */
#ifndef CUPYGEMM_LDS_BLOCK_ACCESSES_H
#define CUPYGEMM_LDS_BLOCK_ACCESSES_H

#include "lds_blocks.h"
#include "lds_pending.h"
#include "lds_stretch.h"

enum { MOST_BLOCKS = 8 }; /* that the loads of an instruction may span */

/* Whether a write to all granules of a block is plainly correct. */
static inline bool is_block_writable(const struct lds_view *v, const struct lds_block *b) {
    const struct record read = {b->write, b->read}, unread = {b->write, 0};
    return (!b->readers || plainly_writable(v, &read)) &&
           (!~b->readers || plainly_writable(v, &unread));
}

/* The same for a block whose granules have their own records. */
static inline bool are_records_writable(const struct lds_view *v, const struct record *r) {
    uint64_t unknown = ~0ull;
    for (int kinds = 0; unknown && kinds < MOST_KINDS; kinds++) {
        const struct record found = r[first_lane(unknown)];
        if (!plainly_writable(v, &found))
            return false;
        unknown &= ~equal_records(r, TOGETHER, found);
    }
    return !unknown;
}

/* Record stores to whole blocks of granules; returns whether they are plainly correct. */
static inline bool write_blocks(const struct lds_view *v, uint32_t first, uint32_t count) {
    stop_deferring(v, first, first + count - 1, true);
    for (uint32_t at = first; at < first + count; at += TOGETHER) {
        struct lds_block *b = v->blocks + at / TOGETHER;
        if (b->write && b->first == at) {
            if (!is_block_writable(v, b))
                return false;
        } else {
            spread_granules(v, at, at + TOGETHER - 1);
            if (b->write || !are_records_writable(v, v->records + at))
                return false;
        }
        *b = (struct lds_block){v->new_write, 0, 0, at};
    }
    return true;
}

/* The same for a stretch of lanes, if it consists of whole blocks. */
static inline bool write_stretch_of_blocks(const struct lds_view *v, struct lane_run s,
                                           const uint32_t *address, int bytes) {
    const int shift = (int)v->m->shadow_shift;
    const uint32_t count = (uint32_t)(s.lanes * bytes >> shift);
    return !(count % TOGETHER || bytes & (int)low_bits(shift)) &&
           write_blocks(v, address[s.first] >> shift, count);
}

/* Record loads of some granules of a block; returns whether they are plainly correct and the
 * block's record can express the result. */
static inline bool read_block(const struct lds_view *v, struct lds_block *b, uint64_t granules) {
    if (!plainly_readable(v, b->write))
        return false;
    const uint64_t read = b->readers & granules ? read_word(v, b->read) : v->new_read;
    const uint64_t unread = granules & ~b->readers;
    if (b->readers & ~granules || (unread && read != v->new_read))
        return false;
    b->read = read;
    b->readers = granules;
    return true;
}

/* The granules of a block that lanes access, `each` per lane, and the lanes that access no
 * other. */
static inline uint64_t granules_of(const struct lds_block *b, uint64_t exec,
                                   const uint32_t *address, int shift, int each, uint64_t *lanes) {
    const uint64_t some = low_bits(each);
    const uint32_t first = (uint32_t)b->first, places = TOGETHER - (uint32_t)each;
    uint64_t granules = 0, found = 0;
    if (__builtin_popcountll(exec) < FEW_LANES) {
        for (uint64_t left = exec; left; left &= left - 1) {
            uint32_t place = (address[first_lane(left)] >> shift) - first;
            granules |= place <= places ? some << place % TOGETHER : 0;
            found |= place <= places ? left & -left : 0;
        }
    } else {
        for (int lane = 0; lane < LANES; lane++) {
            uint32_t place = (address[lane] >> shift) - first;
            bool here = (exec >> lane & 1) & (place <= places);
            granules |= (here ? some : 0) << place % TOGETHER;
            found |= (uint64_t)here << lane;
        }
    }
    *lanes |= found;
    return granules;
}

/* Record loads that are each from one block; returns whether they are plainly correct. */
static inline bool read_blocks(const struct lds_view *v, uint64_t exec, const uint32_t *address,
                               int bytes, struct extent e) {
    const int shift = (int)v->m->shadow_shift, each = bytes >> shift;
    const uint32_t first = e.low >> shift, last = (e.high + (uint32_t)bytes - 1) >> shift;
    uint64_t lanes = 0;
    if (!each || last - first > MOST_BLOCKS * TOGETHER)
        return false;
    for (uint32_t k = first_slot(first); k <= last_slot(last); k++)
        if (has_some(v->blocks + k, first, last)) {
            struct lds_block *b = v->blocks + k;
            uint64_t granules = granules_of(b, exec, address, shift, each, &lanes);
            if (granules && !read_block(v, b, granules))
                return false;
        }
    return lanes == exec;
}

/* Record plain loads or stores, if the records of blocks can express them; returns whether they do.
 * Otherwise the granules' own records are up to date. `stretch` may be empty. */
static inline bool note_blocks(const struct lds_view *v, const struct operation *op, uint64_t exec,
                               const uint32_t *address, struct lane_run stretch, int bytes) {
    const struct machine *m = v->m;
    if (!m->shadow || !exec)
        return false;
    if (op->kind == STORE && stretch.lanes && !v->reads && !(m->tainted && m->undefined) &&
        write_stretch_of_blocks(v, stretch, address, bytes))
        return true;
    const int last = stretch.first + stretch.lanes - 1;
    const struct extent e = stretch.lanes ? (struct extent){address[stretch.first], address[last]}
                                          : extent_of(exec, address);
    if (op->kind == LOAD && !v->reads &&
        (defer_load(v, exec, address, bytes, e) || read_blocks(v, exec, address, bytes, e)))
        return true;
    update_extent(v, e, bytes, op->kind != LOAD);
    return false;
}

/* Record two loads or stores of each lane, if the lanes' accesses are all contiguous in LDS and the
 * records of blocks can express them. What has been recorded by then may be recorded again. */
static inline bool note_pair(const struct lds_view *v, const struct operation *op, uint64_t exec,
                             const uint32_t *address) {
    const int bytes = 2 * op->bytes;
    if (op->kind == ATOMIC || op->offset2 != op->offset + op->bytes)
        return false;
    const struct lane_run stretch = find_stretch(exec, address, bytes);
    return stretch.lanes && note_blocks(v, op, exec, address, stretch, bytes);
}

#endif
