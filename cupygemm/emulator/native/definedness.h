/* Undefined bits in memory, and how loads carry them to registers; stored_definedness.h has stores.
 *
 * A program may load bytes that nothing has written, and may store them in LDS or private memory:
 * each register has a word of undefined bits for each lane, which move with the data.
 * Python follows them from register to register (cupygemm/emulator/definedness); here, data that
 * are stored to global memory or passed to an atomic must be defined. Only three kinds of undefined
 * data may be stored there, and leave the target undefined: a copy of global memory; elements of
 * matrix products, of which a tile may have more than the matrix (and a workspace may hold them);
 * and bytes beside defined ones in a copy from LDS or private memory: structures have padding.
 *
 * Fresh device memory holds the byte 0xA5, so a load is examined closely only if it found
 * such bytes. LDS is undefined where a record of shadow.h is TAINTED or not WRITTEN;
 * private memory has a bit for each byte that has been written. */
#ifndef CUPYGEMM_DEFINEDNESS_H
#define CUPYGEMM_DEFINEDNESS_H

#include "addresses.h"
#include "lanes.h"
#include "shadow.h"
#include "typed_lanes.h"

enum { POISON = 0xA5 };

/* An origin: the program counter of the load times 2, and the space in bits 1-2. Bit 0: the value
 * has been computed with; bit 30: by a matrix instruction. Bit 29: a lane exchange has read a lane
 * that was switched off. FROM_REGISTER has the register's number times 8 instead. */
enum { COMPUTED = 1, FROM_REGISTER = 0, FROM_GLOBAL = 2, FROM_LDS = 4, FROM_PRIVATE = 6 };
enum { ORIGIN_SPACE = 6, BY_MATRIX = 1 << 30, INACTIVE = 1 << 29 };

/* -- global memory ----------------------------------------------------------------------------- */

static inline bool watched(const struct machine *m, uint64_t address) {
    return address >= m->global_base && address < m->global_end;
}

static inline void define_bytes(const struct machine *m, uint64_t address, int bytes) {
    uint64_t first = address - m->global_base;
    uint32_t bits = (uint32_t)low_bits(bytes) << (first & 7);
    for (uint8_t *p = m->defined + (first >> 3); bits; bits >>= 8)
        *p++ |= (uint8_t)bits;
}

static inline void define_stretch(const struct machine *m, uint64_t address, int bytes) {
    for (; bytes && address & 7; bytes--)
        define_bytes(m, address++, 1);
    memset(m->defined + ((address - m->global_base) >> 3), 0xFF, (size_t)bytes / 8);
    if (bytes % 8)
        define_bytes(m, address + (uint64_t)(bytes & ~7), bytes % 8);
}

static inline void undefine_byte(const struct machine *m, uint64_t address) {
    uint64_t place = address - m->global_base;
    m->defined[place >> 3] &= (uint8_t)~(1u << (place & 7));
}

static inline bool is_defined(const struct machine *m, uint64_t address) {
    uint64_t place = address - m->global_base;
    return m->defined[place >> 3] >> (place & 7) & 1;
}

/* Whether all bytes of a range were written. */
static inline bool all_defined(const struct machine *m, uint64_t address, uint64_t bytes) {
    if (!bytes || !watched(m, address) || !watched(m, address + bytes - 1))
        return false;
    uint64_t first = address - m->global_base, last = first + bytes - 1;
    const uint8_t *p = m->defined + (first >> 3);
    int64_t whole = (int64_t)(last >> 3) - (int64_t)(first >> 3);
    uint8_t from = (uint8_t)(0xFFu << (first & 7)), to = (uint8_t)(0xFFu >> (7 - (last & 7)));
    if (!whole)
        return !(~p[0] & from & to);
    uint8_t missing = (uint8_t)((~p[0] & from) | (~p[whole] & to));
    for (int64_t i = 1; i < whole; i++)
        missing |= (uint8_t)~p[i];
    return !missing;
}

/* Nonzero if a byte of a dword is POISON. */
static inline uint32_t poison_in(uint32_t word) {
    uint32_t zeros = word ^ POISON * 0x01010101u;
    return (zeros - 0x01010101u) & ~zeros & 0x80808080u;
}

static inline bool holds_poison(const uint8_t *p, int bytes) {
    bool found = false;
    for (int i = 0; i < bytes; i++)
        found |= p[i] == POISON;
    return found;
}

