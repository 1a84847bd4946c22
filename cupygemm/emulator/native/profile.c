/* The cost of memory instructions, counted from their addresses: LDS bank conflicts and cache
 * lines.
 *
 * LDS serves the lanes in phases (units/lds/profile.py has the tables). Within a phase each bank
 * supplies one dword per cycle, and lanes that access the same dword share it, except in an atomic.
 * So a phase costs as many cycles as its busiest bank has distinct dwords, and at least 1. */
#include "lines.h"
#include "shadow.h"
#include "typed_lanes.h"

/* -- bank conflicts ---------------------------------------------------------------------------- */

enum { MAX_BANKS = 64 };

struct demand {
    int count[MAX_BANKS];
    uint32_t dwords[MAX_BANKS][LANES]; /* a lane accesses at most one dword of a bank */
};

static void want(struct demand *d, uint32_t dword, int banks, bool shared) {
    int bank = (int)(dword & (uint32_t)(banks - 1)); /* a power of two */
    for (int i = 0; shared && i < d->count[bank]; i++)
        if (d->dwords[bank][i] == dword)
            return;
    d->dwords[bank][d->count[bank]++] = dword;
}

static int64_t phase_cycles(struct demand *d, const uint32_t *address, uint64_t lanes, int bytes,
                            int banks, bool shared) {
    memset(d->count, 0, sizeof d->count);
    for (uint64_t left = lanes; left; left &= left - 1) {
        uint32_t first = address[first_lane(left)];
        for (uint32_t dword = first / 4; dword <= (first + (uint32_t)bytes - 1) / 4; dword++)
            want(d, dword, banks, shared);
    }
    int most = 1;
    for (int bank = 0; bank < banks; bank++)
        most = d->count[bank] > most ? d->count[bank] : most;
    return most;
}

/* The lanes of a FLAT access that are in LDS, and their addresses there. */
static uint64_t flat_lanes(struct machine *m, const struct operation *op, int64_t wave,
                           uint32_t *address) {
    struct access a;
    struct buffer b;
    resolve_addresses(m, op, wave, &a, &b);
    if (!a.exec)
        return 0;
    for (uint64_t left = a.to_lds; left; left &= left - 1)
        address[first_lane(left)] = (uint32_t)a.address[first_lane(left)];
    return a.to_lds;
}

/* An access whose cycles are known. */
struct counted {
    uint32_t address[LANES];
    uint64_t exec;
    int64_t cycles;
};

/* Whether lanes access the same dwords as before, shifted by some dwords: then the same lanes
 * conflict. In most kernels this is so from wave to wave. */
static bool is_moved(const struct counted *before, uint64_t exec, const uint32_t *address) {
    if (!exec || exec != before->exec)
        return false;
    int lane = first_lane(exec), last = LANES - 1 - __builtin_clzll(exec);
    uint32_t distance = address[lane] - before->address[lane], different = distance % 4, high = 0;
    if (address[last] - before->address[last] != distance) /* as in most that are not */
        return false;
    for (int half = 0; half < 2; half++) {
        uint32_t word = (uint32_t)(exec >> 32 * half);
        for (int k = 0; k < 32; k++) {
            uint32_t new = address[32 * half + k], old = before->address[32 * half + k];
            uint32_t chosen = 0 - (word >> k & 1);
            different |= ((new - old) ^ distance) & chosen;
            high |= (new | old) & chosen;
        }
    }
    return !different && !(high >> 31); /* far from where addresses wrap */
}

enum { MOST_COUNTED = 4 }; /* the waves of a workgroup have a few patterns in turns */

/* The latest accesses that differ. */
struct counted_accesses {
    struct counted of[MOST_COUNTED];
    int next;
};

/* Return the cycles of an access. */
static int64_t access_cycles(struct counted_accesses *known, const struct operation *op,
                             uint64_t exec, const uint32_t *address, const uint64_t *phases,
                             int64_t num_phases, int banks) {
    struct demand demand;
    for (int k = 0; k < MOST_COUNTED; k++)
        if (is_moved(&known->of[k], exec, address))
            return known->of[k].cycles;
    struct counted *c = &known->of[known->next];
    known->next = (known->next + 1) % MOST_COUNTED;
    c->exec = exec;
    memcpy(c->address, address, sizeof c->address);
    c->cycles = 0;
    for (int64_t i = 0; i < num_phases; i++)
        c->cycles +=
            phase_cycles(&demand, address, exec & phases[i], op->bytes, banks, op->kind != ATOMIC);
    return c->cycles;
}

/* Add to `totals` the wave-instructions, their cycles, and the cycles lost to conflicts; store
 * the cycles of each wave in `each` if it is wanted. Call it before the instruction executes. A
 * FLAT instruction counts if some lane is in LDS. */
void count_conflicts(struct machine *m, const struct operation *op, const int64_t *ids,
                     int64_t first, int64_t step, int64_t count, const uint64_t *phases,
                     int64_t num_phases, int64_t *totals, int32_t *each) {
    struct waves list = {ids, first, step, count};
    struct counted_accesses known = {.next = 0};
    uint32_t address[LANES] = {0};
    int banks = 1 << m->bank_shift;
    for (int64_t position = 0; position < count; position++) {
        int64_t wave = wave_at(list, position);
        bool flat = op->space == FLAT;
        uint64_t exec = flat ? flat_lanes(m, op, wave, address) : scalar64(m, EXEC, wave);
        int64_t cycles = 0;
        if (flat && !exec)
            continue;
        for (int access = 0; access <= op->pair; access++) {
            if (!flat)
                lds_addresses(m, op, wave, access ? op->offset2 : op->offset, address);
            cycles += access_cycles(&known, op, exec, address, phases, num_phases, banks);
        }
        totals[0] += 1;
        totals[1] += cycles;
        totals[2] += cycles - num_phases * (1 + op->pair);
        if (each)
            each[position] = (int32_t)cycles;
    }
}

/* -- cache lines ------------------------------------------------------------------------------- */

/* Add the instruction's accesses to global memory to `totals`: wave-instructions, lanes, bytes,
 * 64-byte lines, 128-byte lines. Call it before the instruction executes. */
void count_lines(struct machine *m, const struct operation *op, const int64_t *ids, int64_t first,
                 int64_t step, int64_t count, int64_t *totals) {
    struct waves list = {ids, first, step, count};
    struct operation typed;
    struct access a;
    struct buffer b;
    uint64_t lines[MAX_LINES];
    for (int64_t position = 0; position < count; position++) {
        int64_t wave = wave_at(list, position);
        if (resolve_addresses(m, with_format(m, op, wave, &typed), wave, &a, &b))
            continue;
        uint64_t lanes = 0;
        for (uint64_t left = a.exec & ~(a.to_lds | a.to_scratch); left; left &= left - 1) {
            int lane = first_lane(left);
            if (a.bytes[lane]) {
                lanes |= 1ull << lane;
                totals[2] += a.bytes[lane];
            }
        }
        totals[0] += 1;
        totals[1] += __builtin_popcountll(lanes);
        int64_t n = collect_lines(&a, lanes, 6, lines);
        totals[3] += n;
        for (int64_t i = 0; i < n; i++)
            totals[4] += !i || lines[i] >> 1 != lines[i - 1] >> 1;
    }
}
