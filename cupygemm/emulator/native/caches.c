/* A model of the caches that vector memory goes through, fed with the addresses of each
 * instruction:
 *
 *   lanes ─► 32-byte sectors ─► lines ─► vL1D of the CU ─► L2 of the XCD ─► last-level cache ─► HBM
 *
 * profiling/caches.py has the geometry and says what is assumed and what is left out. Every
 * cache is set-associative with LRU replacement. vL1D is indexed by the low bits of the line's
 * number, the others by all bits, folded, so that power-of-two strides spread over their sets.
 * vL1D is write-through and does not allocate on a write. L2 and the last-level cache write
 * back: a write allocates without fetching, and each line knows which of its sectors are dirty. */
#include "misses.h"
#include "typed_lanes.h"

enum { SECTOR_SHIFT = 5, SECTORS = 4, MEMORY_LINE_SHIFT = 7, ALL_SECTORS = 15, FILLED = 16 };

struct cache {
    uint64_t *tags; /* (caches, sets, ways): number of the line plus first_tag; less is none */
    uint64_t *used; /* when */
    uint8_t *state; /* dirty sectors, and FILLED if the others are valid too */
    int64_t sets, ways, line_shift, fold; /* 2**fold sets if indexed by all bits, else 0 */
    uint64_t first_tag;                   /* above all tags of earlier launches */
};

struct cache_model {
    struct cache l1, l2, last;
    int64_t num_xcds, cus_per_xcd, has_last;
    const uint64_t *placement;   /* modelled address of each allocation */
    const int64_t *launch_order; /* number of each workgroup of the batch in the launch */
    struct miss_causes causes;
    uint64_t clock;
    int64_t fabric_written, hbm_read, hbm_written; /* bytes */
};

/* The traffic of one instruction, summed over waves. */
struct traffic {
    int64_t requests; /* vL1D lines */
    int64_t ideal;    /* lines that the same bytes fill when they are contiguous */
    int64_t reads, read_hits;
    int64_t l2_requests, l2_hits;
    int64_t fabric_read; /* bytes */
    struct miss_counts misses;
};

/* The lines that one wave's instruction requested, and the levels at which they were found. */
enum level { IN_L1, IN_L2, IN_LAST, IN_MEMORY, NUM_LEVELS };
struct outcome {
    int32_t bytes, lines[NUM_LEVELS];
};

/* Find a line, or replace the least recently used line of its set, whose number plus one and state
 * are stored in `evicted` and `evicted_state`. Returns the line's slot. */
static int64_t touch(struct cache_model *model, struct cache *c, int64_t which, uint64_t line,
                     bool allocate, bool *hit, uint64_t *evicted, uint8_t *evicted_state) {
    uint64_t index = line;
    for (uint64_t rest = c->fold ? line >> c->fold : 0; rest; rest >>= c->fold)
        index ^= rest;
    int64_t first = (which * c->sets + (int64_t)remainder_of(index, c->sets)) * c->ways;
    const uint64_t *tags = c->tags + first, *used = c->used + first, tag = line + c->first_tag;
    int64_t found = -1, oldest = 0;
    for (int64_t way = 0; way < c->ways; way++)
        found = tags[way] == tag ? way : found;
    *evicted = 0;
    if (found >= 0) {
        *hit = true;
        c->used[first + found] = ++model->clock;
        return first + found;
    }
    for (int64_t way = 1; way < c->ways; way++)
        oldest = used[way] < used[oldest] ? way : oldest;
    oldest += first;
    *hit = false;
    if (!allocate)
        return -1;
    *evicted = c->tags[oldest] < c->first_tag ? 0 : c->tags[oldest] - c->first_tag + 1;
    *evicted_state = c->state[oldest];
    c->tags[oldest] = tag;
    c->used[oldest] = ++model->clock;
    c->state[oldest] = 0;
    return oldest;
}

static int64_t dirty_bytes(uint8_t state) {
    return (int64_t)__builtin_popcount(state & ALL_SECTORS) << SECTOR_SHIFT;
}

