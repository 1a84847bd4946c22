/* Races in LDS, and atomics on bytes that nothing has written, from a record of the last accesses
 * to each granule.
 *
 * A read is ordered after another wave's write iff that wave had waited for the write when it last
 * passed a barrier ("released"), or by a flag in LDS (lds_flags.h). The same is true of a write
 * after another wave's reads and writes. Within a wave, LDS operations execute in order;
 * direct-to-LDS loads do not, until vmcnt is waited for. LDS atomics do not race with one another.
 * A compare-and-swap does not race with plain reads either: every loop around one starts with such
 * a read, and the comparison detects if it is stale. */
#ifndef CUPYGEMM_SHADOW_H
#define CUPYGEMM_SHADOW_H

#include "machine.h"

/* struct record, write: bits 0-31 number, 32-35 wave, then the kind. If several waves have stored
 * the same value, unordered, it is the last of them, and bits 40-43 are another. TAINTED: the
 * written data have undefined bits (definedness.h). */
static const uint64_t BY_LOAD = 1ull << 36, BY_ATOMIC = 1ull << 37, SEVERAL = 1ull << 38,
                      WRITTEN = 1ull << 39, BY_COMPARE = 1ull << 44, TAINTED = 1ull << 45;
/* struct record, read: bits 0-31 number, 32-47 a bit for each wave that read in the epoch (the
 * barriers that the workgroup had passed, modulo 4096) of bits 48-59, 60-63 last reader. */
static const uint64_t READERS = 0xFFFFull << 32, EPOCH = 0xFFFull << 48;

/* The LDS of one wave's workgroup, as the executing operation sees it. */
struct lds_view {
    struct machine *m;
    uint8_t *bytes;
    struct record *records;
    struct lds_block *blocks; /* if they have a write, their granules' records are out of date */
    const int32_t *wave_ids;
    int64_t wave;
    uint32_t own;            /* number of the wave within the workgroup */
    uint32_t seq;            /* number of the executing operation */
    int32_t released;        /* LDS operations of this wave that are released */
    uint64_t epoch;          /* as in a read word */
    uint64_t new_read;       /* read word of this operation */
    uint64_t new_write;      /* write word of this operation */
    struct lds_flags *flags; /* of the workgroup, or NULL */
    int32_t *reads;          /* with flags, (records, waves): number of each wave's last read */
    /* By bits 32-36 of a write word: how many such writes are ordered before this operation. */
    LINE_ALIGNED int32_t ordered[2 * MAX_WAVES];
};

static inline int32_t later(int32_t a, int32_t b) {
    return (int32_t)((uint32_t)a - (uint32_t)b) > 0 ? a : b;
}

/* Add the order that a wave knows through flags. A separate function: otherwise, even in a loop
 * without flags, vectors are loaded from invalid addresses under a mask, at hundreds of cycles. */
__attribute__((noinline, unused)) static void order_by_flags(const struct machine *m,
                                                             const struct lds_flags *flags,
                                                             uint32_t own, int32_t *ordered) {
    for (int64_t other = 0; other < m->waves_per_group; other++) {
        ordered[other] = later(ordered[other], flags->lds[own][other]);
        ordered[MAX_WAVES + other] = later(ordered[MAX_WAVES + other], flags->vm[own][other]);
    }
}

/* Fill in the fields that differ between the waves of a workgroup. */
static inline void view_wave(struct lds_view *v, int64_t wave, uint64_t how) {
    const struct machine *m = v->m;
    uint64_t own = (uint64_t)m->wave_in_group[wave];
    uint32_t seq = (uint32_t)(how & BY_LOAD ? m->vm_issued : m->lds_issued)[wave];
    v->wave = wave;
    v->own = (uint32_t)own;
    v->seq = seq;
    v->released = m->lds_released[wave];
    v->new_read = seq | 1ull << (32 + own) | v->epoch | own << 60;
    v->new_write = seq | own << 32 | how | WRITTEN;
    v->ordered[own] = m->lds_issued[wave];
    v->ordered[MAX_WAVES + own] = m->vm_waited[wave];
}

static inline int64_t blocks_of_group(const struct machine *m) {
    return (m->shadow_stride + TOGETHER - 1) / TOGETHER;
}

