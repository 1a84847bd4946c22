// Two- and three-dimensional blocks: transposes through LDS, stencils, odd block shapes.
#include "prelude.hpp"

// A 32x32 tile in a 32x8 block; the extra column keeps the banks apart.
template <typename T> INLINE void transpose_tile(const T *in, T *out, int rows, int cols) {
    __shared__ T tile[32][33];
    const int x = static_cast<int>(block_x() * 32 + thread_x());
    const int y = static_cast<int>(block_y() * 32 + thread_y());
    for (int j = 0; j < 32; j += 8)
        if (x < cols && y + j < rows)
            tile[thread_y() + j][thread_x()] = in[(y + j) * cols + x];
    barrier();
    const int tx = static_cast<int>(block_y() * 32 + thread_x());
    const int ty = static_cast<int>(block_x() * 32 + thread_y());
    for (int j = 0; j < 32; j += 8)
        if (tx < rows && ty + j < cols)
            out[(ty + j) * rows + tx] = tile[thread_x()][thread_y() + j];
}

KERNEL void transpose_f32(const float *in, float *out, int rows, int cols) {
    transpose_tile(in, out, rows, cols);
}
KERNEL void transpose_u16(const u16 *in, u16 *out, int rows, int cols) {
    transpose_tile(in, out, rows, cols);
}
KERNEL void transpose_u8(const u8 *in, u8 *out, int rows, int cols) {
    transpose_tile(in, out, rows, cols);
}
KERNEL void transpose_f64(const double *in, double *out, int rows, int cols) {
    transpose_tile(in, out, rows, cols);
}

// Five points with a halo of two on each side, dynamic LDS of the block's size plus four.
extern "C" __shared__ float halo[];
KERNEL void stencil_1d(const float *x, float *out, int n) {
    const int i = static_cast<int>(global_x()), t = static_cast<int>(thread_x());
    const int width = static_cast<int>(block_dim_x());
    halo[t + 2] = i < n ? x[i] : 0.0f;
    if (t < 2) {
        const int left = i - 2, right = i + width;
        halo[t] = left >= 0 ? x[left] : 0.0f;
        halo[width + t + 2] = right < n ? x[right] : 0.0f;
    }
    barrier();
    if (i < n)
        out[i] = 0.0625f * (halo[t] + halo[t + 4]) + 0.25f * (halo[t + 1] + halo[t + 3]) +
                 0.375f * halo[t + 2];
}

// Seven points on a 3-D grid, each thread a column along z.
KERNEL void stencil_3d(const float *in, float *out, int nx, int ny, int nz) {
    const int x = static_cast<int>(block_x() * block_dim_x() + thread_x());
    const int y = static_cast<int>(block_y() * block_dim_y() + thread_y());
    if (x < 1 || y < 1 || x >= nx - 1 || y >= ny - 1)
        return;
    const int plane = nx * ny;
    const float *column = in + y * nx + x;
    for (int z = 1; z < nz - 1; ++z) {
        const float *p = column + z * plane;
        out[p - in] = p[0] * -6.0f + p[-1] + p[1] + p[-nx] + p[nx] + p[-plane] + p[plane];
    }
}

// Who am I: every index of a 3-D launch, packed.
KERNEL void indices_3d(u64 *out) {
    const u64 x = global_x();
    const u64 y = block_y() * block_dim_y() + thread_y();
    const u64 z = block_z() * block_dim_z() + thread_z();
    const u64 width = grid_size_x(), height = __builtin_amdgcn_grid_size_y();
    out[(z * height + y) * width + x] = x | y << 16 | z << 32 | static_cast<u64>(thread_z()) << 48;
}

// 2-D block of 12 x 11 threads: waves that straddle rows and a last wave that is not full.
KERNEL void row_sums(const int *in, int *out, int cols) {
    __shared__ int part[11][12];
    const int row = static_cast<int>(block_x() * 11 + thread_y());
    int sum = 0;
    for (int c = static_cast<int>(thread_x()); c < cols; c += 12)
        sum += in[row * cols + c];
    part[thread_y()][thread_x()] = sum;
    barrier();
    if (thread_x() == 0) {
        int total = 0;
        for (int i = 0; i < 12; ++i)
            total += part[thread_y()][i];
        out[row] = total;
    }
}
