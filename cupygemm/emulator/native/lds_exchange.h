/* Lane exchanges: DS instructions that go through the LDS hardware without touching its memory. */
#ifndef CUPYGEMM_LDS_EXCHANGE_H
#define CUPYGEMM_LDS_EXCHANGE_H

#include "definedness.h"

/* A lane that is switched off supplies 0 (bpermute, swizzle) or nothing (permute), and receives
 * nothing. */
static inline void exchange_rows(const struct operation *op, uint64_t exec, const uint32_t *address,
                                 const uint32_t *data, uint32_t *result) {
    uint32_t moved[LANES] = {0}, source[LANES], given[LANES];
    for (int lane = 0; lane < LANES; lane++)
        source[lane] = op->kind == SWIZZLE ? op->lanes[lane] % LANES : address[lane] / 4 % LANES;
    if (op->kind == PERMUTE)
        for (uint64_t left = exec; left; left &= left - 1)
            moved[source[first_lane(left)]] = data[first_lane(left)];
    else if (exec == ~0ull) {
        for (int lane = 0; lane < LANES; lane++)
            moved[lane] = data[source[lane]];
    } else {
        for (int lane = 0; lane < LANES; lane++)
            given[lane] = data[lane] & (0 - (uint32_t)(exec >> lane & 1));
        for (int lane = 0; lane < LANES; lane++)
            moved[lane] = given[source[lane]];
    }
    if (exec == ~0ull)
        memcpy(result, moved, sizeof moved);
    else
        for (uint64_t left = exec; left; left &= left - 1)
            result[first_lane(left)] = moved[first_lane(left)];
}

/* HIP leaves the values of lanes that are switched off undefined; the hardware gives 0. */
static inline void note_inactive(struct machine *m, const struct operation *op, int64_t wave,
                                 uint64_t exec, const uint32_t *address, uint32_t pc) {
    uint64_t active = 0;
    for (int lane = 0; lane < LANES; lane++) {
        uint32_t source = op->kind == SWIZZLE ? op->lanes[lane] % LANES : address[lane] / 4 % LANES;
        active |= (exec >> source & 1) << lane;
    }
    const uint8_t all[4] = {0xFF, 0xFF, 0xFF, 0xFF};
    for (uint64_t left = exec & ~active; left; left &= left - 1)
        note_load(m, op, op->result, wave, first_lane(left), 4, all, 0,
                  origin_here(pc, FROM_LDS) | INACTIVE);
}

/* A lane is addressed by 4 times its number; the hardware ignores the other bits. */
static inline int check_lane_addresses(struct machine *m, uint64_t exec, const uint32_t *address) {
    uint64_t odd = 0;
    for (int lane = 0; lane < LANES; lane++)
        odd |= (uint64_t)((address[lane] & 3) != 0) << lane;
    if (!(odd &= exec))
        return OK;
    int lane = first_lane(odd), code = raise(m, LANE_ADDRESS, lane, address[lane], 4, false);
    if (code)
        m->fault.lanes = odd;
    return code;
}

static inline int exchange(struct machine *m, const struct operation *op, int64_t wave,
                           uint64_t exec, uint32_t pc) {
    uint32_t address[LANES] = {0};
    if (op->kind != SWIZZLE)
        lds_addresses(m, op, wave, op->offset, address);
    int code = check_lane_addresses(m, exec, address);
    if (code)
        return code;
    exchange_rows(op, exec, address, vector_row(m, op->data, wave),
                  vector_row(m, op->result, wave));
    if (m->tainted && m->undefined)
        exchange_rows(op, exec, address, undefined_row(m, op->data, wave),
                      undefined_row(m, op->result, wave));
    if (exec != ~0ull && op->kind != PERMUTE && m->undefined && !ignores(m, INACTIVE_LANE))
        note_inactive(m, op, wave, exec, address, pc);
    return OK;
}

#endif
