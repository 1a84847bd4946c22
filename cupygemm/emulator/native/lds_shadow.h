/* The lanes' reads, writes and atomics of an LDS instruction in the shadow memory.
 *
 * They find the races and the undefined bits of all lanes of a wave; shadow.h and definedness.h do
 * this for one access. */
#ifndef CUPYGEMM_LDS_SHADOW_H
#define CUPYGEMM_LDS_SHADOW_H

#include "lanes.h"
#include "lds_stretch.h"
#include "shadow.h"
#include "stored_definedness.h"

static inline bool same_records(const struct record *r, const struct record *expected, int n) {
    uint64_t different = 0;
    for (int i = 0; i < n; i++)
        different |= (r[i].write ^ expected->write) | (r[i].read ^ expected->read);
    return !different;
}

/* The lanes' accesses in the shadow memory. Accesses of 1, 2 or 4 granules are nearly all LDS
 * traffic. Their loops know the number of records, test them together, and return the lanes that
 * are not plainly correct, which are then checked one by one. Most records equal that of the
 * previous lane, whose outcome is known. The loops work on copies that, for the compiler, the
 * stores to the records cannot change. */
static inline uint64_t read_lanes(const struct lds_view *view, uint64_t exec,
                                  const uint32_t *address, int n) {
    const struct lds_view v = *view;
    const int shift = (int)v.m->shadow_shift;
    struct record expected = {~0ull, ~0ull};
    uint64_t careful = 0, next = 0;
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        struct record *r = v.records + (address[lane] >> shift);
        if (same_records(r, &expected, n)) {
            for (int i = 0; i < n; i++)
                r[i].read = next;
            continue;
        }
        bool good = true;
        for (int i = 0; i < n; i++)
            good &= plainly_readable(&v, r[i].write);
        if (__builtin_expect(!good, 0)) {
            careful |= 1ull << lane;
            continue;
        }
        expected = r[0];
        for (int i = 0; i < n; i++)
            r[i].read = read_word(&v, r[i].read);
        next = r[0].read;
    }
    return careful;
}

/* The same for many lanes, without a branch for each. Their records are fetched first, then
 * examined as vectors, and updated last. This is also correct if lanes share records: a record that
 * an access of this instruction has updated gives the same outcome as before, and is written again
 * unchanged. A lane that is switched off repeats the first active lane. */
enum { MANY_LANES = 48 };

struct fetched {
    LINE_ALIGNED uint64_t write[LANES], read[LANES];
    int32_t writes[LANES], reads[LANES]; /* how many of its writes and reads are ordered */
};

static inline bool has_many(uint64_t exec) { return __builtin_popcountll(exec) >= MANY_LANES; }

static inline void place_lanes(const struct lds_view *v, uint64_t exec, const uint32_t *address,
                               uint32_t *place) {
    const uint32_t first = address[first_lane(exec)] >> v->m->shadow_shift;
    const int shift = (int)v->m->shadow_shift;
    for (int lane = 0; lane < LANES; lane++)
        place[lane] = exec >> lane & 1 ? address[lane] >> shift : first;
}

static inline void fetch_records(const struct record *r, const uint32_t *place,
                                 const int32_t *writes, const int32_t *reads, struct fetched *f) {
    for (int lane = 0; lane < LANES; lane++) {
        const struct record *at = r + place[lane];
        uint64_t write = at->write, read = at->read;
        f->write[lane] = write;
        f->read[lane] = read;
        f->writes[lane] = writes[write >> 32 & (2 * MAX_WAVES - 1)];
        f->reads[lane] = reads[last_reader_of(read)];
    }
}