/* Read a line from the levels below L2, or write sectors to them. Returns where it was found. */
static enum level beyond_l2(struct cache_model *model, uint64_t line, uint8_t dirty) {
    if (!model->has_last) {
        model->hbm_read += dirty ? 0 : 1 << MEMORY_LINE_SHIFT;
        model->hbm_written += dirty_bytes(dirty);
        return IN_MEMORY;
    }
    enum level level = IN_LAST;
    bool hit;
    uint64_t evicted;
    uint8_t state = 0;
    int64_t slot = touch(model, &model->last, 0, line, true, &hit, &evicted, &state);
    if (evicted)
        model->hbm_written += dirty_bytes(state);
    uint8_t *now = model->last.state + slot;
    if (!dirty && !(*now & FILLED) && (*now & ALL_SECTORS) != ALL_SECTORS) {
        model->hbm_read += 1 << MEMORY_LINE_SHIFT;
        *now |= FILLED;
        level = IN_MEMORY;
    }
    *now |= dirty;
    return level;
}

static enum level reach_l2(struct cache_model *model, int64_t xcd, uint64_t line, uint8_t sectors,
                           enum kind kind, struct traffic *t) {
    enum level level = IN_L2;
    bool hit;
    uint64_t evicted;
    uint8_t state = 0;
    int64_t slot = touch(model, &model->l2, xcd, line, true, &hit, &evicted, &state);
    if (evicted && state & ALL_SECTORS) {
        model->fabric_written += dirty_bytes(state);
        beyond_l2(model, evicted - 1, state & ALL_SECTORS);
    }
    uint8_t *now = model->l2.state + slot;
    bool valid =
        *now & FILLED || (*now & ALL_SECTORS) == ALL_SECTORS || (*now & sectors) == sectors;
    if (kind != STORE && !valid) {
        hit = false;
        t->fabric_read += 1 << MEMORY_LINE_SHIFT;
        level = beyond_l2(model, line, 0);
        *now |= FILLED;
    }
    if (kind == STORE || kind == ATOMIC)
        *now |= sectors;
    t->l2_requests += 1;
    t->l2_hits += hit;
    bool first = first_time(model->causes.seen_by_l2, model->causes.seen_words, xcd, line);
    t->misses.l2_compulsory += first && !hit;
    return level;
}

/* One line's share of an instruction: `sectors` of the 128-byte line that contains it. */
static enum level request(struct cache_model *model, int64_t xcd, int64_t cu, uint64_t line,
                          uint8_t sectors, enum kind kind, struct traffic *t) {
    bool reads = kind == LOAD || kind == LOAD_TO_LDS, hit = false;
    uint64_t evicted;
    uint8_t state;
    t->requests += 1;
    if (reads) {
        if (model->l1.line_shift < MEMORY_LINE_SHIFT) /* vL1D is filled with whole lines */
            sectors = (uint8_t)(3 << (line & 1) * 2);
        else
            sectors = ALL_SECTORS;
        touch(model, &model->l1, cu, line, true, &hit, &evicted, &state);
        t->reads += 1;
        t->read_hits += hit;
        count_cause(&model->causes, cu, line, hit, &t->misses);
    }
    if (hit)
        return IN_L1;
    line >>= MEMORY_LINE_SHIFT - model->l1.line_shift;
    return reach_l2(model, xcd, line, sectors, kind, t);
}

/* Place lanes that all access one allocation, the usual case; returns whether they do. */
static bool place_together(const struct machine *m, const struct cache_model *model,
                           struct access *a, uint64_t lanes) {
    uint64_t low = ~0ull, high = 0;
    for (int lane = 0; lane < LANES; lane++) { /* without a branch: it vectorises */
        bool counts = lanes >> lane & 1;
        uint64_t first = counts ? a->address[lane] : ~0ull, last = counts ? a->address[lane] : 0;
        low = first < low ? first : low;
        high = last > high ? last : high;
    }
    int64_t size = a->bytes[first_lane(lanes)];
    if (a->partial || !inside(m, low, high - low + (uint64_t)size))
        return false;
    int64_t range = find_range(m, low);
    uint64_t offset = model->placement[range] - m->starts[range];
    for (int lane = 0; lane < LANES; lane++)
        a->address[lane] += offset;
    return true;
}

