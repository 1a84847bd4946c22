// LDS accesses, one instruction each, by 32-bit LDS address.
#pragma once

#include "cdna/mfma.hpp"

namespace cupygemm {

template <class T> using LdsPointer = __attribute__((address_space(3))) T *;

using LdsBase = LdsPointer<u8>;

CUPYGEMM_INLINE u32x4 ds_read_b128(LdsBase base, u32 offset) {
    return *reinterpret_cast<LdsPointer<u32x4>>(base + offset);
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
