// wgmma: a warpgroup multiplies tiles in shared memory into accumulators in registers.
//
// cupygemm._backends.hopper.compilation.source generates the instruction itself, `wgmma_mma_async`,
// for the kernel's types and tile width, because it names every accumulator register. Operand tiles
// have the 128-byte swizzle that TMA writes, in blocks of 64 rows by 128 bytes: 8 KiB, aligned to 1
// KiB. Source: PTX ISA 9.0, "Asynchronous warpgroup level matrix instructions".
#pragma once

#include "common/layout.hpp"
#include "hopper/mbarrier.cuh"

namespace cupygemm {

constexpr u32 slab_bytes = 128; // one swizzled row, along the operand's contiguous axis
constexpr u32 block_rows = 64;  // of a block, and of the instruction's A
constexpr u32 block_bytes = block_rows * slab_bytes;
constexpr u32 swizzle_bytes = 8 * slab_bytes; // the swizzle's period: tiles begin at multiples

// The matrix descriptor without its start address: bits 16..29 hold the leading and bits 32..45 the
// stride byte offset, both in units of 16 bytes; bits 62..63 hold the swizzle, 1 for 128 bytes.
//   k-major    a row is 128 bytes of k. Stride: from 8 rows to the next 8. Leading: unused.
//   row-major  a row is 64 indices of m or n at one k. Stride: from 8 k to the next 8.
//              Leading: from 64 rows to the next 64, which is the next block.
template <Major major> CUPYGEMM_INLINE constexpr u64 descriptor_layout() {
    constexpr u64 leading = major == Major::k ? 1 : block_bytes / 16;
    constexpr u64 stride = swizzle_bytes / 16;
    return leading << 16 | stride << 32 | 1ull << 62;
}

template <Major major> CUPYGEMM_INLINE u64 descriptor(SharedAddress tile) {
    return descriptor_layout<major>() | (tile & 0x3ffff) >> 4;
}

// The increment of a descriptor that advances by one instruction's k: 32 bytes of it.
template <Major major, u32 mma_k> CUPYGEMM_INLINE constexpr u64 descriptor_step() {
    return (major == Major::k ? 32 : mma_k * slab_bytes) >> 4;
}

// Order register accesses by other instructions before those of the next wgmma.
CUPYGEMM_INLINE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

CUPYGEMM_INLINE void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Wait until at most `younger` groups are unfinished.
template <int younger> CUPYGEMM_INLINE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(younger) : "memory");
}

CUPYGEMM_INLINE void settle_register(i32 &value) { asm volatile("" : "+r"(value)::"memory"); }
CUPYGEMM_INLINE void settle_register(float &value) { asm volatile("" : "+f"(value)::"memory"); }

} // namespace cupygemm