static inline void view_workgroup(struct lds_view *v, struct machine *m, int64_t wave,
                                  uint64_t how) {
    int64_t group = m->workgroup[wave];
    v->m = m;
    v->bytes = m->lds + group * m->lds_bytes;
    v->records = m->shadow + group * m->shadow_stride;
    v->blocks = m->blocks + group * blocks_of_group(m);
    v->wave_ids = m->wave_ids + group * MAX_WAVES;
    v->epoch = (uint64_t)m->barrier_epoch[group] << 48 & EPOCH;
    v->flags = m->flags ? m->flags + group : NULL;
    v->reads = m->reads ? m->reads + group * m->shadow_stride * m->waves_per_group : NULL;
    const int32_t *lds = m->lds_released + v->wave_ids[0], *vm = m->vm_released + v->wave_ids[0];
    for (int64_t other = 0; other < m->waves_per_group; other++) { /* they are contiguous */
        v->ordered[other] = lds[other];
        v->ordered[MAX_WAVES + other] = vm[other];
    }
    if (v->flags)
        order_by_flags(m, v->flags, (uint32_t)m->wave_in_group[wave], v->ordered);
    view_wave(v, wave, how);
}

static inline struct lds_view lds_view(struct machine *m, int64_t wave, uint64_t how) {
    struct lds_view v = {0};
    view_workgroup(&v, m, wave, how);
    return v;
}

/* View the next wave that executes the instruction; `v` is 0 at first. */
static inline void view_next(struct lds_view *v, struct machine *m, int64_t wave, uint64_t how) {
    if (!v->m || v->flags || m->workgroup[wave] != m->workgroup[v->wave]) {
        view_workgroup(v, m, wave, how);
        return;
    }
    v->ordered[v->own] = m->lds_released[v->wave];
    v->ordered[MAX_WAVES + v->own] = m->vm_released[v->wave];
    view_wave(v, wave, how);
}

/* The entry of an operation in a history, in which waves are adjacent. */
static inline struct issue *issue_at(const struct machine *m, struct issue *history, int64_t wave,
                                     uint32_t seq) {
    return history + seq % HISTORY * m->num_waves + wave;
}

static inline void note_issue(const struct lds_view *v, uint32_t pc) {
    struct issue *history = v->new_write & BY_LOAD ? v->m->vm_history : v->m->lds_history;
    *issue_at(v->m, history, v->wave, v->seq) = (struct issue){v->seq, pc};
}

static inline uint32_t writer_of(uint64_t write) { return write >> 32 & 15; }
static inline uint32_t other_writer_of(uint64_t write) { return write >> 40 & 15; }
static inline uint32_t last_reader_of(uint64_t read) { return read >> 60 & 15; }
static inline uint32_t readers_of(uint64_t read) { return read >> 32 & 0xFFFF; }

/* Whether operation `word` (bits 0-31) is not among the first `count` of its wave. */
static inline bool after(uint64_t word, int32_t count) {
    return (int32_t)((uint32_t)word - (uint32_t)count) > 0;
}

static inline int race(const struct lds_view *v, int code, int lane, uint32_t address, int bytes,
                       uint32_t other, bool by_load, uint32_t seq) {
    struct machine *m = v->m;
    if (!raise(m, code, lane, address, bytes, code == RACE_WRITE_READ || code == RACE_WRITE_WRITE))
        return OK;
    struct issue *history = by_load ? m->vm_history : m->lds_history;
    struct issue found = *issue_at(m, history, v->wave_ids[other], seq);
    m->fault.other_wave = (int32_t)other;
    m->fault.other_seq = (int32_t)seq;
    m->fault.other_by_load = by_load;
    m->fault.other_pc = seq && found.seq == seq ? (int64_t)found.pc : -1;
    return code;
}

static inline int race_with_writer(const struct lds_view *v, int code, int lane, uint32_t address,
                                   int bytes, uint64_t write) {
    return race(v, code, lane, address, bytes, writer_of(write), write & BY_LOAD, (uint32_t)write);
}

/* -- one granule ------------------------------------------------------------------------------- */

/* Whether the write that this word records is ordered before the executing operation. */
static inline bool ordered(const struct lds_view *v, uint64_t write) {
    return !after(write, v->ordered[write >> 32 & (2 * MAX_WAVES - 1)]);
}

static inline int check_read(const struct lds_view *v, uint64_t write, int lane, uint32_t address,
                             int bytes) {
    if (!(write & WRITTEN) || ordered(v, write) || write & BY_COMPARE)
        return OK;
    int code = writer_of(write) == v->own ? LDS_LOAD_IN_FLIGHT : RACE_READ;
    return race_with_writer(v, code, lane, address, bytes, write);
}

/* Whether a read of one granule is plainly correct, and defined. */
static inline bool plainly_readable(const struct lds_view *v, uint64_t write) {
    return ((write & (WRITTEN | TAINTED)) == WRITTEN) & ordered(v, write);
}

/* Check a write against the last write of the granule. A wave's own writes are in order; its
 * own direct-to-LDS load may arrive after them, which is not reported. */
