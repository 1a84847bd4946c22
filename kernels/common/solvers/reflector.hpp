// Completes the T of an outer panel, Q = I - V T V^H, from the T of its blocks and from V^H V.
//
// With T = [T1 T12; 0 T2], T12 = -T1 (V1^H V2) T2. A workgroup processes one block column after the
// other. A thread computes some elements of a product of blocks while it loads elements of the next
// left factor. Elements below the diagonal are never read. (C. Puglisi, "Modification of the
// Householder method based on the compact WY representation", 1992)
//
// If a flag is set, the diagonal blocks of T are computed here, too: T^-1 + T^-T = V^T V.
#include "common/solvers/flag.hpp"
#include "config.hpp"

namespace cupygemm {

struct ReflectorArgs {
    u64 products; // V^H V of each matrix, (n, n)
    i64 ldp, p_stride;
    u64 t; // (n, n); its diagonal blocks are given
    i64 ldt, t_stride;
    u64 finds; // 0, or the address of a flag: if set, diagonal blocks and tau are computed
    u64 tau;   // (n,): in this case, the diagonal of T
    i32 n, unused;
};
static_assert(sizeof(ReflectorArgs) == 72,
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

// Invert the blocks on the diagonal of the upper triangle of V^T V, whose diagonal is halved. A
// group of 32 threads inverts a block; a lane has a column. For one matrix of real numbers.
CUPYGEMM_INLINE void invert_blocks(const ReflectorArgs &args, Block *blocks, u32 thread) {
    const u32 n = args.n, lane = thread % 32;
    const S *const p = reinterpret_cast<const S *>(args.products);
    S *const t = reinterpret_cast<S *>(args.t);
#pragma unroll 1
    for (u32 block = thread / 32; block * width < n; block += threads / 32) {
        const u32 first = block * width, column = lane % width, end = minimum(width, n - first);
        Block &own = blocks[block];
        for (u32 at = lane; at < width * width; at += 32)
            if (at / width < end && at % width < end)
                own[at / width][at % width] =
                    p[(first + at / width) * args.ldp + first + at % width];
        wave_barrier(); // the block is in shared memory
        S x[width];
#pragma unroll
        for (u32 i = width; i-- > 0;) {
            S sum = of_real<S>(i == column ? 1 : 0);
#pragma unroll
            for (u32 k = i + 1; k < width; ++k)
                sum = minus_product(sum, k < end ? own[i][k] : S{}, x[k]);
            x[i] = i < end ? times(sum, divided(of_real<S>(2), real_part(own[i][i]))) : S{};
        }
        if (lane < end)
#pragma unroll
            for (u32 i = 0; i < width; ++i)
                if (i <= lane)
                    t[(first + i) * args.ldt + first + lane] = x[i];
#pragma unroll
        for (u32 i = 0; i < width; ++i)
            if (i == lane && i < end)
                reinterpret_cast<S *>(args.tau)[first + i] = x[i];
    }
    device_fence();
    workgroup_barrier(); // the blocks are in memory, and the products have been read
}

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_reflector(const cupygemm::ReflectorArgs args) {
    using namespace cupygemm;
    __shared__ Block blocks[most + 1];
    Block &left = blocks[0], &right = blocks[1];
    Block *const above = blocks + 2; // (V1^H V2) T2, by blocks of rows
    const u32 thread = local_thread(), matrix = group_index_x(), n = args.n;
    const S *const p = reinterpret_cast<const S *>(args.products) + matrix * args.p_stride;
    S *const t = reinterpret_cast<S *>(args.t) + matrix * args.t_stride;
    if (is_set(args.finds))
        invert_blocks(args, blocks, thread);
#pragma unroll 1
    for (u32 at = width; at < n; at += width) {
        const u32 columns = minimum(width, n - at), before = at / width;
        Loaded next;
        next.load(p + at, args.ldp, columns, thread);
        const auto load_of_t = [&](u32 row, u32 block) {
            next.load(t + row * width * args.ldt + block * width, args.ldt, width, thread);
        };
        workgroup_barrier(); // the previous blocks have been read
        for (u32 e = thread; e < width * width; e += threads) {
            const u32 row = e / width, column = e % width;
            right[row][column] =
                row < columns && column < columns ? t[(at + row) * args.ldt + at + column] : S{};
        }
#pragma unroll 1
        for (u32 block = 0; block < before; ++block) {
            workgroup_barrier(); // the previous block has been read
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
                workgroup_barrier(); // the previous block has been read
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
