// Applies the epilogue to the lower triangle of a symmetric product, and stores both triangles.
//
// The sums are an fp32 matrix of the workspace. A block reads a 64 x 64 tile on or below the
// diagonal to shared memory. It stores the tile and its transpose, each after the epilogue, which
// need not be symmetric. A thread stores four elements at a time if C's alignment allows it.
#include "config.cuh"
#include "hopper/dependent_launch.cuh"
#include "hopper/store_four.cuh"

namespace cupygemm {

struct FinishArgs {
    u64 sums, c;
    i64 ldc;      // elements
    u32 n, pitch; // pitch of the sums, a multiple of 4
    EpilogueArgs epilogue;
};

static_assert(sizeof(FinishArgs) == 32 + sizeof(EpilogueArgs),
              "FinishArgs must match the dtype that the launcher packs");

constexpr u32 edge = 64, threads = 256, fours = edge / 4;

// Store a tile of C; `sum(row, column)` returns the sum of one of its elements.
template <class Epilogue, class Sum>
CUPYGEMM_INLINE void store_tile(const FinishArgs &args, const Epilogue &epilogue, u32 row0,
                                u32 column0, const Sum &sum) {
#pragma unroll 1
    for (u32 at = threadIdx.x; at < edge * fours; at += threads) {
        const u32 row = at / fours, column = at % fours * 4;
        if (row0 + row >= args.n || column0 + column >= args.n)
            continue;
        Four four;
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
            four.value[i] = sum(row, column + i);
        auto *to = reinterpret_cast<typename Epilogue::Bits *>(args.c) + (row0 + row) * args.ldc +
                   column0 + column;
        store_four(to, four, row0 + row, column0 + column, args.n - column0 - column, epilogue);
    }
}

} // namespace cupygemm

extern "C" __global__ void __launch_bounds__(256)
    cupygemm_finish_triangle(const cupygemm::FinishArgs args) {
    using namespace cupygemm;
    __shared__ float staged[edge][edge + 1]; // (row, column) below the diagonal
    let_next_kernel_start();
    if (blockIdx.y > blockIdx.x)
        return;
    wait_for_work_before();
    const u32 row0 = blockIdx.x * edge, column0 = blockIdx.y * edge;
#pragma unroll
    for (u32 at = threadIdx.x; at < edge * fours; at += threads) {
        const u32 row = at / fours, column = at % fours * 4;
        if (row0 + row >= args.n || column0 + column >= args.pitch)
            continue;
        const Four four = load_four(reinterpret_cast<const float *>(args.sums) +
                                    static_cast<u64>(row0 + row) * args.pitch + column0 + column);
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
            staged[row][column + i] = four.value[i];
    }
    __syncthreads(); // the tile is in shared memory
    const auto epilogue = MakeEpilogue<Config>::make(args, TileCorner{0, 0, 0, 0, 0});
    if (row0 == column0) {
        store_tile(args, epilogue, row0, column0, [&](u32 row, u32 column) {
            return row >= column ? staged[row][column] : staged[column][row];
        });
        return;
    }
    store_tile(args, epilogue, row0, column0,
               [&](u32 row, u32 column) { return staged[row][column]; });
    store_tile(args, epilogue, column0, row0,
               [&](u32 row, u32 column) { return staged[column][row]; });
}
