/* Lanes of a wave that store different values to the same bytes in one instruction.
 *
 * It is undefined which value remains. Here, the lanes store one after another. So memory is read
 * back after the store, and a lane that does not find its own value has been overwritten by
 * another. Lanes that store the same value find it, and so do lanes whose bytes no other stores. */
#ifndef CUPYGEMM_LANE_RACES_H
#define CUPYGEMM_LANE_RACES_H

#include "lanes.h"

/* One store of each lane. `count` is NULL, or the number of stored dwords of each lane. */
struct stored {
    const uint32_t *row;
    size_t pitch;
    uint64_t exec;
    uint8_t *const *pointer;
    const uint8_t *count;
};

/* Whether a dword of a lane is not in memory; for LDS at `base`. */
static inline bool lost_dwords(const uint8_t *base, const uint32_t *address, const uint32_t *row,
                               uint64_t exec) {
    uint32_t lost = 0;
    if (exec == ~0ull) {
        for (int lane = 0; lane < LANES; lane++) {
            uint32_t found;
            memcpy(&found, base + address[lane], sizeof found);
            lost |= found ^ row[lane];
        }
        return lost != 0;
    }
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        uint32_t found;
        memcpy(&found, base + address[lane], sizeof found);
        lost |= found ^ row[lane];
    }
    return lost != 0;
}

static inline bool lost_quads(const struct stored *s) {
    quad lost = {0};
    for (int lane = 0; lane < LANES; lane += 4) {
        quad q[4];
        for (size_t d = 0; d < 4; d++)
            q[d] = quad_at(s->row + d * s->pitch + lane);
        transpose_quads(q);
        for (int i = 0; i < 4; i++)
            lost |= quad_at(s->pointer[lane + i]) ^ q[i];
    }
    return (lost[0] | lost[1] | lost[2] | lost[3]) != 0;
}

static inline uint64_t lost_lanes_of(const struct stored *s, int dwords) {
    uint64_t lost = 0;
    if (s->exec == ~0ull && !s->count) {
        uint32_t differs = 0;
        for (int lane = 0; lane < LANES; lane++) {
            uint32_t found[4];
            memcpy(found, s->pointer[lane], 4 * (size_t)dwords);
            for (int d = 0; d < dwords; d++)
                differs |= found[d] ^ s->row[(size_t)d * s->pitch + (size_t)lane];
        }
        if (!differs)
            return 0;
    }
    for (uint64_t left = s->exec; left; left &= left - 1) {
        int lane = first_lane(left), n = s->count ? s->count[lane] : dwords;
        uint32_t found[4] = {0}, differs = 0;
        memcpy(found, s->pointer[lane], 4 * (size_t)n);
        for (int d = 0; d < n; d++)
            differs |= found[d] ^ s->row[(size_t)d * s->pitch + (size_t)lane];
        lost |= (uint64_t)(differs != 0) << lane;
    }
    return lost;
}

/* The lanes whose value is not in memory. Each width is its own loop. */
static inline uint64_t lost_lanes(const struct operation *op, const struct stored *s) {
    if (op->format == DWORDS && !s->count) {
        switch (op->dwords) {
        case 1: return lost_lanes_of(s, 1);
        case 2: return lost_lanes_of(s, 2);
        case 4:
            if (s->exec == ~0ull && !lost_quads(s))
                return 0;
            return lost_lanes_of(s, 4);
        default: break;
        }
    }
    if (op->format == DWORDS)
        return lost_lanes_of(s, op->dwords);
    if (op->format == TYPED)
        return lost_elements(op, s->row, s->pitch, s->exec, s->pointer, s->count);
    int shift = op->format == U8_HIGH || op->format == U16_HIGH ? 16 : 0;
    uint64_t lost = 0;
    for (uint64_t left = s->exec; left; left &= left - 1) {
        int lane = first_lane(left);
        uint32_t value = s->row[lane] >> shift;
        if (!s->count || s->count[lane])
            lost |= (uint64_t)(memcmp(s->pointer[lane], &value, (size_t)op->bytes) != 0) << lane;
    }
    return lost;
}

