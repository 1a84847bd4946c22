// wgmma: a warpgroup multiplies tiles that lie in shared memory into accumulators in registers.
//
// The instruction itself, `wgmma_mma_async`, is generated for the kernel's types and tile width
// (cupygemm._backends.hopper.source), for it names every accumulator register. Operand tiles are swizzled by
// 128 bytes, as TMA writes them, in blocks of 64 rows and 128 bytes: 8 KiB, aligned to 1 KiB.
// Source: PTX ISA 9.0, "Asynchronous warpgroup level matrix instructions".
#pragma once

#include "common/layout.hpp"
#include "hopper/mbarrier.cuh"

namespace cupygemm {

constexpr u32 slab_bytes = 128; // of an operand's adjacent axis, one swizzled row
constexpr u32 block_rows = 64;  // of a block, and of the instruction's A
constexpr u32 block_bytes = block_rows * slab_bytes;
constexpr u32 swizzle_bytes = 8 * slab_bytes; // period of the swizzle: tiles begin at a multiple

// The matrix descriptor, but for its start address: bits 16..29 the leading and 32..45 the stride
// byte offset, both in 16 bytes; bits 62..63 the swizzle, 1 for 128 bytes.
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

// What to add to a descriptor to move on by one instruction's k: 32 bytes of it.
template <Major major, u32 mma_k> CUPYGEMM_INLINE constexpr u64 descriptor_step() {
    return (major == Major::k ? 32 : mma_k * slab_bytes) >> 4;
}

// Registers that other instructions wrote are in order before the next wgmma reads them.
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
