// Global memory through raw buffer resources: 32-bit offsets from a 64-bit base, with bounds checks
// in hardware.
//
// A Window spans the part of a matrix that a workgroup can reach: from a base, which 64-bit scalar
// arithmetic advances, to the matrix's last element. Loads beyond its end return zero and stores
// are dropped, so tails need no branches. A lane that must not take part passes `out_of_range` as
// its offset. cupygemm._backends.cdna.check.check keeps all offsets below 2 GiB, whatever the size
// of the matrix.
//
// The hardware checks whole dwords, and needs only dword alignment at any width. A matrix of
// elements narrower than a dword may begin or end in the middle of one: `resource` covers the whole
// dwords, and the remaining elements are loaded one by one through `exact_resource`.
#pragma once

#include "cdna/lds.hpp"
#include "cdna/mfma.hpp"

namespace cupygemm {

constexpr u32 out_of_range = 0x80000000u;

using Resource = __amdgpu_buffer_rsrc_t;

struct Window {
    u64 base;  // byte address; a multiple of 4 for loads
    i64 bytes; // from base to the end of the matrix

    CUPYGEMM_INLINE void advance(i64 step) {
        base += step;
        bytes -= step;
    }
};

// The last word of a descriptor: a raw buffer with 32-bit data format, without stride and swizzle
// (CDNA3 ISA, "Buffer Resource Descriptor").
constexpr u32 raw_buffer_of_dwords = 0x00027000;

CUPYGEMM_INLINE Resource make_resource(u64 base, u32 num_bytes) {
    return __builtin_amdgcn_make_buffer_rsrc(reinterpret_cast<void *>(base), 0, num_bytes,
                                             raw_buffer_of_dwords);
}

// The number of bytes that offsets can reach. (A 64-bit comparison would use the vector unit.)
CUPYGEMM_INLINE u32 reach(const Window &window) {
    const u32 beyond = static_cast<u32>(window.bytes >> 31);
    return beyond != 0 ? out_of_range : static_cast<u32>(window.bytes);
}

CUPYGEMM_INLINE Resource exact_resource(const Window &window) {
    return make_resource(window.base, reach(window));
}

// A window that does not exist reads as zero everywhere. (The mask cannot become a branch in the
// middle of a mainloop, as a conditional could.)
CUPYGEMM_INLINE Resource resource(const Window &window, bool exists = true) {
    return make_resource(window.base, reach(window) & ~3u & (0u - exists));
}

// `scalar_offset` must be uniform. The bounds check includes it.
CUPYGEMM_INLINE u32x4 buffer_load_b128(Resource resource, u32 offset, u32 scalar_offset = 0) {
    return __builtin_amdgcn_raw_buffer_load_b128(resource, static_cast<int>(offset),
                                                 static_cast<int>(scalar_offset), 0);
}

CUPYGEMM_INLINE u32x2 buffer_load_b64(Resource resource, u32 offset) {
    return __builtin_amdgcn_raw_buffer_load_b64(resource, static_cast<int>(offset), 0, 0);
}

// Load `direct_load_bytes` per lane to LDS address `wave_base` + direct_load_bytes * lane. The wave
// base is uniform and travels in M0. The bounds check includes `scalar_offset`; lanes out of range
// write zeros. The load counts in vmcnt, like any other.
CUPYGEMM_INLINE void buffer_load_lds(Resource resource, LdsBase wave_base, u32 offset,
                                     u32 scalar_offset) {
    __builtin_amdgcn_raw_ptr_buffer_load_lds(resource, (LdsPointer<void>)wave_base,
                                             direct_load_bytes, static_cast<int>(offset),
                                             static_cast<int>(scalar_offset), 0, 0);
}

CUPYGEMM_INLINE u32 buffer_load_b32(Resource resource, u32 offset) {
    return __builtin_amdgcn_raw_buffer_load_b32(resource, static_cast<int>(offset), 0, 0);
}

CUPYGEMM_INLINE u32 buffer_load_u16(Resource resource, u32 offset) {
    return __builtin_amdgcn_raw_buffer_load_b16(resource, static_cast<int>(offset), 0, 0);
}

CUPYGEMM_INLINE u32 buffer_load_u8(Resource resource, u32 offset) {
    return __builtin_amdgcn_raw_buffer_load_b8(resource, static_cast<int>(offset), 0, 0);
}

CUPYGEMM_INLINE void buffer_store_b128(u32x4 data, Resource resource, u32 offset) {
    __builtin_amdgcn_raw_buffer_store_b128(data, resource, static_cast<int>(offset), 0, 0);
}

CUPYGEMM_INLINE void buffer_store_b64(u32x2 data, Resource resource, u32 offset) {
    __builtin_amdgcn_raw_buffer_store_b64(data, resource, static_cast<int>(offset), 0, 0);
}

CUPYGEMM_INLINE void buffer_store_bits(u64 data, Resource resource, u32 offset) {
    buffer_store_b64(__builtin_bit_cast(u32x2, data), resource, offset);
}

CUPYGEMM_INLINE void buffer_store_bits(u64_pair data, Resource resource, u32 offset) {
    buffer_store_b128(__builtin_bit_cast(u32x4, data), resource, offset);
}

CUPYGEMM_INLINE void buffer_store_bits(u32 data, Resource resource, u32 offset) {
    __builtin_amdgcn_raw_buffer_store_b32(data, resource, static_cast<int>(offset), 0, 0);
}

CUPYGEMM_INLINE void buffer_store_bits(u16 data, Resource resource, u32 offset) {
    __builtin_amdgcn_raw_buffer_store_b16(data, resource, static_cast<int>(offset), 0, 0);
}

CUPYGEMM_INLINE void buffer_store_bits(u8 data, Resource resource, u32 offset) {
    __builtin_amdgcn_raw_buffer_store_b8(data, resource, static_cast<int>(offset), 0, 0);
}

} // namespace cupygemm
