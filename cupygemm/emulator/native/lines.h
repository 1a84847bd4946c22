/* The distinct lines of memory that the lanes of an instruction touch. */
#ifndef CUPYGEMM_LINES_H
#define CUPYGEMM_LINES_H

#include "addresses.h"

/* No access is wider than a line, so each lane touches at most two. */
enum { MAX_LINES = 2 * LANES };

/* The number of active lanes, if they are the first ones and access equally many bytes, one after
 * another; else 0. */
static inline int lanes_in_order(const struct access *a, uint64_t lanes) {
    int count = __builtin_popcountll(lanes);
    if (!count || lanes != low_bits(count))
        return 0;
    uint64_t different = 0;
    for (int lane = 0; lane < count; lane++)
        different |= (a->address[lane] ^ (a->address[0] + (uint64_t)(lane * a->bytes[0]))) |
                     (uint64_t)(a->bytes[lane] ^ a->bytes[0]);
    return different ? 0 : count;
}

/* Collect the distinct lines of 2**shift bytes, 16 or more, in ascending order; return their
 * number. */
static inline int64_t collect_lines(const struct access *a, uint64_t lanes, int shift,
                                    uint64_t lines[MAX_LINES]) {
    int n = 0, in_order = lanes_in_order(a, lanes);
    if (in_order) {
        uint64_t end = a->address[0] + (uint64_t)(in_order * a->bytes[0]);
        for (uint64_t line = a->address[0] >> shift; line << shift < end; line++)
            lines[n++] = line;
        return n;
    }
    for (uint64_t left = lanes & ~repeating_lanes(a, lanes); left; left &= left - 1) {
        int lane = first_lane(left);
        uint64_t last = (a->address[lane] + a->bytes[lane] - 1) >> shift;
        for (uint64_t line = a->address[lane] >> shift; line <= last && n < MAX_LINES; line++) {
            if (n && lines[n - 1] == line)
                continue;
            if (!n || lines[n - 1] < line) { /* as in nearly all accesses */
                lines[n++] = line;
                continue;
            }
            int place = n; /* insert in order */
            while (place > 0 && lines[place - 1] > line)
                place--;
            if (place > 0 && lines[place - 1] == line)
                continue;
            memmove(lines + place + 1, lines + place, (size_t)(n - place) * sizeof *lines);
            lines[place] = line;
            n++;
        }
    }
    return n;
}

#endif