/* Get the undefined bits of `bytes` bytes of global memory, one byte each; returns whether any is
 * set. */
static inline bool undefined_global(const struct machine *m, uint64_t address,
                                    const uint8_t *pointer, int bytes, uint8_t *undefined) {
    if (!m->defined || !watched(m, address) || all_defined(m, address, (uint64_t)bytes) ||
        !holds_poison(pointer, bytes))
        return false;
    bool found = false;
    for (int i = 0; i < bytes; i++) {
        undefined[i] = is_defined(m, address + (uint64_t)i) ? 0 : 0xFF;
        found |= undefined[i] != 0;
    }
    return found;
}

/* -- private memory ---------------------------------------------------------------------------- */

static inline int64_t scratch_place(const struct machine *m, int64_t wave, int lane,
                                    uint64_t offset) {
    return (wave * LANES + lane) * m->scratch_bytes + (int64_t)offset;
}

/* -- LDS --------------------------------------------------------------------------------------- */

static inline int64_t lds_place(const struct lds_view *v, uint32_t address) {
    return v->m->workgroup[v->wave] * v->m->lds_bytes + address;
}

/* The size of LDS is rounded up to a multiple of 4, so that each workgroup starts at a word. */
static inline int32_t *lds_origin(const struct lds_view *v, uint32_t address) {
    int64_t words = (v->m->lds_bytes + 3) / 4;
    return v->m->lds_origin + v->m->workgroup[v->wave] * words + address / 4;
}

static inline bool undefined_lds(const struct lds_view *v, uint32_t address, int bytes,
                                 uint8_t *undefined, int32_t *origin) {
    bool found = false;
    for (int i = 0; i < bytes; i++) {
        uint32_t place = address + (uint32_t)i;
        uint64_t write = v->records[place >> v->m->shadow_shift].write;
        undefined[i] = !(write & WRITTEN)  ? 0xFF
                       : (write & TAINTED) ? v->m->lds_undefined[lds_place(v, place)]
                                           : 0;
        if (undefined[i] && write & WRITTEN)
            *origin = *lds_origin(v, place);
        found |= undefined[i] != 0;
    }
    return found;
}

/* Mark the undefined bits of data that were just written to LDS. */
static inline void taint_lds(const struct lds_view *v, uint32_t address, int bytes,
                             const uint8_t *undefined, int32_t origin) {
    bool found = false;
    for (int i = 0; i < bytes; i++)
        found |= undefined[i] != 0;
    if (!found || !v->m->shadow)
        return;
    int n;
    struct record *r = granules(v, address, bytes, &n);
    for (int i = 0; i < n; i++)
        r[i].write |= TAINTED;
    memcpy(v->m->lds_undefined + lds_place(v, address), undefined, (size_t)bytes);
    for (int i = 0; i < bytes; i++)
        *lds_origin(v, address + (uint32_t)i) = origin;
}

/* A direct-to-LDS load of less than a dword extends it: then the whole dword is undefined. */
static inline void taint_loaded_lds(const struct lds_view *v, const struct operation *op,
                                    uint32_t address, int bytes, uint8_t *undefined,
                                    int32_t origin) {
    if (op->format != DWORDS)
        memset(undefined, 0xFF, (size_t)(bytes = 4));
    uint8_t all[16] = {0};
    memcpy(all, undefined, (size_t)bytes);
    taint_lds(v, address, 4 * op->dwords, all, origin);
}

/* -- loads ------------------------------------------------------------------------------------- */

/* Put the undefined bits of a lane's bytes where load_lanes puts the bytes. */
static inline void note_load(struct machine *m, const struct operation *op, int64_t result,
                             int64_t wave, int lane, int bytes, const uint8_t *undefined,
                             uint64_t address, int32_t origin) {
    uint32_t any = 0;
    if (op->format == TYPED) {
        any = mark_element(m, op, result, wave, lane, undefined, origin);
        bytes = 0;
    }
    for (int i = 0; i < bytes; i++) {
        uint32_t bits = undefined[i];
        if (!bits)
            continue;
        int64_t reg = result;
        switch (op->format) {
        case DWORDS:
            reg += i / 4;
            bits <<= 8 * (i & 3);
            break;
        case S8:
        case S16: bits = ~0u; break;
        case U8_HIGH:
        case S8_HIGH:
        case U16_HIGH: bits <<= 16 + 8 * i; break;
        default: bits <<= 8 * i;
        }
        undefined_row(m, reg, wave)[lane] |= bits;
        *origin_of(m, reg, wave) = origin;
        any |= bits;
    }
    if (any && !m->num_undefined++)
        memset(m->undefined_address, 0, (size_t)m->num_waves * sizeof *m->undefined_address);
    if (any && !m->undefined_address[wave])
        m->undefined_address[wave] = address + 1; /* 0 is an address of LDS */
}

