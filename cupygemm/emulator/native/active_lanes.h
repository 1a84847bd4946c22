/* Write a row of 64 lanes where they are active. */
#ifndef CUPYGEMM_ACTIVE_LANES_H
#define CUPYGEMM_ACTIVE_LANES_H

#include "operation.h"

#include <string.h>

/* The bits of half a wave's mask, so that testing them for 32 lanes is one vector operation. */
#define FOUR_BITS(low) 1u << (low), 2u << (low), 4u << (low), 8u << (low)
static const uint32_t LANE_BITS[32]
    __attribute__((unused)) = {FOUR_BITS(0),  FOUR_BITS(4),  FOUR_BITS(8),  FOUR_BITS(12),
                               FOUR_BITS(16), FOUR_BITS(20), FOUR_BITS(24), FOUR_BITS(28)};

typedef uint32_t eight_lanes __attribute__((vector_size(32), aligned(4), may_alias));

/* Replace the values of some lanes. The row is read as volatile, so that the compiler does not turn
 * selecting and writing into a masked store: without AVX-512, AMD's processors take ten times as
 * long for that. */
static inline void replace_lanes(uint32_t *row, const uint32_t *value, uint64_t lanes) {
    if (lanes == ~0ull) {
        memcpy(row, value, LANES * sizeof *row);
        return;
    }
    for (int k = 0; k < LANES; k += 8) {
        const eight_lanes bits = *(const eight_lanes *)(LANE_BITS + k % 32);
        const eight_lanes chosen = (eight_lanes)((bits & (uint32_t)(lanes >> (k & 32))) != 0);
        const eight_lanes before = *(const volatile eight_lanes *)(row + k);
        const eight_lanes after = *(const eight_lanes *)(value + k);
        *(eight_lanes *)(row + k) = (after & chosen) | (before & ~chosen);
    }
}

#endif
