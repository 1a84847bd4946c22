// Adds the partial sums that a split-k product left in its workspace, and rounds once.
//
// The workspace is (split, batch, m, pitch) in fp32, or in fp64 for fp64 operands. Four warps sum
// the same 128 columns: warp w adds parts w, w + 4, ... in order, and then the sums of the four
// warps are added in order. The result is bitwise reproducible. `config.cuh` defines
// `Config::ElementC` and whether C allows stores of four elements.
#include "config.cuh"
#include "hopper/dependent_launch.cuh"
#include "hopper/store_four.cuh"

namespace cupygemm {

struct AddArgs {
    u64 workspace, c;
    i64 ldc;         // elements
    i64 c_stride[3]; // elements
    i32 batch0, batch1, batch2;
    u32 m, n;
    u32 pitch; // of the workspace, in elements; a multiple of 4
    u32 num_splits;
};

static_assert(sizeof(AddArgs) == 80, "AddArgs must match the dtype that the launcher packs");

template <bool has_epilogue> struct AddKernelArgs : AddArgs {};
template <> struct AddKernelArgs<true> : AddArgs {
    EpilogueArgs epilogue;
};

CUPYGEMM_INLINE Four added(Four x, Four y) {
    for (int i = 0; i < 4; ++i)
        x.value[i] += y.value[i];
    return x;
}

} // namespace cupygemm

extern "C" __global__ void __launch_bounds__(128)
    cupygemm_add_parts(const cupygemm::AddKernelArgs<cupygemm::Config::has_epilogue> args) {
    using namespace cupygemm;
    using Bits = typename Numeric<Config::ElementC>::Bits;
    constexpr u32 warps = 4;
    __shared__ Four sums[warps][32]; // (warp, lane, column)
    let_next_kernel_start();
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 row_vectors = args.pitch / 4;
    const u32 index = blockIdx.x * 32 + lane;
    const u32 row = index / row_vectors;
    const u32 column = (index - row * row_vectors) * 4;
    const bool inside = row < args.m;
    const u32 batches = args.batch0 * args.batch1 * args.batch2;
    const u64 matrix = static_cast<u64>(args.m) * args.pitch;
    for (u32 batch = blockIdx.y; batch < batches; batch += gridDim.y) {
        const PartSum *part = reinterpret_cast<const PartSum *>(args.workspace) + batch * matrix +
                              static_cast<u64>(row) * args.pitch + column;
        wait_for_work_before(static_cast<u32>(reinterpret_cast<u64>(part)));
        Four sum{};
        if (inside) {
#pragma unroll 4
            for (u32 split = warp; split < args.num_splits; split += warps)
                sum = added(sum, load_four(part + split * batches * matrix));
        }
        sums[warp][lane] = sum;
        __syncthreads(); // the sums of all four warps are in shared memory
        if (warp == 0 && inside) {
            for (u32 other = 1; other < warps; ++other)
                sum = added(sum, sums[other][lane]);
            const u32 index2 = batch % args.batch2, outer = batch / args.batch2;
            const i64 offset = index2 * args.c_stride[2] + outer % args.batch1 * args.c_stride[1] +
                               outer / args.batch1 * args.c_stride[0] + row * args.ldc + column;
            Bits *to = reinterpret_cast<Bits *>(args.c) + offset;
            const TileCorner corner{outer / args.batch1, outer % args.batch1, index2, 0, 0};
            store_four(to, sum, row, column, args.n - column,
                       MakeEpilogue<Config>::make(args, corner));
        }
        __syncthreads(); // every sum has been read: the next batch may overwrite it
    }
}
