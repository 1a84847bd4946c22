/* Fused dot products whose operands are all moderate numbers: nearly all products of a program.
 *
 * All nonzero products are then float32 numbers with exponents from LOWEST_PRODUCT on, and the
 * hardware's sums fit in 32-bit integers. `mfma_tiles.h` has the same sum for any operands. */
#ifndef CUPYGEMM_MFMA_NUMBERS_H
#define CUPYGEMM_MFMA_NUMBERS_H

#include "mfma_tiles.h"

/* ---- Operands ---- */

/* Whether an operand is bf16 with 16 or more rows, which neighbouring lanes hold in order. */
static inline int is_plain_bf16(const placement *p, int truncate) {
    return p->format->bits == 16 && p->format->bias == 127 && p->per_lane % 2 == 0 &&
           p->rows % COLUMNS == 0 && !p->chunked && !p->lane && !truncate;
}

/* Store 16 bf16 numbers, given as float32, and their exponents at index `at`. */
ALWAYS_INLINE void note_numbers(operand *into, size_t at, ints bits, ints *low, ints *high) {
    const ints exponent = __builtin_elementwise_max(bits >> 23 & 0xFF, 1 - (ints){0}) - 127;
    const ints is_zero = bits << 1 == 0;
    memcpy(into->number + at, &bits, sizeof bits);
    memcpy(into->exponent + at, &exponent, sizeof exponent);
    *low = __builtin_elementwise_min(*low, (exponent & ~is_zero) | (INT32_MAX & is_zero));
    *high = __builtin_elementwise_max(*high, exponent);
}

/* The work of decode_operand and find_extremes on such an operand, in one pass. */
WIDE static void decode_bf16(const wave_registers *file, const placement *p, operand *into) {
    const ints none = {0};
    ints low = INT32_MAX - none, high = INT32_MIN - none;
    for (int pair = 0; pair < p->per_lane / 2; pair++) {
        const uint32_t *words = row_of(file, p->reg + pair);
        for (int lane = 0; lane < LANES; lane += COLUMNS) {
            ints both;
            memcpy(&both, words + lane, sizeof both);
            size_t k = (size_t)(lane / p->rows * p->per_lane + 2 * pair);
            size_t at = k * (size_t)p->rows + (size_t)(lane % p->rows);
            note_numbers(into, at, both << 16, &low, &high);
            note_numbers(into, at + (size_t)p->rows, both & (int32_t)0xFFFF0000, &low, &high);
        }
    }
    into->pitch = p->rows;
    into->lowest = __builtin_reduce_min(low);
    into->highest = __builtin_reduce_max(high);
    into->special = into->highest == 128;
}

/* ---- Sums ---- */

/* Add in integers, as `add_c` does. Sum and C are added in units of 2^(top - 24), to which C is
 * rounded down. If C exceeds the products by more than 5 powers of two, the units are larger by
 * `shift`: bits of the sum that are 31 below C are dropped (rounding down), and the lowest
 * remaining bit then also stands for all bits that are too small for the units. */
ALWAYS_INLINE floats add_in_units(ints total, ints top, ints c_exponent, floats c) {
    const ints none = {0}, above = c_exponent - top;
    ints unit = top - 24;
    if (__builtin_reduce_or(above > 5)) {
        const ints shift = __builtin_elementwise_max(above - 5, none);
        const ints kept = __builtin_elementwise_min(shift, 2 - none);
        const ints dropped = __builtin_elementwise_min(shift - kept, 31 - none);
        const ints cut = total >> dropped, whole = cut >> kept;
        total = whole | (((whole << kept) != cut) & 1);
        unit += shift;
    }
    /* A C far below the units may be treated as a larger one: it is rounded down in both cases. */
    const ints power = __builtin_elementwise_max(-unit, -36 - c_exponent);
    const floats addend = c * (floats)((power + 127) << 23);
    total += __builtin_convertvector(__builtin_elementwise_floor(addend), ints);
    return __builtin_convertvector(total, floats) * (floats)((unit + 127) << 23);
}