static inline int32_t origin_here(uint32_t pc, int32_t space) { return (int32_t)(2 * pc) | space; }

static inline void note_lds_load(struct machine *m, const struct operation *op,
                                 const struct lds_view *v, int64_t result, int lane,
                                 uint32_t address, uint32_t pc) {
    uint8_t undefined[16];
    int32_t origin = origin_here(pc, FROM_LDS);
    if (undefined_lds(v, address, op->bytes, undefined, &origin))
        note_load(m, op, result, v->wave, lane, op->bytes, undefined, address, origin);
}

/* The lanes in which a load of dwords has left a byte of POISON; inactive lanes count, too. */
static inline uint64_t poisoned_lanes(const struct machine *m, const struct operation *op,
                                      int64_t wave) {
    uint64_t found = 0;
    for (int d = 0; d < op->dwords; d++) {
        const uint32_t *row = vector_row(m, op->result + d, wave);
        for (int lane = 0; lane < LANES; lane++)
            found |= (uint64_t)(poison_in(row[lane]) != 0) << lane;
    }
    return found;
}

/* Whether all bytes were written that lanes load as whole words of 64 bits. */
static inline bool words_defined(const struct machine *m, const struct operation *op,
                                 const struct access *a, uint64_t lanes) {
    uint64_t extent = m->global_end - m->global_base, odd = 0;
    uint16_t missing = 0;
    if (!m->defined || a->partial || (op->bytes != 8 && op->bytes != 16))
        return false;
    for (uint64_t left = lanes; left; left &= left - 1) {
        uint64_t place = a->address[first_lane(left)] - m->global_base;
        if (place >= extent || extent - place < 16)
            return false;
        odd |= place;
        missing |= (uint16_t)~(m->defined[place / 8] | m->defined[place / 8 + 1] << 8);
    }
    return !(odd & 7) && !(op->bytes == 16 ? missing : missing & 0xFF);
}

/* Note the undefined bytes that `lanes` may have loaded. */
static inline void note_undefined(struct machine *m, const struct operation *op, int64_t wave,
                                  const struct access *a, uint64_t lanes, uint32_t pc) {
    if (!m->undefined)
        return;
    uint64_t stretch = (uint64_t)(a->adjacent * op->bytes);
    if (stretch && (!memchr(a->pointer[0], POISON, stretch) ||
                    (m->defined && all_defined(m, a->address[0], stretch))))
        return;
    uint8_t undefined[16];
    uint64_t global = lanes & a->exec & ~(a->to_lds | a->to_scratch);
    for (uint64_t left = words_defined(m, op, a, global) ? 0 : global; left; left &= left - 1) {
        int lane = first_lane(left), bytes = a->bytes[lane];
        if (bytes && undefined_global(m, a->address[lane], a->pointer[lane], bytes, undefined))
            note_load(m, op, op->result, wave, lane, bytes, undefined, a->address[lane],
                      origin_here(pc, FROM_GLOBAL));
    }
    for (uint64_t left = a->to_scratch; left; left &= left - 1) {
        int lane = first_lane(left);
        int64_t place = scratch_place(m, wave, lane, a->address[lane]);
        int32_t origin = origin_here(pc, FROM_PRIVATE);
        bool found = false;
        for (int i = 0; i < op->bytes; i++) {
            undefined[i] = (uint8_t)~m->scratch_defined[place + i];
            found |= undefined[i] != 0;
            if (undefined[i] && m->scratch_origin[(place + i) / 4])
                origin = m->scratch_origin[(place + i) / 4];
        }
        if (found)
            note_load(m, op, op->result, wave, lane, op->bytes, undefined, a->address[lane],
                      origin);
    }
}

#endif
