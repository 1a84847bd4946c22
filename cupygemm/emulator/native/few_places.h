/* Loads of a dword by a whole wave from a few places of global memory, as in a search in which many
 * lanes read the same element, or with an index that is the same in many lanes. */
#ifndef CUPYGEMM_FEW_PLACES_H
#define CUPYGEMM_FEW_PLACES_H

#include "definedness.h"
#include "global_shadow.h"

enum { FEW_PLACES = 8 };

typedef uint32_t sixteen __attribute__((vector_size(64)));
static const sixteen LANE_NUMBERS = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* Whether all lanes load a dword from a few places in one allocation, with consecutive lanes at
 * each place. */
static inline bool loads_few_places(const struct machine *m, const struct operation *op,
                                    const struct access *a) {
    const uint64_t distinct = ~a->repeating;
    uint64_t low = ~0ull, high = 0;
    if (op->kind != LOAD || op->format != DWORDS || op->dwords != 1 || ~a->exec || a->partial ||
        a->to_lds | a->to_scratch || m->strict_alignment ||
        __builtin_popcountll(distinct) > FEW_PLACES)
        return false;
    for (uint64_t left = distinct; left; left &= left - 1) {
        uint64_t place = a->address[first_lane(left)];
        low = place < low ? place : low;
        high = place > high ? place : high;
    }
    return inside(m, low, high - low + 4);
}

/* Load each place once, and spread the value to its lanes. */
static inline int load_few_places(struct machine *m, const struct operation *op, int64_t wave,
                                  struct access *a, uint32_t pc) {
    int code = note_global(m, op, wave, a, pc);
    if (code)
        return code;
    sixteen row[LANES / 16] = {{0}};
    uint32_t poisoned = 0;
    for (uint64_t left = ~a->repeating; left; left &= left - 1) {
        uint32_t first = (uint32_t)first_lane(left), data;
        memcpy(&data, (const void *)(uintptr_t)a->address[first], sizeof data);
        poisoned |= poison_in(data);
        for (uint32_t k = 0; k < LANES / 16; k++) { /* each place overwrites the lanes after it */
            const sixteen mine = (sixteen)(LANE_NUMBERS + 16 * k >= first);
            row[k] = (mine & data) | (~mine & row[k]);
        }
    }
    memcpy(vector_row(m, op->result, wave), row, sizeof row);
    if (poisoned) {
        for (int lane = 0; lane < LANES; lane++)
            a->pointer[lane] = (uint8_t *)(uintptr_t)a->address[lane];
        note_undefined(m, op, wave, a, poisoned_lanes(m, op, wave), pc);
    }
    return OK;
}

#endif