/* The same where C is Inf or NaN, or the products of a column are all 0. */
WIDE static __attribute__((noinline)) void add_unusual_c(const ints *sum, const ints *products_top,
                                                         const ints *c_exponent, floats *c) {
    const ints none = {0}, is_zero = *products_top < LOWEST_PRODUCT;
    if (__builtin_reduce_or((*c_exponent > 127) | (is_zero & (*c_exponent < *products_top)))) {
        add_c(sum, products_top, 0, c);
        return;
    }
    const ints top = __builtin_elementwise_max(*products_top, LOWEST_PRODUCT - none);
    const floats result = add_in_units(*sum, top, *c_exponent, *c);
    *c = (floats)((is_zero & (ints)(*c + 0.0f)) | (~is_zero & (ints)result));
}

ALWAYS_INLINE floats add_number_c(ints sum, ints top, floats c) {
    const ints none = {0}, field = (ints)c >> 23 & 0xFF;
    const ints c_exponent = __builtin_elementwise_max(field, 1 - none) - 127;
    const int is_unusual = __builtin_reduce_or((c_exponent > 127) | (top < LOWEST_PRODUCT));
    if (!__builtin_expect(is_unusual, 0))
        return add_in_units(sum, top, c_exponent, c);
    /* Copies, so that the others stay in registers. */
    const ints sum_copy = sum, top_copy = top, exponent_copy = c_exponent;
    floats c_copy = c;
    add_unusual_c(&sum_copy, &top_copy, &exponent_copy, &c_copy);
    return c_copy;
}

/* The sum of `group` products of one row from element k on, and their largest exponent. */
ALWAYS_INLINE ints sum_of_group(const float *a, const int32_t *a_exponent, size_t pitch, int group,
                                const floats *b, const ints *b_exponent, ints *top) {
    floats product[8];
    UNROLLED
    for (int q = 0; q < group; q++) {
        const ints exponent = a_exponent[(size_t)q * pitch] + b_exponent[q];
        product[q] = a[(size_t)q * pitch] * b[q];
        *top = q ? __builtin_elementwise_max(*top, exponent) : exponent;
    }
    return sum_of_numbers(product, *top, group);
}

/* Two rows at a time share the elements of B, and neither waits for the other's sum. */
ALWAYS_INLINE void add_rows(const tile *t, int group, uint32_t *const *into) {
    const size_t a_pitch = (size_t)t->a_pitch, b_pitch = (size_t)t->b->pitch;
    const float *a = t->a->number + t->a_offset, *b = t->b->number + t->b_offset;
    const int32_t *ea = t->a->exponent + t->a_offset, *eb = t->b->exponent + t->b_offset;
    floats first, second;
    memcpy(&first, into[0], sizeof first);
    memcpy(&second, into[1], sizeof second);
    for (int k = 0; k < t->k; k += group) {
        floats number[8];
        ints exponent[8], top;
        UNROLLED
        for (int q = 0; q < group; q++) {
            memcpy(&number[q], b + (size_t)q * b_pitch, sizeof *number);
            memcpy(&exponent[q], eb + (size_t)q * b_pitch, sizeof *exponent);
        }
        const ints sum = sum_of_group(a, ea, a_pitch, group, number, exponent, &top);
        first = add_number_c(sum, top, first);
        const ints next = sum_of_group(a + 1, ea + 1, a_pitch, group, number, exponent, &top);
        second = add_number_c(next, top, second);
        a += (size_t)group * a_pitch, ea += (size_t)group * a_pitch;
        b += (size_t)group * b_pitch, eb += (size_t)group * b_pitch;
    }
    memcpy(into[0], &first, sizeof first);
    memcpy(into[1], &second, sizeof second);
}

WIDE static void numbers_of_rows(const tile *t, uint32_t *const *into) {
    if (t->group == 4)
        add_rows(t, 4, into);
    else
        add_rows(t, 8, into);
}

ALWAYS_INLINE void fused_numbers(const tile *t, int group, vector32 *into) {
    floats c;
    memcpy(&c, into, sizeof c);
    for (int k = 0; k < t->k; k += group) {
        ints sum, top;
        aligned_sum(t, 0, 1, k, 1, group, &sum, &top);
        c = add_number_c(sum, top, c);
    }
    memcpy(into, &c, sizeof c);
}

WIDE static void fused_numbers_tile(const tile *t, vector32 *c) {
    if (t->group == 4)
        fused_numbers(t, 4, c);
    else
        fused_numbers(t, 8, c);
}

#endif
