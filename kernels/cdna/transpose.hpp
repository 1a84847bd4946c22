// Transposing blocks of an operand in registers: from vectors along rows to dwords along k.
//
// A block is `depth` vectors of 16 bytes, one for each k, each of them neighbouring rows. Row j of
// the transposed block is depth elements of k; `transposed_word` gives dword i of it. Elements of 4
// to 16 bytes only change places, which costs nothing; smaller ones take v_perm_b32. Everything is
// unrolled, so the compiler shares what two rows have in common.
#pragma once

#include "cdna/mfma.hpp"

namespace cupygemm {

// Halves `odd` of two words, of k and k + 1.
CUPYGEMM_INLINE u32 interleave_halves(u32 k0, u32 k1, bool odd) {
    return __builtin_amdgcn_perm(k1, k0, odd ? 0x07060302u : 0x05040100u);
}

// Bytes of the lower or the upper half of two words in turn: k0 k1 k0 k1, from the lowest byte.
CUPYGEMM_INLINE u32 interleave_bytes(u32 k0, u32 k1, bool upper) {
    return __builtin_amdgcn_perm(k1, k0, upper ? 0x07030602u : 0x05010400u);
}

template <int element_bytes> CUPYGEMM_INLINE u32 transposed_word(const u32x4 *block, int j, int i) {
    if constexpr (element_bytes == 16) {
        return block[0][i];
    } else if constexpr (element_bytes == 8) {
        return block[i / 2][2 * j + i % 2];
    } else if constexpr (element_bytes == 4) {
        return block[i][j];
    } else if constexpr (element_bytes == 2) {
        return interleave_halves(block[2 * i][j / 2], block[2 * i + 1][j / 2], j % 2 != 0);
    } else {
        const int from = j / 4;
        const bool upper = j % 4 >= 2;
        const u32 k01 = interleave_bytes(block[4 * i][from], block[4 * i + 1][from], upper);
        const u32 k23 = interleave_bytes(block[4 * i + 2][from], block[4 * i + 3][from], upper);
        return interleave_halves(k01, k23, j % 2 != 0);
    }
}

} // namespace cupygemm