/* The last lane other than `lane` that stores to a byte of `place`, -1 if there is none. */
static inline int overwriting_lane(const struct operation *op, const struct stored *s,
                                   const uint8_t *place, int lane) {
    int found = -1;
    for (uint64_t left = s->exec & ~(1ull << lane); left; left &= left - 1) {
        int other = first_lane(left);
        int64_t distance = s->pointer[other] - place;
        if ((!s->count || s->count[other]) && distance < op->bytes && distance > -op->bytes)
            found = other;
    }
    return found;
}

/* What the lanes did, which units/memory/lane_races.py reads from a fault's `other_seq`. */
enum lane_race_kind { FIRST_STORE = 0, SECOND_STORE = 1, LOST_UPDATE = 2 };

/* Report a race between two lanes at `address`; returns its code, or OK if the check is off there.
 * `lost` are the lanes whose values are not in memory, and `data` is the register of the values. */
static inline int raise_lane_race(struct machine *m, const struct operation *op, int lane,
                                  int other, uint64_t address, uint64_t lost,
                                  enum lane_race_kind kind, int64_t data) {
    if (!raise(m, LANE_RACE, lane, address, op->bytes, true))
        return OK;
    m->fault.lanes = lost;
    m->fault.other = other;
    m->fault.other_seq = kind;
    m->fault.reg = (int32_t)data;
    return LANE_RACE;
}

/* Describe the race of the first lane of `lost`, and return its code. `later` is the instruction's
 * second store, or NULL. */
__attribute__((noinline, unused)) static int
lane_race(struct machine *m, const struct operation *op, const struct stored *s,
          const struct stored *later, uint64_t lost, uint64_t address, int64_t data) {
    int lane = first_lane(lost), other = -1;
    if (later)
        other = overwriting_lane(op, later, s->pointer[lane], lane);
    bool second = other >= 0;
    if (!second)
        other = overwriting_lane(op, s, s->pointer[lane], lane);
    if (other < 0)
        return OK;
    enum lane_race_kind kind = second ? SECOND_STORE : FIRST_STORE;
    return raise_lane_race(m, op, lane, other, address, lost, kind, data);
}

enum { SLOTS = 128 };

/* Before a store, look for lanes that add to a value that they have read from one address: all but
 * one of the additions are lost, though the sums may be equal. If all lanes share one address, the
 * wave may intend a single addition. */
__attribute__((noinline, unused)) static int find_lost_update(struct machine *m,
                                                              const struct operation *op,
                                                              const struct stored *s,
                                                              int64_t data) {
    int8_t slots[SLOTS];
    const uint8_t *first = s->exec ? s->pointer[first_lane(s->exec)] : NULL;
    uint64_t lost = 0, apart = 0;
    int lane = -1, other = -1;
    memset(slots, -1, sizeof slots);
    for (uint64_t left = s->exec; left; left &= left - 1) {
        int each = first_lane(left);
        const uint8_t *place = s->pointer[each];
        apart |= place != first;
        if (!memcmp(place, &s->row[each], (size_t)op->bytes))
            continue;
        uint32_t slot = (uint32_t)((uintptr_t)place / 4) * 0x9E3779B1u >> 25;
        while (slots[slot] >= 0 && s->pointer[slots[slot]] != place)
            slot = (slot + 1) % SLOTS;
        if (slots[slot] < 0) {
            slots[slot] = (int8_t)each;
            continue;
        }
        if (lane < 0)
            lane = slots[slot], other = each;
        lost |= 1ull << slots[slot] | 1ull << each;
    }
    if (!lost || !apart)
        return OK;
    return raise_lane_race(m, op, lane, other, (uintptr_t)s->pointer[lane], lost, LOST_UPDATE,
                           data);
}

#endif
