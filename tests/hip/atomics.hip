// Atomics on LDS and on global memory, of every kind and width that HIP offers.
#include "prelude.hpp"

#define RELAXED __ATOMIC_RELAXED
#define AGENT __MEMORY_SCOPE_DEVICE
#define BLOCK __MEMORY_SCOPE_WRKGRP

KERNEL void histogram(const u8 *x, u32 *bins, int n) {
    __shared__ u32 local[256];
    for (u32 i = thread_x(); i < 256; i += block_dim_x())
        local[i] = 0;
    barrier();
    for (u32 i = global_x(); i < static_cast<u32>(n); i += grid_size_x())
        __scoped_atomic_fetch_add(&local[x[i]], 1u, RELAXED, BLOCK);
    barrier();
    for (u32 i = thread_x(); i < 256; i += block_dim_x())
        if (local[i])
            __scoped_atomic_fetch_add(&bins[i], local[i], RELAXED, AGENT);
}

template <typename T> INLINE void every_operation(T *where, const T *x) {
    const T value = x[global_x()];
    __scoped_atomic_fetch_add(&where[0], value, RELAXED, AGENT);
    __scoped_atomic_fetch_sub(&where[1], value, RELAXED, AGENT);
    __scoped_atomic_fetch_min(&where[2], value, RELAXED, AGENT);
    __scoped_atomic_fetch_max(&where[3], value, RELAXED, AGENT);
    __scoped_atomic_fetch_and(&where[4], value, RELAXED, AGENT);
    __scoped_atomic_fetch_or(&where[5], value, RELAXED, AGENT);
    __scoped_atomic_fetch_xor(&where[6], value, RELAXED, AGENT);
}

KERNEL void integer_i32(i32 *where, const i32 *x) { every_operation(where, x); }
KERNEL void integer_u32(u32 *where, const u32 *x) { every_operation(where, x); }
KERNEL void integer_i64(i64 *where, const i64 *x) { every_operation(where, x); }
KERNEL void integer_u64(u64 *where, const u64 *x) { every_operation(where, x); }

template <typename T> INLINE void in_lds(T *out, const T *x) {
    __shared__ T cell[6];
    if (thread_x() < 6)
        cell[thread_x()] = thread_x() == 4 ? ~T(0) : T(0);
    barrier();
    const T value = x[thread_x()];
    __scoped_atomic_fetch_add(&cell[0], value, RELAXED, BLOCK);
    __scoped_atomic_fetch_sub(&cell[1], value, RELAXED, BLOCK);
    __scoped_atomic_fetch_max(&cell[2], value, RELAXED, BLOCK);
    __scoped_atomic_fetch_xor(&cell[3], value, RELAXED, BLOCK);
    __scoped_atomic_fetch_and(&cell[4], value, RELAXED, BLOCK);
    __scoped_atomic_fetch_or(&cell[5], value, RELAXED, BLOCK);
    barrier();
    if (thread_x() < 6)
        out[thread_x()] = cell[thread_x()];
}

KERNEL void lds_u32(u32 *out, const u32 *x) { in_lds(out, x); }
KERNEL void lds_u64(u64 *out, const u64 *x) { in_lds(out, x); }

// Every thread takes a distinct ticket: the returned values are a permutation.
KERNEL void tickets(u32 *counter, u32 *taken) {
    const u32 ticket = __scoped_atomic_fetch_add(counter, 1u, RELAXED, AGENT);
    taken[ticket] = global_x();
}

// Addition of floats, by the hardware's instruction or by a compare-and-swap loop.
KERNEL void float_sums(float *f, double *d, const float *x) {
    const float value = x[global_x()];
    __scoped_atomic_fetch_add(f, value, RELAXED, AGENT);
    __scoped_atomic_fetch_add(d, static_cast<double>(value), RELAXED, AGENT);
}

KERNEL void float_sum_in_lds(float *out, const float *x) {
    __shared__ float total;
    if (thread_x() == 0)
        total = 0;
    barrier();
    __scoped_atomic_fetch_add(&total, x[thread_x()], RELAXED, BLOCK);
    barrier();
    if (thread_x() == 0)
        *out = total;
}

// A maximum of floats by compare-and-swap: lanes loop until each has won or lost.
KERNEL void float_maximum(float *out, const float *x) {
    const float value = x[global_x()];
    u32 *bits = reinterpret_cast<u32 *>(out);
    u32 seen = __scoped_atomic_load_n(bits, RELAXED, AGENT);
    while (__builtin_bit_cast(float, seen) < value) {
        if (__scoped_atomic_compare_exchange_n(bits, &seen, __builtin_bit_cast(u32, value), false,
                                               RELAXED, RELAXED, AGENT))
            break;
    }
}

KERNEL void compare_exchange_u64(u64 *table, const u64 *keys, u32 slots) {
    const u64 key = keys[global_x()];
    u32 slot = static_cast<u32>(key * 0x9E3779B97F4A7C15ull >> 40) % slots;
    for (;;) {
        u64 expected = 0;
        if (__scoped_atomic_compare_exchange_n(&table[slot], &expected, key, false, RELAXED,
                                               RELAXED, AGENT) ||
            expected == key)
            return;
        slot = slot + 1 == slots ? 0 : slot + 1;
    }
}

KERNEL void exchange(u32 *cell, u32 *seen) {
    seen[global_x()] = __scoped_atomic_exchange_n(cell, global_x() + 1, RELAXED, AGENT);
}

// A block hands over to the next through a flag in memory, with acquire and release.
KERNEL void last_block(const int *x, int *partial, u32 *finished, int *total) {
    __shared__ bool last;
    if (thread_x() == 0) {
        int sum = 0;
        for (int i = 0; i < 16; ++i)
            sum += x[block_x() * 16 + i];
        __scoped_atomic_store_n(&partial[block_x()], sum, RELAXED, AGENT);
        const u32 blocks = grid_size_x() / block_dim_x();
        last = __scoped_atomic_fetch_add(finished, 1u, __ATOMIC_ACQ_REL, AGENT) == blocks - 1;
        if (last) {
            int all = 0;
            for (u32 i = 0; i < blocks; ++i)
                all += __scoped_atomic_load_n(&partial[i], RELAXED, AGENT);
            *total = all;
        }
    }
}
