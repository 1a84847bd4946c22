/* Which bytes of device memory have been written, and which bits of a load come from others.
 *
 * Fresh memory holds the byte 0xA5, so that a load is looked at closely only where it found some of
 * these. Loading what nothing has written is no fault, nor is copying it: Python follows the bits
 * through the registers and reports the instruction that computes with them. */
#ifndef CUPYGEMM_DEFINEDNESS_H
#define CUPYGEMM_DEFINEDNESS_H

#include "addresses.h"

enum { POISON = 0xA5 };

static inline bool watched(const struct machine *m, uint64_t address) {
    return address >= m->global_base && address < m->global_end;
}

static inline void define_bytes(const struct machine *m, uint64_t address, int bytes) {
    uint64_t first = address - m->global_base;
    uint32_t bits = (uint32_t)low_bits(bytes) << (first & 7);
    for (uint8_t *p = m->defined + (first >> 3); bits; bits >>= 8)
        *p++ |= (uint8_t)bits;
}

static inline bool is_defined(const struct machine *m, uint64_t address) {
    uint64_t place = address - m->global_base;
    return m->defined[place >> 3] >> (place & 7) & 1;
}

static inline bool holds_poison(const uint8_t *p, int bytes) {
    bool found = false;
    for (int i = 0; i < bytes; i++)
        found |= p[i] == POISON;
    return found;
}

/* The bits of the result registers that byte `i` of an access decides. */
static inline uint32_t bits_of_byte(enum format format, int i) {
    switch (format) {
    case S8:
    case S16: return ~0u;
    case U8_HIGH:
    case S8_HIGH:
    case U16_HIGH: return 0xFF0000u << 8 * i;
    default: return 0xFFu << 8 * (i & 3);
    }
}

static inline void note_undefined(struct machine *m, const struct operation *op, int64_t wave,
                                  const struct access *a) {
    if (!m->defined)
        return;
    for (uint64_t left = a->exec & ~(a->to_lds | a->to_scratch); left; left &= left - 1) {
        int lane = first_lane(left), bytes = a->bytes[lane];
        uint64_t address = a->address[lane];
        if (!bytes || !watched(m, address) || !holds_poison(a->pointer[lane], bytes))
            continue;
        uint32_t found = 0;
        for (int i = 0; i < bytes; i++)
            if (!is_defined(m, address + (uint64_t)i)) {
                uint32_t bits = bits_of_byte((enum format)op->format, i);
                m->undefined[wave][op->format == DWORDS ? i / 4 : 0] |= bits;
                found |= bits;
            }
        if (found && !m->num_undefined++)
            m->undefined_address = address;
    }
}

static inline void note_defined(const struct machine *m, const struct access *a) {
    if (!m->defined)
        return;
    for (uint64_t left = a->exec & ~(a->to_lds | a->to_scratch); left; left &= left - 1) {
        int lane = first_lane(left);
        if (a->bytes[lane] && watched(m, a->address[lane]))
            define_bytes(m, a->address[lane], a->bytes[lane]);
    }
}

#endif
