// Transposes blocks of an operand in registers: from vectors along rows to dwords along k.
//
// A block is `depth` 16-byte vectors, one for each k, each holding adjacent rows. Row j of the
// transposed block is `depth` elements along k; `transposed_word` returns its dword i. Elements of
// 4 to 16 bytes only change places, which costs nothing; smaller elements take v_perm_b32. All
// loops are unrolled, so the compiler shares the work that two rows have in common.
#pragma once

#include "cdna/mfma.hpp"

namespace cupygemm {

// The lower halves of two words, of k and of k + 1, or the upper halves if `odd`.
CUPYGEMM_INLINE u32 interleave_halves(u32 k0, u32 k1, bool odd) {
    return __builtin_amdgcn_perm(k1, k0, odd ? 0x07060302u : 0x05040100u);
}

// The lower or upper two bytes of two words, interleaved: k0 k1 k0 k1 from the lowest byte on.
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