static inline int check_overwrite(const struct lds_view *v, uint64_t write, int lane,
                                  uint32_t address, int bytes) {
    if (!(write & WRITTEN) || (write & BY_ATOMIC && v->new_write & BY_ATOMIC))
        return OK;
    if (writer_of(write) != v->own)
        return ordered(v, write)
                   ? OK
                   : race_with_writer(v, RACE_WRITE_WRITE, lane, address, bytes, write);
    const int32_t *released = write & BY_LOAD ? v->m->vm_released : v->m->lds_released;
    if (!(write & SEVERAL) || !after(write, released[v->wave]))
        return OK;
    return race(v, RACE_WRITE_WRITE, lane, address, bytes, other_writer_of(write), false, 0);
}

/* The last read of a granule by each wave of the workgroup. */
static inline int32_t *reads_of(const struct lds_view *v, const struct record *r) {
    return v->reads + (r - v->records) * v->m->waves_per_group;
}

/* Check a write against each wave's last read, as flags order waves one by one. */
static inline int check_each_reader(const struct lds_view *v, const struct record *r,
                                    uint32_t others, int lane, uint32_t address, int bytes) {
    for (uint32_t left = others; left; left &= left - 1) {
        uint32_t wave = (uint32_t)__builtin_ctz(left), seq = (uint32_t)reads_of(v, r)[wave];
        if (after(seq, v->ordered[wave]))
            return race(v, RACE_WRITE_READ, lane, address, bytes, wave, false, seq);
    }
    return OK;
}

/* Check a write against the reads of the granule. Without flags, the last reader represents all:
 * once it has passed a barrier after its read, so have those that read before it. If the writer
 * itself read last and has not waited for that read, the epoch decides. */
static inline int check_readers(const struct lds_view *v, const struct record *r, int lane,
                                uint32_t address, int bytes) {
    uint64_t read = r->read;
    uint32_t others = readers_of(read) & ~(1u << v->own);
    if (!others)
        return OK;
    if (v->reads)
        return check_each_reader(v, r, others, lane, address, bytes);
    uint32_t last = last_reader_of(read);
    if (!after(read, last == v->own ? v->released : v->ordered[last]))
        return OK;
    if (last == v->own && (read & EPOCH) != v->epoch)
        return OK;
    if (last == v->own) /* which read of the other wave it was is not recorded */
        return race(v, RACE_WRITE_READ, lane, address, bytes, (uint32_t)__builtin_ctz(others),
                    false, 0);
    return race(v, RACE_WRITE_READ, lane, address, bytes, last, false, (uint32_t)read);
}

/* Readers of an earlier epoch are dropped, unless another wave's read in it is in flight, or
 * each wave's last read is known. */
static inline uint64_t read_word(const struct lds_view *v, uint64_t old) {
    uint32_t last = last_reader_of(old);
    bool same = (old & EPOCH) == v->epoch;
    bool in_flight = (v->reads != NULL) | ((last != v->own) & after(old, v->ordered[last]));
    return v->new_read | ((same | in_flight) ? old & READERS : 0);
}

/* Whether a write is plainly correct. If not, it may still be correct by the checks above. */
static inline bool plainly_writable(const struct lds_view *v, const struct record *r) {
    uint32_t last = last_reader_of(r->read);
    bool unread = !(readers_of(r->read) & ~(1u << v->own));
    bool reads_ordered =
        !v->reads & !after(r->read, last == v->own ? v->released : v->ordered[last]);
    bool unwritten = !(r->write & WRITTEN);
    bool write_ordered = ordered(v, r->write) & !(r->write & SEVERAL);
    return (unread | reads_ordered) & (unwritten | write_ordered);
}

/* -- accesses ---------------------------------------------------------------------------------- */

static inline struct record *granules(const struct lds_view *v, uint32_t address, int bytes,
                                      int *n) {
    int shift = (int)v->m->shadow_shift;
    *n = (int)(((address + (uint32_t)bytes - 1) >> shift) - (address >> shift)) + 1;
    return v->records + (address >> shift);
}

static inline int shadow_read(const struct lds_view *v, int lane, uint32_t address, int bytes) {
    if (!v->m->shadow)
        return OK;
    int n;
    struct record *r = granules(v, address, bytes, &n);
    for (int i = 0; i < n; i++) {
        int code = check_read(v, r[i].write, lane, address, bytes);
        if (code)
            return code;
        r[i].read = read_word(v, r[i].read);
        if (v->reads)
            reads_of(v, r + i)[v->own] = (int32_t)v->seq;
    }
    return OK;
}

/* Check and record a write of `data`. Waves that store the same bytes to the same address do not
 * disturb one another. */
