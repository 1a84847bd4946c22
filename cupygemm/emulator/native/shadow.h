/* Races and uninitialised reads in LDS, from a record of who last touched each granule.
 *
 * A read is ordered after another wave's write iff that wave had waited for the write when it last
 * passed a barrier ("released"); a write likewise after another wave's reads and writes. Within a
 * wave, LDS operations execute in order; direct-to-LDS loads do not, until vmcnt is waited for. LDS
 * atomics do not race with one another. */
#ifndef CUPYGEMM_SHADOW_H
#define CUPYGEMM_SHADOW_H

#include "machine.h"

/* The LDS of one wave's workgroup. */
struct lds_view {
    struct machine *m;
    uint8_t *bytes;
    struct record *records;
    const int32_t *wave_ids;
    int64_t wave;
    uint32_t own; /* wave within the workgroup */
    uint32_t epoch;
    uint32_t seq; /* number of the executing operation */
};

static inline struct lds_view lds_view(struct machine *m, int64_t wave, bool by_load) {
    int64_t group = m->workgroup[wave];
    struct lds_view v = {
        .m = m,
        .bytes = m->lds + group * m->lds_bytes,
        .records = m->shadow + group * m->shadow_stride,
        .wave_ids = m->wave_ids + group * MAX_WAVES,
        .wave = wave,
        .own = (uint32_t)m->wave_in_group[wave],
        .epoch = (uint32_t)m->barrier_epoch[group],
        .seq = (uint32_t)(by_load ? m->vm_issued : m->lds_issued)[wave],
    };
    return v;
}

static inline void note_issue(const struct lds_view *v, bool by_load, uint32_t pc) {
    struct issue *history = by_load ? v->m->vm_history : v->m->lds_history;
    history[v->wave * HISTORY + v->seq % HISTORY] = (struct issue){v->seq, pc};
}

static inline bool after(uint32_t seq, int32_t count) {
    return (int32_t)(seq - (uint32_t)count) > 0;
}

static inline bool write_released(const struct lds_view *v, const struct record *r) {
    int64_t writer = v->wave_ids[r->writer & WRITER_WAVE];
    const int32_t *released = r->writer & BY_LOAD ? v->m->vm_released : v->m->lds_released;
    return !after(r->write_seq, released[writer]);
}

static inline int race(const struct lds_view *v, int code, int lane, uint32_t address, int bytes,
                       uint32_t other, bool by_load, uint32_t seq) {
    struct machine *m = v->m;
    raise(m, code, lane, address, bytes, code != RACE_READ);
    const struct issue *history = by_load ? m->vm_history : m->lds_history;
    struct issue found = history[v->wave_ids[other] * HISTORY + seq % HISTORY];
    m->fault.other_wave = (int32_t)other;
    m->fault.other_pc = found.seq == seq ? (int64_t)found.pc : -1;
    return code;
}

static inline int race_with_writer(const struct lds_view *v, int code, int lane, uint32_t address,
                                   int bytes, const struct record *r) {
    return race(v, code, lane, address, bytes, r->writer & WRITER_WAVE, r->writer & BY_LOAD,
                r->write_seq);
}

/* Check a read of one granule. */
static inline int check_read(const struct lds_view *v, const struct record *r, int lane,
                             uint32_t address, int bytes) {
    uint8_t writer = r->writer;
    if (!(writer & WRITTEN))
        return raise(v->m, LDS_UNINITIALISED, lane, address, bytes, false);
    if ((writer & WRITER_WAVE) != v->own) {
        if (!write_released(v, r))
            return race_with_writer(v, RACE_READ, lane, address, bytes, r);
    } else if (writer & BY_LOAD && after(r->write_seq, v->m->vm_waited[v->wave])) {
        return race_with_writer(v, LDS_LOAD_IN_FLIGHT, lane, address, bytes, r);
    }
    return OK;
}

