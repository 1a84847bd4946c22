/* Undefined bits that stores and atomics would put into memory, or leave there. */
#ifndef CUPYGEMM_STORED_DEFINEDNESS_H
#define CUPYGEMM_STORED_DEFINEDNESS_H

#include "definedness.h"
#include "typed_lanes.h"

/* Get the undefined bits of a lane's stored data, one byte each; returns the first's register. */
static inline int64_t undefined_data(const struct machine *m, const struct operation *op,
                                     int64_t data, int64_t wave, int lane, int bytes,
                                     uint8_t *undefined) {
    uint8_t *pointer[LANES];
    pointer[lane] = undefined;
    memset(undefined, 0, 16);
    if (op->format == TYPED)
        return undefined_element(op, undefined_row(m, data, wave), (size_t)m->row_dwords, lane,
                                 data, undefined);
    copy_lanes(op, undefined_row(m, data, wave), (size_t)m->row_dwords, 1ull << lane, pointer,
               NULL);
    for (int i = 0; i < bytes; i++)
        if (undefined[i])
            return data + (op->format == DWORDS ? i / 4 : 0);
    return -1;
}

static inline void taint_stored_lds(const struct lds_view *v, const struct operation *op,
                                    int64_t data, int lane, uint32_t address) {
    uint8_t undefined[16];
    int64_t reg = undefined_data(v->m, op, data, v->wave, lane, op->bytes, undefined);
    if (reg >= 0)
        taint_lds(v, address, op->bytes, undefined, *origin_of(v->m, reg, v->wave));
}

/* Whether undefined bits are as a load has found them in memory. */
static inline bool is_plain_load(int32_t origin) {
    return (origin & ORIGIN_SPACE) != FROM_REGISTER && !(origin & (COMPUTED | INACTIVE));
}

/* Whether undefined data may be stored, and leave the target undefined. `reg` is the first register
 * that has any. */
static inline bool may_be_stored(const struct machine *m, const struct operation *op, int64_t reg,
                                 int64_t wave, const uint8_t *undefined, int bytes) {
    int32_t origin = *origin_of(m, reg, wave);
    bool is_global = (origin & ORIGIN_SPACE) == FROM_GLOBAL;
    if (origin & COMPUTED)
        return is_global && origin & BY_MATRIX;
    bool all = true, copied = true;
    for (int i = 0; i < bytes; i++) {
        all &= undefined[i] != 0;
        copied &= undefined[i] == 0 || undefined[i] == 0xFF;
        if (undefined[i] && op->format == DWORDS)
            copied &= is_plain_load(*origin_of(m, op->data + i / 4, wave));
    }
    return copied && (is_global || (!all && op->format == DWORDS));
}

/* Check data that are about to be stored to global memory, or passed to an atomic. */
static inline int check_data(struct machine *m, const struct operation *op, int64_t wave,
                             const struct access *a) {
    int code = OK;
    if (!m->tainted || !m->undefined)
        return code;
    uint8_t undefined[16];
    for (uint64_t left = a->exec & ~(a->to_lds | a->to_scratch); left; left &= left - 1) {
        int lane = first_lane(left), bytes = a->bytes[lane];
        if (!bytes)
            continue;
        int64_t reg = undefined_data(m, op, op->data, wave, lane, bytes, undefined);
        if (reg < 0 && op->data2 >= 0 && op->kind == ATOMIC)
            reg = undefined_data(m, op, op->data2, wave, lane, bytes, undefined);
        bool atomic = op->kind == ATOMIC;
        if (reg < 0 || (!atomic && may_be_stored(m, op, reg, wave, undefined, bytes)))
            continue;
        int first = code;
        code = raise_more(m, code, atomic ? UNDEFINED_ATOMIC : UNDEFINED_STORE, lane,
                          a->address[lane], bytes, true);
        if (!first)
            m->fault.reg = (int32_t)reg;
    }
    return code;
}

/* Check the memory that an atomic reads. */
static inline int check_memory(struct machine *m, const struct operation *op,
                               const struct access *a) {
    int code = OK;
    if (!m->undefined || op->atomic == SWAP)
        return code;
    uint8_t undefined[16];
    for (uint64_t left = a->exec & ~(a->to_lds | a->to_scratch); left; left &= left - 1) {
        int lane = first_lane(left), bytes = a->bytes[lane];
        if (bytes && undefined_global(m, a->address[lane], a->pointer[lane], bytes, undefined))
            code = raise_more(m, code, MEMORY_UNINITIALISED, lane, a->address[lane], bytes, true);
    }
    return code;
}

/* Record the definedness of global and private memory after a store or an atomic. */
static inline void note_defined(const struct machine *m, const struct operation *op, int64_t wave,
                                const struct access *a) {
    bool tainted = m->tainted && m->undefined && op->kind == STORE;
    uint8_t undefined[16];
    if (m->defined && a->adjacent && !tainted && watched(m, a->address[0]) &&
        watched(m, a->address[a->adjacent - 1])) {
        define_stretch(m, a->address[0], a->adjacent * op->bytes);
        return;
    }
    if (m->defined)
        for (uint64_t left = a->exec & ~(a->to_lds | a->to_scratch); left; left &= left - 1) {
            int lane = first_lane(left), bytes = a->bytes[lane];
            uint64_t address = a->address[lane];
            if (!bytes || !watched(m, address))
                continue;
            define_bytes(m, address, bytes);
            int64_t reg =
                tainted ? undefined_data(m, op, op->data, wave, lane, bytes, undefined) : -1;
            /* After a finding that is no error, the bits that happen to be there are used. */
            if (reg < 0 || !may_be_stored(m, op, reg, wave, undefined, bytes))
                continue;
            for (int i = 0; i < bytes; i++)
                if (undefined[i] == 0xFF) {
                    undefine_byte(m, address + (uint64_t)i);
                    a->pointer[lane][i] = POISON;
                }
        }
    if (!m->scratch_defined)
        return;
    for (uint64_t left = a->to_scratch; left; left &= left - 1) {
        int lane = first_lane(left);
        int64_t place = scratch_place(m, wave, lane, a->address[lane]);
        memset(m->scratch_defined + place, 0xFF, (size_t)op->bytes);
        int64_t reg =
            tainted ? undefined_data(m, op, op->data, wave, lane, op->bytes, undefined) : -1;
        if (reg < 0)
            continue;
        for (int i = 0; i < op->bytes; i++) {
            m->scratch_defined[place + i] = (uint8_t)~undefined[i];
            m->scratch_origin[(place + i) / 4] = *origin_of(m, reg, wave);
        }
    }
}

#endif
