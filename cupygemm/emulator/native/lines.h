/* The distinct lines of memory that the lanes of an instruction touch. */
#ifndef CUPYGEMM_LINES_H
#define CUPYGEMM_LINES_H

#include "addresses.h"

/* No access is wider than a line, so each lane touches two at most. */
enum { MAX_LINES = 2 * LANES };

/* Collect the distinct lines of 2**shift bytes, 16 or more, in ascending order; return how many. */
static inline int64_t collect_lines(const struct access *a, uint64_t lanes, int shift,
                                    uint64_t lines[MAX_LINES]) {
    int n = 0;
    for (uint64_t left = lanes; left; left &= left - 1) {
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