/* Check a write of one granule; `atomic` says that it is an LDS atomic. */
static inline int check_write(const struct lds_view *v, const struct record *r, int lane,
                              uint32_t address, int bytes, bool atomic) {
    uint8_t writer = r->writer;
    if (writer & WRITTEN && (writer & WRITER_WAVE) != v->own && !(atomic && writer & BY_ATOMIC) &&
        !write_released(v, r))
        return race_with_writer(v, RACE_WRITE_WRITE, lane, address, bytes, r);
    uint32_t others = r->readers & ~(1u << v->own);
    if (!others)
        return OK;
    uint32_t last = r->last_reader;
    bool unreleased = last != v->own && after(r->read_seq, v->m->lds_released[v->wave_ids[last]]);
    if (r->read_epoch != v->epoch && !unreleased)
        return OK;
    uint32_t other = others >> last & 1 ? last : (uint32_t)__builtin_ctz(others);
    return race(v, RACE_WRITE_READ, lane, address, bytes, other, false, r->read_seq);
}

static inline void record_read(const struct lds_view *v, struct record *r) {
    uint16_t kept = r->read_epoch == v->epoch ? r->readers : 0;
    r->readers = (uint16_t)(kept | 1u << v->own);
    r->read_epoch = v->epoch;
    r->read_seq = v->seq;
    r->last_reader = (uint8_t)v->own;
}

static inline void record_write(const struct lds_view *v, struct record *r, uint8_t how) {
    r->write_seq = v->seq;
    r->writer = (uint8_t)(v->own | how | WRITTEN);
    r->readers = 0;
}

static inline int shadow_read(const struct lds_view *v, int lane, uint32_t address, int bytes) {
    int shift = (int)v->m->shadow_shift;
    struct record *last = v->records + ((address + (uint32_t)bytes - 1) >> shift);
    for (struct record *r = v->records + (address >> shift); r <= last; r++) {
        int code = check_read(v, r, lane, address, bytes);
        if (code)
            return code;
        record_read(v, r);
    }
    return OK;
}

/* `data` is what the lane stores: waves that store the same value do not disturb one another. */
static inline int shadow_write(const struct lds_view *v, int lane, uint32_t address, int bytes,
                               uint8_t how, const uint8_t *data) {
    int shift = (int)v->m->shadow_shift;
    struct record *first = v->records + (address >> shift);
    struct record *last = v->records + ((address + (uint32_t)bytes - 1) >> shift);
    for (struct record *r = first; r <= last; r++) {
        int code = check_write(v, r, lane, address, bytes, false);
        if (code == RACE_WRITE_WRITE) {
            size_t done = (size_t)(r - first) << shift;
            if (memcmp(v->bytes + address + done, data + done, (size_t)1 << shift) == 0)
                code = OK;
        }
        if (code)
            return code;
        record_write(v, r, how);
    }
    return OK;
}

static inline int shadow_atomic(const struct lds_view *v, int lane, uint32_t address, int bytes) {
    int shift = (int)v->m->shadow_shift;
    struct record *last = v->records + ((address + (uint32_t)bytes - 1) >> shift);
    for (struct record *r = v->records + (address >> shift); r <= last; r++) {
        bool shares = r->writer & BY_ATOMIC;
        int code = shares ? OK : check_read(v, r, lane, address, bytes);
        if (!code)
            code = check_write(v, r, lane, address, bytes, true);
        if (code)
            return code;
        record_write(v, r, BY_ATOMIC);
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

/* Check the lanes' LDS addresses against the workgroup's LDS, and that the shadow is fine enough to
 * tell the bytes of each access from their neighbours. */
static inline int check_lds(struct machine *m, uint64_t exec, const uint32_t *address, int bytes,
                            bool writes) {
    uint32_t odd = (uint32_t)bytes, high = 0;
    for (int lane = 0; lane < LANES; lane++) {
        uint32_t a = exec >> lane & 1 ? address[lane] : 0;
        odd |= a;
        high = a > high ? a : high;
    }
    if ((int64_t)high + bytes > m->lds_bytes)
        for (uint64_t left = exec; left; left &= left - 1) {
            int lane = first_lane(left);
            if ((int64_t)address[lane] + bytes > m->lds_bytes)
                return raise(m, LDS_OUT_OF_BOUNDS, lane, address[lane], bytes, writes);
        }
    int needed = odd & 1 ? 0 : odd & 2 ? 1 : 2;
    if (needed < m->shadow_shift && exec) {
        m->needed_shift = needed;
        return NEEDS_FINER_SHADOW;
    }
    return OK;
}

#endif
