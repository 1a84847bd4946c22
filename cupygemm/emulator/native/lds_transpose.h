/* How transposing LDS reads (CDNA4) distribute the data that the lanes read. */
#ifndef CUPYGEMM_LDS_TRANSPOSE_H
#define CUPYGEMM_LDS_TRANSPOSE_H

#include "machine.h"

static inline uint32_t take_bits(const uint32_t *words, int first, int bits) {
    uint64_t pair = words[first / 32] | (uint64_t)words[first / 32 + (first % 32 + bits > 32)]
                                            << 32;
    return (uint32_t)(pair >> first % 32) & ((1u << bits) - 1);
}

/* Each 16 consecutive lanes read a tile of 16 columns, its rows one after another: n elements of
 * 64 (or 96) bits from each lane, so 16/n lanes per row. Lane l receives column l%16, row 0 lowest.
 * CDNA4; the b16 layout as ROCm's rocjitsu states it (ROCm/rocm-systems, pull request 10175):
 * element n of lane l is element l%4 of lane 16(l/16) + (l/4)%4 + 4n. The narrower types follow
 * the same rule with their own n. */
static inline void transpose_tile(const struct operation *op, uint32_t (*read)[3],
                                  uint32_t (*written)[3]) {
    memset(written, 0, LANES * sizeof *written);
    int bits = op->element_bits, n = op->bytes * 8 / bits, lanes_per_row = 16 / n;
    for (int lane = 0; lane < LANES; lane++)
        for (int row = 0; row < n; row++) {
            int source = (lane & ~15) + row * lanes_per_row + lane % 16 / n;
            uint64_t value = take_bits(read[source], lane % n * bits, bits);
            int place = row * bits;
            value <<= place % 32;
            written[lane][place / 32] |= (uint32_t)value;
            if (value >> 32)
                written[lane][place / 32 + 1] |= (uint32_t)(value >> 32);
        }
}

#endif
