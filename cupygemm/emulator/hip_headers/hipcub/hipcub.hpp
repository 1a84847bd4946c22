// <hipcub/hipcub.hpp>: reductions of a wave and of a one-dimensional block, which CuPy's JIT uses.
#pragma once

#include <hip/hip_runtime.h>

namespace hipcub {
struct Sum {
    template <typename T> __host__ __device__ T operator()(const T &a, const T &b) const {
        return a + b;
    }
};
struct Max {
    template <typename T> __host__ __device__ T operator()(const T &a, const T &b) const {
        return a < b ? b : a;
    }
};
struct Min {
    template <typename T> __host__ __device__ T operator()(const T &a, const T &b) const {
        return b < a ? b : a;
    }
};

// The result is the first lane's.
template <typename T, int num_lanes = 64> class WarpReduce {
public:
    struct TempStorage {};
    __device__ explicit WarpReduce(TempStorage &) {}
    template <typename Op> __device__ T Reduce(T value, Op op, int num_valid = num_lanes) {
        int lane = __lane_id() % num_lanes;
        for (int step = 1; step < num_lanes; step *= 2) {
            T other = __shfl_down(value, step, num_lanes);
            if (lane + step < num_valid)
                value = op(value, other);
        }
        return value;
    }
    __device__ T Sum(T value) { return Reduce(value, hipcub::Sum()); }
    __device__ T Sum(T value, int num_valid) { return Reduce(value, hipcub::Sum(), num_valid); }
};

// The result is the first thread's. A second use of the storage needs a barrier in between.
template <typename T, int num_threads> class BlockReduce {
    static constexpr int num_waves = (num_threads + 63) / 64;

public:
    struct TempStorage {
        alignas(T) char sums[num_waves * sizeof(T)];
    };
    __device__ explicit BlockReduce(TempStorage &storage)
        : sums_(reinterpret_cast<T *>(storage.sums)) {}
    template <typename Op> __device__ T Reduce(T value, Op op) {
        typename WarpReduce<T>::TempStorage nothing;
        int wave = threadIdx.x / 64, left = num_threads - 64 * wave;
        value = WarpReduce<T>(nothing).Reduce(value, op, left < 64 ? left : 64);
        if (threadIdx.x % 64 == 0)
            sums_[wave] = value;
        __syncthreads();
        if (threadIdx.x == 0)
            for (int other = 1; other < num_waves; other++)
                value = op(value, sums_[other]);
        return value;
    }
    __device__ T Sum(T value) { return Reduce(value, hipcub::Sum()); }

private:
    T *sums_;
};
} // namespace hipcub
