// LDS accesses by 32-bit LDS address, one instruction each.
//
// Reads take their address as __restrict. Before an LDS read without alias information, the
// compiler would wait for every outstanding load to LDS. With a __restrict scope it leaves the
// order to the explicit waits and barriers of waitcnt.hpp. tests/kernels/test_direct_to_lds.py
// checks that no such wait appears. Transposing reads compile only where the target has them
// (has_transposing_reads).
#pragma once

#include "cdna/mfma.hpp"

namespace cupygemm {

template <class T> using LdsPointer = __attribute__((address_space(3))) T *;

using LdsBase = LdsPointer<u8>;

CUPYGEMM_INLINE u32x4 ds_read_b128(LdsBase __restrict base, u32 offset) {
    return *reinterpret_cast<LdsPointer<u32x4>>(base + offset);
}

// A block of 16 lanes reads 8 runs of 16 bytes, 2 lanes to a run, and each lane receives one of the
// 16 columns: element e of lane l is byte l % 8 of what lane 2 e + l % 16 / 8 of its block
// points at.
CUPYGEMM_INLINE u32x2 ds_read_b64_tr_b8(LdsBase __restrict base, u32 offset) {
    return __builtin_bit_cast(u32x2, __builtin_amdgcn_ds_read_tr8_b64_v2i32(
                                         reinterpret_cast<LdsPointer<i32x2>>(base + offset)));
}

// A block of 16 lanes reads 4 runs of 16 half-words, 4 lanes to a run, and each lane receives one
// of the 16 columns: element e of lane l is half-word l % 4 of what lane 4 e + l % 16 / 4 of its
// block points at.
CUPYGEMM_INLINE u32x2 ds_read_b64_tr_b16(LdsBase __restrict base, u32 offset) {
    return __builtin_bit_cast(u32x2, __builtin_amdgcn_ds_read_tr16_b64_v4i16(
                                         reinterpret_cast<LdsPointer<i16x4>>(base + offset)));
}

CUPYGEMM_INLINE void ds_write_b128(LdsBase base, u32 offset, u32x4 data) {
    *reinterpret_cast<LdsPointer<u32x4>>(base + offset) = data;
}

CUPYGEMM_INLINE void ds_write_b64(LdsBase base, u32 offset, u32x2 data) {
    *reinterpret_cast<LdsPointer<u32x2>>(base + offset) = data;
}

CUPYGEMM_INLINE void ds_write_b32(LdsBase base, u32 offset, u32 data) {
    *reinterpret_cast<LdsPointer<u32>>(base + offset) = data;
}

} // namespace cupygemm