/* Map each lane's address into the modelled memory; return the lanes for which this is possible. */
static uint64_t place(const struct machine *m, const struct cache_model *model, struct access *a,
                      int64_t *bytes) {
    uint64_t lanes = 0, global = a->exec & ~(a->to_lds | a->to_scratch);
    int64_t range = -1;
    if (global && place_together(m, model, a, global)) {
        *bytes += __builtin_popcountll(global) * a->bytes[first_lane(global)];
        return global;
    }
    for (uint64_t left = global; left; left &= left - 1) {
        int lane = first_lane(left);
        uint64_t first = a->address[lane], end = first + a->bytes[lane];
        if (!a->bytes[lane])
            continue;
        if (range < 0 || first < m->starts[range] || end > m->ends[range]) {
            range = find_range(m, first);
            if (!inside(m, first, a->bytes[lane])) {
                range = -1;
                continue;
            }
        }
        a->address[lane] = model->placement[range] + a->address[lane] - m->starts[range];
        lanes |= 1ull << lane;
        *bytes += a->bytes[lane];
    }
    return lanes;
}

/* Send an instruction of some waves through the caches. Adds to `t`, and to the outcome of `each`
 * wave if that is wanted. Call it before the instruction executes. */
void simulate_caches(struct machine *m, const struct operation *op, const int64_t *ids,
                     int64_t first, int64_t step, int64_t count, struct cache_model *model,
                     struct traffic *t, struct outcome *each) {
    struct waves list = {ids, first, step, count};
    struct operation typed;
    struct access a;
    struct buffer b;
    uint64_t sectors[MAX_LINES];
    int line_shift = (int)model->l1.line_shift - SECTOR_SHIFT;
    for (int64_t position = 0; position < count; position++) {
        int64_t wave = wave_at(list, position), bytes = 0, requests = t->requests;
        if (resolve_addresses(m, with_format(m, op, wave, &typed), wave, &a, &b) || !a.exec)
            continue;
        uint64_t lanes = place(m, model, &a, &bytes);
        int64_t n = collect_lines(&a, lanes, SECTOR_SHIFT, sectors);
        int64_t workgroup = model->launch_order[m->workgroup[wave]];
        int64_t xcd = workgroup % model->num_xcds;
        int64_t cu = xcd * model->cus_per_xcd + workgroup / model->num_xcds % model->cus_per_xcd;
        if (op->kind == LOAD || op->kind == LOAD_TO_LDS)
            count_sets(&a, lanes, model->l1.sets, (int)model->l1.line_shift, &t->misses);
        for (int64_t i = 0; i < n;) {
            uint64_t line = sectors[i] >> line_shift;
            uint8_t mask = 0;
            for (; i < n && sectors[i] >> line_shift == line; i++)
                mask |= (uint8_t)(1 << sectors[i] % SECTORS);
            enum level level = request(model, xcd, cu, line, mask, (enum kind)op->kind, t);
            if (each)
                each[position].lines[level] += 1;
        }
        if (each)
            each[position].bytes += (int32_t)bytes;
        requests = t->requests - requests;
        int64_t filled = (bytes + (1 << model->l1.line_shift) - 1) >> model->l1.line_shift;
        t->ideal += filled < requests ? filled : requests;
    }
}

/* Whether slots slot to slot + 7 of a cache are clean. */
static bool all_clean(const struct cache *c, int64_t slot, int64_t slots) {
    uint64_t states;
    if (slot % 8 || slot + 8 > slots)
        return false;
    memcpy(&states, c->state + slot, sizeof states);
    return !(states & ALL_SECTORS * 0x0101010101010101ull);
}

/* Write back dirty lines: those of L2 at the end of a kernel, and those of the cache below it at
 * the very end. */
void write_back_caches(struct cache_model *model, int64_t l2_slots, int64_t last_slots) {
    for (int64_t slot = 0; slot < l2_slots; slot++) {
        if (all_clean(&model->l2, slot, l2_slots))
            slot += 7;
        else if (model->l2.state[slot] & ALL_SECTORS) {
            model->fabric_written += dirty_bytes(model->l2.state[slot]);
            beyond_l2(model, model->l2.tags[slot] - model->l2.first_tag,
                      model->l2.state[slot] & ALL_SECTORS);
            model->l2.state[slot] &= (uint8_t)~ALL_SECTORS;
        }
    }
    for (int64_t slot = 0; slot < last_slots; slot++) {
        if (all_clean(&model->last, slot, last_slots)) {
            slot += 7;
            continue;
        }
        model->hbm_written += dirty_bytes(model->last.state[slot]);
        model->last.state[slot] &= (uint8_t)~ALL_SECTORS;
    }
}