__attribute__((always_inline)) static inline uint64_t
read_many(const struct lds_view *v, uint64_t exec, const uint32_t *address, int n) {
    const uint64_t epoch = v->epoch, new_read = v->new_read, own = v->own;
    struct record *records = v->records;
    uint32_t place[LANES];
    uint64_t next[4][LANES], careful = 0;
    struct fetched f;
    place_lanes(v, exec, address, place);
    for (int i = 0; i < n; i++) {
        fetch_records(records + i, place, v->ordered, v->ordered, &f);
        for (int lane = 0; lane < LANES; lane++) {
            uint64_t write = f.write[lane], read = f.read[lane];
            bool good = ((write & (WRITTEN | TAINTED)) == WRITTEN) & !after(write, f.writes[lane]);
            bool same = (read & EPOCH) == epoch;
            bool in_flight = (read >> 60 != own) & after(read, f.reads[lane]);
            next[i][lane] = new_read | ((same | in_flight) ? read & READERS : 0);
            careful |= (uint64_t)!good << lane;
        }
    }
    if (!careful)
        for (int lane = 0; lane < LANES; lane++)
            for (int i = 0; i < n; i++)
                records[place[lane] + (uint32_t)i].read = next[i][lane];
    else
        for (uint64_t left = exec & ~careful; left; left &= left - 1)
            for (int i = 0; i < n; i++)
                records[place[first_lane(left)] + (uint32_t)i].read = next[i][first_lane(left)];
    return careful & exec;
}

__attribute__((always_inline)) static inline uint64_t
write_many(const struct lds_view *v, uint64_t exec, const uint32_t *address, int n) {
    const struct record next = {v->new_write, 0};
    const uint64_t others = READERS & ~(1ull << (32 + v->own));
    struct record *records = v->records;
    uint32_t place[LANES];
    uint64_t careful = 0;
    struct fetched f;
    int32_t reads[MAX_WAVES];
    memcpy(reads, v->ordered, sizeof reads);
    reads[v->own] = v->released;
    place_lanes(v, exec, address, place);
    for (int i = 0; i < n; i++) {
        fetch_records(records + i, place, v->ordered, reads, &f);
        for (int lane = 0; lane < LANES; lane++) {
            uint64_t write = f.write[lane], read = f.read[lane];
            bool reads_ordered = !(read & others) | !after(read, f.reads[lane]);
            bool write_ordered = !after(write, f.writes[lane]) & !(write & SEVERAL);
            careful |= (uint64_t)!(reads_ordered & (!(write & WRITTEN) | write_ordered)) << lane;
        }
    }
    if (!careful)
        for (int lane = 0; lane < LANES; lane++)
            for (int i = 0; i < n; i++)
                records[place[lane] + (uint32_t)i] = next;
    else
        for (uint64_t left = exec & ~careful; left; left &= left - 1)
            for (int i = 0; i < n; i++)
                records[place[first_lane(left)] + (uint32_t)i] = next;
    return careful & exec;
}

/* Whether several lanes access the same address. */
static inline bool read_the_same(uint64_t exec, const uint32_t *address) {
    const uint32_t first = address[first_lane(exec)];
    uint32_t different = 0;
    if (!(exec & (exec - 1)) || address[LANES - 1 - __builtin_clzll(exec)] != first)
        return false;
    for (int half = 0; half < 2; half++) {
        uint32_t word = (uint32_t)(exec >> 32 * half);
        for (int k = 0; k < 32; k++)
            different |= (address[32 * half + k] ^ first) & (0 - (word >> k & 1));
    }
    return !different;
}

/* Record the plain reads of a wave, of a stretch or not; returns the lanes that remain to be
 * checked. */
static uint64_t plain_reads(const struct lds_view *v, uint64_t exec, const uint32_t *address,
                            struct lane_run stretch, int bytes) {
    const struct lane_run none = {0, 0};
    if (!v->m->shadow)
        return 0;
    if (v->reads)
        return exec;
    if (stretch.lanes)
        exec = read_stretch(v, stretch, address, bytes);
    if (!exec)
        return 0;
    if (read_the_same(exec, address)) /* one lane reads for all */
        return plain_reads(v, exec & -exec, address, none, bytes) ? exec : 0;
    const bool many = has_many(exec);
    switch (bytes >> v->m->shadow_shift) {
    case 1: return many ? read_many(v, exec, address, 1) : read_lanes(v, exec, address, 1);
    case 2: return many ? read_many(v, exec, address, 2) : read_lanes(v, exec, address, 2);
    case 3: return many ? read_many(v, exec, address, 3) : read_lanes(v, exec, address, 3);
    case 4: return many ? read_many(v, exec, address, 4) : read_lanes(v, exec, address, 4);
    default: return exec;
    }
}

