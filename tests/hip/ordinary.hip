// Kernels as HIP programs write them: samples of sorting, sparse and dense algebra, graphs, images.
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#include <math.h>

// Row-wise softmax: a block for each row, maximum and sum by shuffles and shared memory.
__device__ float block_reduce(float value, bool maximum) {
    __shared__ float partial[16];
    for (int distance = warpSize / 2; distance > 0; distance /= 2) {
        const float other = __shfl_down(value, distance);
        value = maximum ? fmaxf(value, other) : value + other;
    }
    const int warp = threadIdx.x / warpSize, lane = threadIdx.x % warpSize;
    __syncthreads();
    if (lane == 0)
        partial[warp] = value;
    __syncthreads();
    float result = partial[0];
    for (int i = 1; i < (int)(blockDim.x / warpSize); ++i)
        result = maximum ? fmaxf(result, partial[i]) : result + partial[i];
    return result;
}

extern "C" __global__ void softmax(const float *in, float *out, int cols) {
    const float *row = in + blockIdx.x * cols;
    float top = -INFINITY;
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        top = fmaxf(top, row[i]);
    top = block_reduce(top, true);
    float sum = 0;
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        sum += expf(row[i] - top);
    sum = block_reduce(sum, false);
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        out[blockIdx.x * cols + i] = expf(row[i] - top) / sum;
}

// Bitonic sort of a power of two in shared memory.
extern "C" __global__ void bitonic_sort(int *data) {
    extern __shared__ int shared[];
    const unsigned int t = threadIdx.x, n = blockDim.x;
    shared[t] = data[blockIdx.x * n + t];
    __syncthreads();
    for (unsigned int k = 2; k <= n; k *= 2)
        for (unsigned int j = k / 2; j > 0; j /= 2) {
            const unsigned int partner = t ^ j;
            if (partner > t) {
                const bool ascending = (t & k) == 0;
                if ((shared[t] > shared[partner]) == ascending) {
                    const int swapped = shared[t];
                    shared[t] = shared[partner];
                    shared[partner] = swapped;
                }
            }
            __syncthreads();
        }
    data[blockIdx.x * n + t] = shared[t];
}

// Sparse matrix times vector, CSR, one thread a row: rows of every length.
extern "C" __global__ void spmv(const int *start, const int *column, const double *value,
                                const double *x, double *y, int rows) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        double sum = 0;
        for (int i = start[row]; i < start[row + 1]; ++i)
            sum += value[i] * x[column[i]];
        y[row] = sum;
    }
}

// One level of a breadth-first search; the frontier is built with atomics.
extern "C" __global__ void bfs_level(const int *start, const int *edge, int *level, int *frontier,
                                     int *next, int size, int *next_size, int depth) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size)
        return;
    const int node = frontier[i];
    for (int e = start[node]; e < start[node + 1]; ++e)
        if (atomicCAS(&level[edge[e]], -1, depth) == -1)
            next[atomicAdd(next_size, 1)] = edge[e];
}

// Radix-2 FFT of a block's 2 blockDim.x complex numbers in shared memory.
extern "C" __global__ void fft(float2 *data) {
    __shared__ float2 z[256];
    const int n = 2 * blockDim.x, bits = __ffs(n) - 1;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        z[__brev(i) >> (32 - bits)] = data[i];
    __syncthreads();
    for (int half = 1; half < n; half *= 2) {
        const int k = threadIdx.x % half, at = threadIdx.x / half * 2 * half + k;
        float sine, cosine;
        sincosf(-3.14159265f * k / half, &sine, &cosine);
        const float2 a = z[at], b = z[at + half];
        const float2 turned = make_float2(b.x * cosine - b.y * sine, b.x * sine + b.y * cosine);
        z[at] = make_float2(a.x + turned.x, a.y + turned.y);
        z[at + half] = make_float2(a.x - turned.x, a.y - turned.y);
        __syncthreads();
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        data[i] = z[i];
}

// A 3x3 filter of bytes with weights in constant memory; the border repeats.
__constant__ int weights[9] = {1, 2, 1, 2, 4, 2, 1, 2, 1};
extern "C" __global__ void blur(const unsigned char *in, unsigned char *out, int width,
                                int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    int sum = 8;
    for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx) {
            const int cx = min(max(x + dx, 0), width - 1), cy = min(max(y + dy, 0), height - 1);
            sum += weights[(dy + 1) * 3 + dx + 1] * in[cy * width + cx];
        }
    out[y * width + x] = (unsigned char)(sum / 16);
}

// Game of life on a torus.
extern "C" __global__ void life(const unsigned char *in, unsigned char *out, int n) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int around = 0;
    for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx)
            if (dx != 0 || dy != 0)
                around += in[(y + dy + n) % n * n + (x + dx + n) % n];
    out[y * n + x] = around == 3 || (around == 2 && in[y * n + x]);
}

// Nearest of the centres, in packed coordinates.
extern "C" __global__ void nearest(const float4 *points, const float4 *centres, int *which,
                                   float *distance, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float4 p = points[i];
    float best = 3e38f;
    int found = -1;
    for (int c = 0; c < count; ++c) {
        const float4 q = centres[c];
        const float dx = p.x - q.x, dy = p.y - q.y, dz = p.z - q.z, dw = p.w - q.w;
        const float squared = dx * dx + dy * dy + dz * dz + dw * dw;
        if (squared < best) {
            best = squared;
            found = c;
        }
    }
    which[i] = found;
    distance[i] = sqrtf(best);
}

// Votes: what each warp agrees on, and one atomic a warp for all that vote yes.
extern "C" __global__ void votes(const int *x, unsigned long long *masks, int *flags, int *total) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const bool yes = x[i] > 0;
    const unsigned long long mask = __ballot(yes);
    masks[i] = mask;
    flags[i] = __any(x[i] > 98) + 2 * __all(x[i] > -99) + 4 * (__popcll(mask) > 32);
    if (yes && __ffsll(mask) - 1 == (int)(threadIdx.x % warpSize))
        atomicAdd(total, __popcll(mask));
}

// Pairs of halves.
extern "C" __global__ void half_pairs(const __half2 *x, const __half2 *y, __half2 *out,
                                      float *sum) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const __half2 product = __hmul2(x[i], y[i]);
    out[i] = __hfma2(x[i], y[i], x[i]);
    sum[i] = __low2float(product) + __high2float(product);
}

// Escape-time fractal and a generator of random numbers: long loops that end apart.
extern "C" __global__ void monte_carlo_pi(unsigned long long *inside, int rounds) {
    unsigned int state = 1234567u * (blockIdx.x * blockDim.x + threadIdx.x + 1);
    int mine = 0;
    for (int i = 0; i < rounds; ++i) {
        unsigned long long sample[2];
        for (unsigned long long &value : sample) {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            value = state >> 16;
        }
        mine += sample[0] * sample[0] + sample[1] * sample[1] < 1ull << 32;
    }
    atomicAdd(inside, (unsigned long long)mine);
}
