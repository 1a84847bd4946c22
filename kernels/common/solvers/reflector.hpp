// Completes the T of an outer panel, Q = I - V T V^H, from those of its blocks and from V^H V.
//
// With T = [T1 T12; 0 T2], T12 = -T1 (V1^H V2) T2. A workgroup goes through the blocks of columns;
// a thread computes some elements of a product of blocks, and loads those of the next left factor
// meanwhile. What is below the diagonal is never read.
// (C. Puglisi, "Modification of the Householder method based on the compact WY representation",
// 1992)
#include "config.hpp"

namespace cupygemm {

struct ReflectorArgs {
    u64 products; // V^H V of each matrix, (n, n)
    i64 ldp, p_stride;
    u64 t; // (n, n); its diagonal blocks are given
    i64 ldt, t_stride;
    i32 n, unused;
};
static_assert(sizeof(ReflectorArgs) == 56,
              "ReflectorArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
constexpr u32 threads = Config::threads, width = Config::width, most = Config::most;
constexpr u32 elements = width * width < threads ? 1 : width * width / threads; // of a thread

using Block = S[width][width + 1];

// A left factor on its way to shared memory.
struct Loaded {
    S of_thread[(width * width + threads - 1) / threads];

    CUPYGEMM_INLINE void load(const S *from, i64 ld, u32 columns, u32 thread) {
        u32 at = thread;
#pragma unroll
        for (S &element : of_thread) {
            const u32 row = at / width, column = at % width;
            element = at < width * width && column < columns ? from[row * ld + column] : S{};
            at += threads;
        }
    }
    CUPYGEMM_INLINE void store(Block &to, u32 thread) const {
        u32 at = thread;
#pragma unroll
        for (const S &element : of_thread) {
            if (at < width * width)
                to[at / width][at % width] = element;
            at += threads;
        }
    }
};

CUPYGEMM_INLINE void multiply(S (&sums)[elements], const Block &a, const Block &b, u32 thread) {
#pragma unroll 8
    for (u32 k = 0; k < width; ++k)
#pragma unroll
        for (u32 i = 0; i < elements; ++i) {
            const u32 at = (i * threads + thread) % (width * width);
            sums[i] = plus_product(sums[i], a[at / width][k], b[k][at % width]);
        }
}

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_reflector(const cupygemm::ReflectorArgs args) {
    using namespace cupygemm;
    __shared__ Block left, right;
    __shared__ Block above[most - 1]; // (V1^H V2) T2, by blocks of rows
    const u32 thread = local_thread(), matrix = group_index_x(), n = args.n;
    const S *const p = reinterpret_cast<const S *>(args.products) + matrix * args.p_stride;
    S *const t = reinterpret_cast<S *>(args.t) + matrix * args.t_stride;
#pragma unroll 1
    for (u32 at = width; at < n; at += width) {
        const u32 columns = minimum(width, n - at), before = at / width;
        Loaded next;
        next.load(p + at, args.ldp, columns, thread);
        const auto load_of_t = [&](u32 row, u32 block) {
            next.load(t + row * width * args.ldt + block * width, args.ldt, width, thread);
        };
        workgroup_barrier(); // the blocks before have been read
        for (u32 e = thread; e < width * width; e += threads) {
            const u32 row = e / width, column = e % width;
            right[row][column] =
                row < columns && column < columns ? t[(at + row) * args.ldt + at + column] : S{};
        }
#pragma unroll 1
        for (u32 block = 0; block < before; ++block) {
            workgroup_barrier(); // the block before has been read
            next.store(left, thread);
            if (block + 1 < before)
                next.load(p + (block + 1) * width * args.ldp + at, args.ldp, columns, thread);
            else
                load_of_t(0, 0);
            workgroup_barrier(); // the blocks are in shared memory
            S sums[elements] = {};
            multiply(sums, left, right, thread);
#pragma unroll
            for (u32 i = 0; i < elements; ++i) {
                const u32 e = (i * threads + thread) % (width * width);
                above[block][e / width][e % width] = sums[i];
            }
        }
#pragma unroll 1
        for (u32 row = 0; row < before; ++row) {
            S sums[elements] = {};
#pragma unroll 1
            for (u32 block = row; block < before; ++block) {
                workgroup_barrier(); // the block before has been read
                next.store(left, thread);
                if (block + 1 < before)
                    load_of_t(row, block + 1);
                else if (row + 1 < before)
                    load_of_t(row + 1, row + 1);
                workgroup_barrier(); // the block is in shared memory
                multiply(sums, left, above[block], thread);
            }
#pragma unroll
            for (u32 i = 0; i < elements; ++i) {
                const u32 e = i * threads + thread;
                if (e < width * width && e % width < columns)
                    t[(row * width + e / width) * args.ldt + at + e % width] = negated(sums[i]);
            }
        }
        device_fence();
        workgroup_barrier(); // this block of columns of T is in memory
    }
}
