/* Check and record the accesses of a wave to global memory; `global_order.h` defines a race.
 *
 * Plain accesses are recorded first, without a call for each lane (global_plain.h). */
#ifndef CUPYGEMM_GLOBAL_SHADOW_H
#define CUPYGEMM_GLOBAL_SHADOW_H

#include "global_plain.h"
#include "lanes.h"

/* -- accesses ---------------------------------------------------------------------------------- */

static inline bool stores_the_same(const struct machine *m, const struct operation *op,
                                   int64_t wave, const struct access *a, int lane) {
    uint8_t data[16], *pointer[LANES];
    pointer[lane] = data;
    copy_lanes(op, vector_row(m, op->data, wave), (size_t)m->row_dwords, 1ull << lane, pointer,
               NULL);
    return memcmp(data, (const void *)(uintptr_t)a->address[lane], a->bytes[lane]) == 0;
}

static inline int note_lane(const struct global_view *v, const struct operation *op,
                            const struct access *a, int lane) {
    const struct machine *m = v->m;
    uint64_t address = a->address[lane], end = address + a->bytes[lane];
    bool writes = op->kind == STORE || op->kind == ATOMIC;
    for (uint64_t start = address & ~(uint64_t)(GRANULE - 1); start < end; start += GRANULE) {
        struct global_record *r = record_to_note(v, start - m->global_base);
        uint32_t bytes = bytes_in(start, address, a->bytes[lane]);
        int code;
        if (writes) {
            bool foreign = is_current(v, &r->write) ? wave_of_site(&r->write) != v->own
                                                    : is_rival(v, &r->write);
            bool same = foreign && op->kind == STORE && stores_the_same(m, op, v->wave, a, lane);
            code = op->kind == ATOMIC && stays_in_l2(v, &r->write, bytes)
                       ? global_race(v, UNSEEN_WRITE, a, lane, &r->write)
                       : OK;
            code = code ? code : global_write(v, a, lane, r, bytes, same);
        } else {
            code = global_read(v, a, lane, r, bytes);
        }
        if (code)
            return code;
    }
    return OK;
}

/* -- copies, fills and library calls in other streams ------------------------------------------ */

static inline bool touches(const struct stretch *s, uint64_t address, uint64_t bytes) {
    if (address >= s->end || address + bytes <= s->start)
        return false;
    uint64_t offset = address > s->start ? address - s->start : 0, within = offset % s->pitch;
    uint64_t next = s->start + offset - within + s->pitch;
    return within < s->run || (next < address + bytes && next < s->end);
}

static inline int check_stretches(const struct global_view *v, const struct access *a, int lane,
                                  bool writes) {
    struct machine *m = v->m;
    for (int64_t i = 0; i < m->num_stretches; i++) {
        const struct stretch *s = m->stretches + i;
        if (!(writes || s->writes) || !touches(s, a->address[lane], a->bytes[lane]))
            continue;
        int code = !writes     ? STREAM_RACE_READ
                   : s->writes ? STREAM_RACE_WRITE_WRITE
                               : STREAM_RACE_WRITE_READ;
        if (!raise(m, code, lane, a->address[lane], a->bytes[lane], writes))
            return OK;
        m->fault.other = -(i + 1);
        return code;
    }
    return OK;
}

static inline int note_accesses(const struct global_view v, const struct operation *op,
                                const struct access *a, uint64_t lanes) {
    struct machine *m = v.m;
    bool writes = op->kind == ATOMIC || op->kind == STORE;
    int code = OK;
    struct fault first;
    if (a->adjacent && note_stretch(&v, op, a, writes))
        lanes = 0;
    lanes = lanes ? note_strided_lines(&v, op, a, lanes, writes) : 0;
    lanes = lanes ? note_shared_lines(&v, op, a, lanes, writes) : 0;
    lanes = lanes ? note_plain_lanes(&v, a, lanes, writes) : 0;
    for (uint64_t left = lanes; left; left &= left - 1) {
        int lane = first_lane(left);
        uint64_t address = a->address[lane];
        if (a->bytes[lane] && address >= m->global_base && address < m->global_end)
            code = collect(m, code, note_lane(&v, op, a, lane), lane, &first);
    }
    if (m->num_stretches && !code && !may_be_ordered(&v)) {
        for (uint64_t left = a->exec & ~(a->to_lds | a->to_scratch); left; left &= left - 1) {
            int lane = first_lane(left);
            if (a->bytes[lane])
                code = collect(m, code, check_stretches(&v, a, lane, writes), lane, &first);
        }
    }
    if (writes)
        release(&v);
    if (v.site.pc & COHERENT)
        acquire(&v);
    return code;
}

/* Check and record the accesses of a wave to global memory, before they are made. */
static inline int note_global(struct machine *m, const struct operation *op, int64_t wave,
                              const struct access *a, uint32_t pc) {
    uint64_t lanes = a->exec & ~(a->to_lds | a->to_scratch);
    if (!m->global_shadow || !lanes)
        return OK;
    bool atomic = op->kind == ATOMIC;
    bool swaps = op->atomic == SWAP || op->atomic == CMPSWAP || op->atomic == FCMPSWAP;
    uint32_t how = (atomic || op->coherent ? COHERENT : 0) | (atomic && !swaps ? ATOMIC_SITE : 0);
    return note_accesses(global_view(m, wave, how, pc), op, a, lanes);
}

/* Whether a scalar load may race. Most load the kernel's arguments, which nothing writes. */
static inline bool may_race(const struct machine *m, uint64_t address) {
    return m->global_shadow && address >= m->global_base && address < m->global_end &&
           address - m->arguments >= m->arguments_bytes;
}

/* The same for a scalar load, into which the compiler turns a load that is the same in all lanes.
 * It is not numbered with the vector loads, and treated as if it had been waited for. */
static inline int note_scalar(struct machine *m, const struct operation *op, int64_t wave,
                              uint64_t address, int64_t dwords, uint32_t pc) {
    struct access a;
    if (!may_race(m, address))
        return OK;
    a.exec = 1;
    a.to_lds = a.to_scratch = 0;
    a.adjacent = 0;
    a.repeating = 0;
    a.partial = false;
    a.address[0] = address;
    a.bytes[0] = (uint8_t)(4 * dwords);
    struct global_view v = global_view(m, wave, SCALAR_SITE, pc);
    v.site.seq = (uint32_t)m->vm_waited[wave];
    return note_accesses(v, op, &a, 1);
}

#endif
