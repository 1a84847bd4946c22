/* Why a line is not in vL1D, and how evenly the lines of an instruction use its sets.
 *
 * A miss is compulsory if the CU has not requested the line before, a capacity miss if a fully
 * associative cache of the same size with LRU replacement would miss too, and otherwise a conflict
 * miss: lines that share a set evict each other while other sets have room (Hill and Smith,
 * "Evaluating Associativity in CPU Caches", 1989). */
#ifndef CUPYGEMM_MISSES_H
#define CUPYGEMM_MISSES_H

#include "lines.h"

struct miss_causes {
    uint64_t *recent; /* (CUs, lines): numbers of lines plus one, the most recently used first */
    uint64_t *seen;   /* (CUs, seen_words): a bit for each line of the modelled memory */
    uint64_t *seen_by_l2; /* (XCDs, seen_words): a bit for each 128-byte line */
    int64_t lines, seen_words;
};

/* The counts of one instruction, summed over waves. */
struct miss_counts {
    int64_t compulsory, capacity, conflict;
    int64_t l2_compulsory;
    int64_t sets_used, sets_possible; /* summed over the loads of waves, see `count_sets` */
    int64_t stride, votes;            /* bytes between the evenly spaced lines of a wave */
};

/* x % n, where n is nearly always a power of two, or larger than x. */
static inline uint64_t remainder_of(uint64_t x, int64_t n) {
    uint64_t mask = (uint64_t)n - 1;
    return !((uint64_t)n & mask) ? x & mask : x <= mask ? x : x % (uint64_t)n;
}

static inline bool first_time(uint64_t *seen, int64_t words, int64_t which, uint64_t line) {
    uint64_t *word = seen + which * words + (int64_t)remainder_of(line / 64, words);
    uint64_t bit = 1ull << line % 64;
    bool first = !(*word & bit);
    *word |= bit;
    return first;
}

/* The number of entries before the first that is empty or has this tag; at most `count`. Many are
 * compared together, which vectorises. */
static inline int64_t places_without(const uint64_t *recent, int64_t count, uint64_t tag) {
    enum { TOGETHER = 32 };
    int64_t place = 0;
    for (; place + TOGETHER <= count; place += TOGETHER) {
        uint64_t found = 0;
        for (int64_t k = place; k < place + TOGETHER; k++)
            found |= (uint64_t)((recent[k] == tag) | !recent[k]);
        if (found)
            break;
    }
    while (place < count && recent[place] != tag && recent[place])
        place++;
    return place;
}

/* Return whether a fully associative vL1D of the CU holds the line, and insert it. `first`: the CU
 * has not requested the line before. */
static inline bool held_by_full_cache(struct miss_causes *c, int64_t cu, uint64_t line,
                                      bool first) {
    uint64_t *recent = c->recent + cu * c->lines;
    int64_t place = first && recent[c->lines - 1] ? c->lines - 1 : 0;
    place += places_without(recent + place, c->lines - 1 - place, line + 1);
    bool held = recent[place] == line + 1;
    memmove(recent + 1, recent, (size_t)place * sizeof *recent);
    recent[0] = line + 1;
    return held;
}

static inline void count_cause(struct miss_causes *c, int64_t cu, uint64_t line, bool hit,
                               struct miss_counts *counts) {
    bool first = first_time(c->seen, c->seen_words, cu, line);
    bool held = held_by_full_cache(c, cu, line, first);
    if (hit)
        return;
    if (first)
        counts->compulsory += 1;
    else if (held)
        counts->conflict += 1;
    else
        counts->capacity += 1;
}

/* Count the sets that the lines of a wave's load fall into, and those that they could; and vote
 * for the distance of the lanes that begin a new line (Boyer and Moore's majority). */
static inline void count_sets(const struct access *a, uint64_t lanes, int64_t sets, int line_shift,
                              struct miss_counts *counts) {
    uint64_t used[64] = {0};
    uint64_t last = 0, lines = 0;
    int64_t distinct = 0;
    for (uint64_t left = lanes & ~repeating_lanes(a, lanes); left; left &= left - 1) {
        uint64_t address = a->address[first_lane(left)], line = address >> line_shift;
        if (lines && line == last >> line_shift)
            continue;
        int64_t distance = (int64_t)(address - last);
        if (lines && (distance >> line_shift || distance < 0)) {
            if (counts->stride == distance)
                counts->votes += 1;
            else if (counts->votes)
                counts->votes -= 1;
            else {
                counts->stride = distance;
                counts->votes = 1;
            }
        }
        uint64_t set = remainder_of(line, sets);
        distinct += !(used[set / 64 % 64] >> set % 64 & 1);
        used[set / 64 % 64] |= 1ull << set % 64;
        last = address;
        lines += 1;
    }
    counts->sets_used += distinct;
    counts->sets_possible += (int64_t)lines < sets ? (int64_t)lines : sets;
}

#endif
