// Kernels that a GPU would run wrongly without a word, or die of: one fault each.
//
// `reverse` is right; the tests take a wait or the barrier out of its assembly.
#include "../../hip/prelude.hpp"

KERNEL void reverse(const u32 *x, u32 *out) {
    __shared__ u32 tile[128];
    tile[thread_x()] = x[global_x()];
    barrier();
    out[global_x()] = tile[127 - thread_x()];
}

// Stores from element `first` on: past the end of `out` for the last threads.
KERNEL void store_past_end(u32 *out, int first) {
    out[static_cast<int>(global_x()) + first] = thread_x();
}

// Half of the tile is written, and all of it is read.
KERNEL void uninitialised_lds(u32 *out) {
    __shared__ u32 tile[128];
    if (thread_x() % 2 == 0)
        tile[thread_x()] = thread_x();
    barrier();
    out[global_x()] = tile[thread_x()];
}

// `shift` moves the last threads' elements beyond the tile, which is all of the block's LDS.
KERNEL void lds_out_of_range(u32 *out, int shift) {
    __shared__ u32 tile[128];
    for (u32 i = thread_x(); i < 128; i += block_dim_x())
        tile[i] = i;
    barrier();
    out[global_x()] = tile[static_cast<int>(thread_x()) + shift];
}

// The second wave never gets to the barrier.
KERNEL void divergent_barrier(u32 *out) {
    if (thread_x() < 64)
        __builtin_amdgcn_s_barrier();
    out[global_x()] = thread_x();
}

// v77 holds whatever the last kernel left there.
KERNEL void uninitialised_register(u32 *out) {
    u32 value;
    asm volatile("v_add_u32 %0, 1, v77" : "=v"(value));
    out[global_x()] = value;
}

KERNEL void load_all(const u32 *x, u32 *out) { out[global_x()] = x[global_x()]; }