static inline int shadow_write(const struct lds_view *v, int lane, uint32_t address, int bytes,
                               const uint8_t *data) {
    if (!v->m->shadow)
        return OK;
    int n, shift = (int)v->m->shadow_shift;
    struct record *r = granules(v, address, bytes, &n);
    for (int i = 0; i < n; i++) {
        size_t done = (size_t)i << shift;
        uint64_t word = v->new_write;
        int code = check_readers(v, r + i, lane, address, bytes);
        if (!code)
            code = check_overwrite(v, r[i].write, lane, address, bytes);
        if (code == RACE_WRITE_WRITE &&
            memcmp(v->bytes + address + done, data + done, (size_t)1 << shift) == 0) {
            uint32_t writer = writer_of(r[i].write);
            uint64_t other = writer == v->own ? other_writer_of(r[i].write) : writer;
            word |= SEVERAL | other << 40;
            code = OK;
        }
        if (code)
            return code;
        r[i] = (struct record){word, 0};
    }
    return OK;
}

/* The flags of the write word of an LDS operation. */
static inline uint64_t how_it_writes(const struct operation *op) {
    if (op->kind != ATOMIC)
        return 0;
    return BY_ATOMIC | (op->atomic == CMPSWAP || op->atomic == FCMPSWAP ? BY_COMPARE : 0);
}

/* Whether a write is a store of the wave that others may not have seen yet: the atomics of other
 * waves race with it, unlike with the wave's own atomics after it. */
static inline bool is_own_store(const struct lds_view *v, uint64_t write) {
    return (write & (WRITTEN | BY_ATOMIC | BY_LOAD)) == WRITTEN && writer_of(write) == v->own &&
           after(write, v->released);
}

/* `computes`: the result depends on the old value. */
static inline int shadow_atomic(const struct lds_view *v, int lane, uint32_t address, int bytes,
                                bool computes) {
    if (!v->m->shadow)
        return OK;
    int n;
    struct record *r = granules(v, address, bytes, &n);
    for (int i = 0; i < n; i++) {
        bool compares = v->new_write & BY_COMPARE;
        int code = compares ? OK : check_readers(v, r + i, lane, address, bytes);
        if (!code)
            code = check_overwrite(v, r[i].write, lane, address, bytes);
        if (!code && !(r[i].write & BY_ATOMIC))
            code = check_read(v, r[i].write, lane, address, bytes);
        if (!code && computes && (!(r[i].write & WRITTEN) || r[i].write & TAINTED))
            code = raise(v->m, LDS_UNINITIALISED, lane, address, bytes, false);
        if (code)
            return code;
        uint64_t word = is_own_store(v, r[i].write) ? r[i].write & ~TAINTED : v->new_write;
        r[i] = (struct record){word, compares ? r[i].read : 0};
    }
    return OK;
}

/* The LDS addresses of a DS instruction's lanes. */
static inline void lds_addresses(const struct machine *m, const struct operation *op, int64_t wave,
                                 int64_t offset, uint32_t *address) {
    if (op->address < 0) { /* M0, with or without the lane */
        uint32_t base = (scalar(m, M0, wave) & op->m0_mask) + (uint32_t)offset;
        for (int lane = 0; lane < LANES; lane++)
            address[lane] = base + (op->add_lane ? 4 * (uint32_t)lane : 0);
        return;
    }
    const uint32_t *row = vector_row(m, op->address, wave);
    for (int lane = 0; lane < LANES; lane++)
        address[lane] = row[lane] + (uint32_t)offset;
}

/* The lanes whose LDS accesses end past the workgroup's LDS. */
static inline uint64_t outside_lds(const struct machine *m, uint64_t exec, const uint32_t *address,
                                   int bytes) {
    uint64_t outside = 0;
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        if ((int64_t)address[lane] + bytes > m->lds_bytes)
            outside |= 1ull << lane;
    }
    return outside;
}

/* Check the lanes' LDS addresses against the workgroup's LDS, and that the shadow is fine enough to
 * distinguish the bytes of each access from their neighbours. */
static inline int check_lds(struct machine *m, uint64_t exec, const uint32_t *address, int bytes,
                            bool writes) {
    uint32_t odd = (uint32_t)bytes, high = 0;
    for (int half = 0; half < 2; half++) {
        uint32_t word = (uint32_t)(exec >> 32 * half);
        for (int k = 0; k < 32; k++) {
            uint32_t a = address[32 * half + k] & (0 - (word >> k & 1));
            odd |= a;
            high = a > high ? a : high;
        }
    }
    int code = OK;
    if ((int64_t)high + bytes > m->lds_bytes)
        for (uint64_t left = outside_lds(m, exec, address, bytes); left; left &= left - 1) {
            int lane = first_lane(left);
            code = raise_more(m, code, LDS_OUT_OF_BOUNDS, lane, address[lane], bytes, writes);
        }
    if (code)
        return code;
    int needed = __builtin_ctz(odd | 1u << COARSEST);
    if (m->shadow && needed < m->shadow_shift && exec) {
        m->needed_shift = needed;
        return NEEDS_FINER_SHADOW;
    }
    return OK;
}

#endif
