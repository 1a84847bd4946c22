/* The registers with undefined bits in the waves of a group; waves/marks.py has the same. */
#ifndef CUPYGEMM_UNDEFINED_REGISTERS_H
#define CUPYGEMM_UNDEFINED_REGISTERS_H

#include "loop.h"
#include "second_run.h"

static inline bool is_set(const uint64_t *mask, int64_t reg) {
    return mask[reg / 64] >> reg % 64 & 1;
}
static inline void set(uint64_t *mask, int64_t reg) { mask[reg / 64] |= 1ull << reg % 64; }
static inline void reset(uint64_t *mask, int64_t reg) { mask[reg / 64] &= ~(1ull << reg % 64); }

static inline bool any_bit(const uint32_t *words, int64_t count) {
    uint32_t any = 0;
    for (int64_t k = 0; k < count; k++)
        any |= words[k];
    return any != 0;
}

static inline uint32_t *scalar_bits(const struct machine *m, int64_t reg, int64_t wave) {
    return m->undefined_scalar + reg * m->num_waves + wave;
}

static inline int32_t *origin_at(const struct machine *m, int64_t number, int64_t wave) {
    if (number >= FIRST_SCALAR)
        return m->origin_scalar + (number - FIRST_SCALAR) * m->num_waves + wave;
    return origin_of(m, number, wave);
}

/* Whether a register has undefined bits in some lane of a wave. */
static inline bool is_affected(const struct machine *m, int64_t number, int64_t wave) {
    if (number >= FIRST_SCALAR)
        return *scalar_bits(m, number - FIRST_SCALAR, wave) != 0;
    return any_bit(undefined_row(m, number, wave), LANES);
}

/* Mark all bits of a vector register in the waves of the group that have never written it. */
static inline bool mark_unwritten(struct loop *l, int64_t reg) {
    struct waves group = group_waves(l);
    bool found = false;
    for (int64_t at = 0; at < group.count; at++) {
        int64_t wave = wave_at(group, at);
        uint8_t *unwritten = l->unwritten + reg * l->machine->num_waves + wave;
        if (!*unwritten)
            continue;
        memset(undefined_row(l->machine, reg, wave), 0xFF, LANES * sizeof(uint32_t));
        *origin_of(l->machine, reg, wave) = (int32_t)(8 * reg);
        *unwritten = 0;
        found = true;
    }
    if (found)
        set(l->marked, reg);
    return found;
}

/* Whether a register has undefined bits in some wave of the group. */
static inline bool is_exposed(struct loop *l, int64_t number) {
    bool is_scalar = number >= FIRST_SCALAR;
    int64_t reg = is_scalar ? number - FIRST_SCALAR : number;
    if (!is_set(is_scalar ? l->suspect_scalar : l->suspect_vector, reg))
        return false;
    if (!is_scalar && mark_unwritten(l, reg))
        return true;
    struct waves group = group_waves(l);
    for (int64_t at = 0; at < group.count; at++)
        if (is_affected(l->machine, number, wave_at(group, at)))
            return true;
    return false;
}

static inline bool is_any_exposed(struct loop *l, const struct registers *registers) {
    bool found = false;
    for (int k = 0; k < registers->count; k++)
        found |= is_exposed(l, registers->number[k]);
    return found;
}

static inline bool is_any_marked(const struct loop *l, const struct registers *registers) {
    bool found = false;
    for (int k = 0; k < registers->count; k++) {
        int64_t number = registers->number[k];
        found |= number >= FIRST_SCALAR ? is_set(l->suspect_scalar, number - FIRST_SCALAR)
                                        : is_set(l->marked, number);
    }
    return found;
}

/* Update the bit masks after the group has written a register. */
static inline void settle(struct loop *l, int64_t number, bool may_be_undefined) {
    struct machine *m = l->machine;
    int64_t reg = number % FIRST_SCALAR, waves = m->num_waves;
    if (number >= FIRST_SCALAR) {
        bool any = any_bit(scalar_bits(m, reg, 0), waves);
        (any ? set : reset)(l->suspect_scalar, reg);
        return;
    }
    struct waves group = group_waves(l);
    for (int64_t at = 0; at < group.count; at++)
        l->unwritten[reg * waves + wave_at(group, at)] = 0;
    if (may_be_undefined || is_set(l->marked, reg)) {
        if (any_bit(undefined_row(m, reg, 0), waves * LANES)) {
            set(l->marked, reg);
            set(l->suspect_vector, reg);
            return;
        }
        reset(l->marked, reg);
    }
    bool any = memchr(l->unwritten + reg * waves, 1, (size_t)waves) != NULL;
    (any ? set : reset)(l->suspect_vector, reg);
}

#endif
