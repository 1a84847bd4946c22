// Reductions and scans: within a wave by shuffles and DPP, across waves through LDS.
#include "prelude.hpp"

template <typename T> INLINE T wave_sum(T value) {
    for (int distance = warp_size / 2; distance; distance /= 2)
        value += shuffle(value, lane() ^ distance);
    return value;
}

template <typename T> INLINE void block_sum_of(const T *x, T *out, int n) {
    __shared__ T partial[16];
    T sum = 0;
    for (u32 i = global_x(); i < static_cast<u32>(n); i += grid_size_x())
        sum += x[i];
    sum = wave_sum(sum);
    const u32 wave = thread_x() / warp_size, waves = (block_dim_x() + warp_size - 1) / warp_size;
    if (lane() == 0)
        partial[wave] = sum;
    barrier();
    if (wave == 0) {
        T total = lane() < waves ? partial[lane()] : T(0);
        total = wave_sum(total);
        if (lane() == 0)
            out[block_x()] = total;
    }
}

KERNEL void sum_f32(const float *x, float *out, int n) { block_sum_of(x, out, n); }
KERNEL void sum_f64(const double *x, double *out, int n) { block_sum_of(x, out, n); }
KERNEL void sum_u32(const u32 *x, u32 *out, int n) { block_sum_of(x, out, n); }

// A tree over LDS: half of the threads add at each step.
KERNEL void max_tree(const int *x, int *out) {
    __shared__ int tile[256];
    tile[thread_x()] = x[global_x()];
    barrier();
    for (u32 width = 128; width; width /= 2) {
        if (thread_x() < width) {
            const int other = tile[thread_x() + width];
            if (other > tile[thread_x()])
                tile[thread_x()] = other;
        }
        barrier();
    }
    if (thread_x() == 0)
        out[block_x()] = tile[0];
}

// Inclusive scan of a block in LDS (Hillis and Steele), with two buffers.
KERNEL void scan_u32(const u32 *x, u32 *out, u32 *totals) {
    __shared__ u32 tile[2][512];
    const u32 t = thread_x(), n = block_dim_x();
    int source = 0;
    tile[0][t] = x[global_x()];
    barrier();
    for (u32 distance = 1; distance < n; distance *= 2) {
        const u32 value = tile[source][t];
        tile[1 - source][t] = t >= distance ? value + tile[source][t - distance] : value;
        source = 1 - source;
        barrier();
    }
    out[global_x()] = tile[source][t];
    if (t == n - 1)
        totals[block_x()] = tile[source][t];
}

// The same within each row of 16 lanes by DPP, and then across rows by lane reads.
KERNEL void scan_dpp(const int *x, int *out) {
    int value = x[global_x()];
    value += __builtin_amdgcn_update_dpp(0, value, 0x111, 0xf, 0xf, false); // row_shr:1
    value += __builtin_amdgcn_update_dpp(0, value, 0x112, 0xf, 0xf, false);
    value += __builtin_amdgcn_update_dpp(0, value, 0x114, 0xf, 0xf, false);
    value += __builtin_amdgcn_update_dpp(0, value, 0x118, 0xf, 0xf, false);
    const int row0 = __builtin_amdgcn_readlane(value, 15);
    const int row1 = __builtin_amdgcn_readlane(value, 31);
    const int row2 = __builtin_amdgcn_readlane(value, 47);
    const u32 row = lane() / 16;
    if (row >= 1)
        value += row0;
    if (row >= 2)
        value += row1;
    if (row >= 3)
        value += row2;
    out[global_x()] = value;
}

// Argmin over a block with a struct in LDS; ties go to the lowest index.
KERNEL void argmin(const float *x, int *index, float *value, int n) {
    struct Best {
        float value;
        int index;
    };
    __shared__ Best best[128];
    Best mine = {__builtin_inff(), -1};
    for (int i = static_cast<int>(thread_x()); i < n; i += 128)
        if (x[i] < mine.value)
            mine = {x[i], i};
    best[thread_x()] = mine;
    barrier();
    for (u32 width = 64; width; width /= 2) {
        if (thread_x() < width) {
            const Best a = best[thread_x()], b = best[thread_x() + width];
            const bool take = b.value < a.value || (b.value == a.value && b.index < a.index);
            best[thread_x()] = take ? b : a;
        }
        barrier();
    }
    if (thread_x() == 0) {
        *index = best[0].index;
        *value = best[0].value;
    }
}
