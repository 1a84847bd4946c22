/* Typed buffer accesses by the lanes of a wave, and the undefined bits that go through them. */
#ifndef CUPYGEMM_TYPED_LANES_H
#define CUPYGEMM_TYPED_LANES_H

#include "addresses.h"
#include "typed.h"

/* The operation with the formats of a wave's buffer resource, if it is typed; `own` is storage
 * for it. */
static inline const struct operation *with_format(const struct machine *m,
                                                  const struct operation *op, int64_t wave,
                                                  struct operation *own) {
    if (op->format != TYPED)
        return op;
    *own = *op;
    if (op->data_format < 0) {
        uint32_t word = scalar(m, op->resource + 3, wave);
        own->data_format = word >> 15 & 15;
        own->number = word >> 12 & 7;
        own->selects = word & 0xFFF;
    }
    own->bytes = typed_bytes(own->data_format);
    return own;
}

/* Whether a resource exchanges no components that an element has. */
static inline bool keeps_order(const struct operation *op) {
    const uint8_t *bits = COMPONENT_BITS[op->data_format];
    for (int c = 0; c < 4 && bits[c]; c++)
        if (c < op->channels && selected_component(op, c) != c)
            return false;
    return true;
}

/* Look for undefined formats and misaligned elements. */
static inline int check_elements(struct machine *m, const struct operation *op,
                                 const struct access *a) {
    int lane = first_lane(a->exec);
    bool writes = op->kind == STORE;
    if (!is_typed_format(op->data_format, op->number)) {
        int code = raise(m, TYPED_FORMAT, lane, a->address[lane], op->bytes, writes);
        m->fault.other = op->data_format | op->number << 4;
        m->fault.lanes = a->exec;
        return code;
    }
    if (writes && !keeps_order(op))
        return raise(m, TYPED_SELECTS, lane, a->address[lane], op->bytes, writes);
    int code = OK;
    uint64_t below = (uint64_t)(op->bytes < 4 ? op->bytes : 4) - 1;
    for (uint64_t left = a->exec; left; left &= left - 1) {
        int k = first_lane(left);
        if (a->bytes[k] && a->address[k] & below)
            code = raise_more(m, code, TYPED_MISALIGNED, k, a->address[k], op->bytes, writes);
    }
    return code;
}

static inline void load_elements(const struct operation *op, uint32_t *row, size_t pitch,
                                 uint64_t exec, uint8_t *const *pointer, const uint8_t *count) {
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        load_element(op, !count || count[lane] ? pointer[lane] : NULL, row, pitch, lane, false);
    }
}

/* Assemble the element that a lane stores, and tell whether it differs from memory. */
static inline bool changes_element(const struct operation *op, const uint32_t *row, size_t pitch,
                                   int lane, const uint8_t *memory, uint8_t *element) {
    make_element(op, row, pitch, lane, false, element);
    return memcmp(memory, element, (size_t)op->bytes) != 0;
}

static inline void store_elements(const struct operation *op, const uint32_t *row, size_t pitch,
                                  uint64_t exec, uint8_t *const *pointer, const uint8_t *count) {
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        uint8_t element[ELEMENT_BYTES + 4];
        if (count && !count[lane])
            continue;
        memory_changes += changes_element(op, row, pitch, lane, pointer[lane], element);
        memcpy(pointer[lane], element, (size_t)op->bytes);
    }
}

/* The lanes whose element is not in memory. */
static inline uint64_t lost_elements(const struct operation *op, const uint32_t *row, size_t pitch,
                                     uint64_t exec, uint8_t *const *pointer, const uint8_t *count) {
    uint64_t lost = 0;
    for (uint64_t left = exec; left; left &= left - 1) {
        int lane = first_lane(left);
        uint8_t element[ELEMENT_BYTES + 4];
        if (count && !count[lane])
            continue;
        lost |= (uint64_t)changes_element(op, row, pitch, lane, pointer[lane], element) << lane;
    }
    return lost;
}

/* Get the undefined bits of the element that a lane stores; returns the register of the first. */
static inline int64_t undefined_element(const struct operation *op, const uint32_t *row,
                                        size_t pitch, int lane, int64_t data, uint8_t *undefined) {
    uint8_t element[ELEMENT_BYTES + 4];
    make_element(op, row, pitch, lane, true, element);
    memcpy(undefined, element, ELEMENT_BYTES);
    bool any = false;
    for (int i = 0; i < op->bytes; i++)
        any |= undefined[i] != 0;
    if (!any)
        return -1;
    for (int d = 0; d < op->dwords; d++)
        if (row[(size_t)d * pitch + (size_t)lane])
            return data + d;
    return data;
}

/* Mark the registers of a lane that received undefined components in a load; returns their bits. */
static inline uint32_t mark_element(const struct machine *m, const struct operation *op,
                                    int64_t result, int64_t wave, int lane,
                                    const uint8_t *undefined, int32_t origin) {
    uint32_t bits[4] = {0}, any = 0;
    load_element(op, undefined, bits, 1, 0, true);
    for (int d = 0; d < op->dwords; d++) {
        if (!bits[d])
            continue;
        undefined_row(m, result + d, wave)[lane] |= bits[d];
        *origin_of(m, result + d, wave) = origin;
        any |= bits[d];
    }
    return any;
}

#endif