/* The undefined bits of the data go to the registers from `result` on. */
static int shadow_reads(const struct lds_view *v, const struct operation *op, uint64_t exec,
                        const uint32_t *address, struct lane_run stretch, int64_t result,
                        uint32_t pc) {
    struct machine *m = v->m;
    uint64_t careful = plain_reads(v, exec, address, stretch, op->bytes);
    int code = OK;
    struct fault first;
    for (uint64_t left = careful; left; left &= left - 1) {
        int lane = first_lane(left);
        code = collect(m, code, shadow_read(v, lane, address[lane], op->bytes), lane, &first);
        if (!code && m->undefined)
            note_lds_load(m, op, v, result, lane, address[lane], pc);
    }
    return code;
}

static inline uint64_t write_lanes(const struct lds_view *view, uint64_t exec,
                                   const uint32_t *address, int n) {
    const struct lds_view v = *view;
    const int shift = (int)v.m->shadow_shift;
    struct record expected = {~0ull, ~0ull};
    uint64_t careful = 0;
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        struct record *r = v.records + (address[lane] >> shift);
        bool good = same_records(r, &expected, n);
        if (!good) {
            good = true;
            for (int i = 0; i < n; i++)
                good &= plainly_writable(&v, r + i);
            expected = good ? r[0] : expected;
        }
        if (__builtin_expect(!good, 0)) {
            careful |= 1ull << lane;
            continue;
        }
        for (int i = 0; i < n; i++)
            r[i] = (struct record){v.new_write, 0};
    }
    return careful;
}

static uint64_t plain_writes(const struct lds_view *v, uint64_t exec, const uint32_t *address,
                             struct lane_run stretch, int bytes) {
    if (!v->m->shadow)
        return 0;
    if (stretch.lanes)
        exec = write_stretch(v, stretch, address, bytes);
    if (!exec)
        return 0;
    const bool many = has_many(exec);
    switch (bytes >> v->m->shadow_shift) {
    case 1: return many ? write_many(v, exec, address, 1) : write_lanes(v, exec, address, 1);
    case 2: return many ? write_many(v, exec, address, 2) : write_lanes(v, exec, address, 2);
    case 4: return many ? write_many(v, exec, address, 4) : write_lanes(v, exec, address, 4);
    default: return exec;
    }
}

static int shadow_writes(const struct lds_view *v, const struct operation *op, uint64_t exec,
                         const uint32_t *address, struct lane_run stretch, int64_t data) {
    const uint32_t *row = vector_row(v->m, data, v->wave);
    size_t pitch = (size_t)v->m->row_dwords;
    uint64_t careful = plain_writes(v, exec, address, stretch, op->bytes);
    int code = OK;
    struct fault first;
    for (uint64_t left = careful; left; left &= left - 1) {
        int lane = first_lane(left);
        uint8_t bytes[16], *pointer[LANES];
        pointer[lane] = bytes;
        copy_lanes(op, row, pitch, 1ull << lane, pointer, NULL);
        int found = shadow_write(v, lane, address[lane], op->bytes, bytes);
        code = collect(v->m, code, found, lane, &first);
    }
    if (v->m->tainted && v->m->undefined)
        for (uint64_t left = exec; left; left &= left - 1)
            taint_stored_lds(v, op, data, first_lane(left), address[first_lane(left)]);
    return code;
}

static int shadow_atomics(const struct lds_view *v, const struct operation *op, uint64_t exec,
                          const uint32_t *address) {
    int code = OK;
    struct fault first;
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        bool computes = op->atomic != SWAP;
        int found = shadow_atomic(v, lane, address[lane], op->bytes, computes);
        code = collect(v->m, code, found, lane, &first);
    }
    return code;
}

#endif
