// Factors a stack of small matrices, A = L L^T, each by one thread block.
//
// A thread block holds a matrix as a tile, two threads a row, and factors it as a tile on the
// diagonal (diagonal_tile.cuh):
//
//   load the lower triangle, store zeros above it | blocks of 8 columns, stored one after the other
//
// Each block column waits for one warp, so an SM should hold several thread blocks.
#include "common/solvers/report.hpp"
#include "hopper/diagonal_tile.cuh"

namespace cupygemm {

struct FactorTileArgs {
    u64 a;             // element (0, 0) of the first matrix; only lower triangles are read
    i64 a_row, a_next; // elements between rows, and between matrices
    u64 l;             // where the factors go; may be `a`
    i64 l_row, l_next;
    u64 info; // i32 for each matrix, or 0: becomes 1 + the first column that is not positive
    i32 n, unused;
};
static_assert(sizeof(FactorTileArgs) == 64,
              "FactorTileArgs must match the dtype that the launcher packs");

constexpr u32 threads = Config::threads;
// The number of thread blocks that leaves a thread some registers in addition to its elements. With
// more thread blocks, the cost of spills would exceed the gain.
constexpr u32 registers_beside = 64;
constexpr u32 resident = 65536 / (threads * (tile_blocks * sizeof(S) + registers_beside));

struct Shared {
    alignas(16) S shown[tile_rows * row_pitch];
    alignas(16) S solution[tile_rows * row_pitch];
    alignas(16) S inverse[block * block];
    u32 substitutes;
};

struct alignas(2 * sizeof(S)) Pair {
    S first, second;
};

// The rows of a matrix in memory, read and written in pairs of elements if they are aligned.
struct Rows {
    S *start;
    u32 pitch, n;
    bool in_pairs;

    CUPYGEMM_INLINE Rows(u64 address, i64 row, i64 next, u32 size)
        : start(reinterpret_cast<S *>(address) + group_index_x() * next),
          pitch(static_cast<u32>(row)), n(size),
          in_pairs(reinterpret_cast<u64>(start) % sizeof(Pair) == 0 && (pitch | n) % 2 == 0) {}

    // Elements (r, c) and (r, c + 1), or zeros above the diagonal.
    CUPYGEMM_INLINE Pair load(u32 r, u32 c) const {
        const S *const from = start + r * pitch + c;
        Pair pair{};
        if (r >= n || c > r)
            return pair;
        if (in_pairs)
            pair = *reinterpret_cast<const Pair *>(from);
        else
            pair = {from[0], c < r ? from[1] : S{}};
        if (c == r)
            pair.second = 0;
        return pair;
    }
    CUPYGEMM_INLINE void store(u32 r, u32 c, const Pair &pair) const {
        S *const to = start + r * pitch + c;
        if (r >= n || c >= n)
            return;
        if (in_pairs) {
            *reinterpret_cast<Pair *>(to) = pair;
        } else {
            to[0] = pair.first;
            if (c + 1 < n)
                to[1] = pair.second;
        }
    }
};

template <u32 places>
CUPYGEMM_INLINE void factor(const FactorTileArgs &args, Shared &shared, u32 thread) {
    const Rows from(args.a, args.a_row, args.a_next, args.n);
    const Rows to(args.l, args.l_row, args.l_next, args.n);
    RowsOfTile<places> tile(thread, true);
#pragma unroll
    for (u32 j = 0; j < places; ++j)
#pragma unroll
        for (u32 e = 0; e < 4; e += 2) {
            const Pair pair = from.load(tile.row(e), tile.column(j, e));
            tile.value[j][e] = pair.first;
            tile.value[j][e + 1] = pair.second;
        }
#pragma unroll 1
    for (u32 j = tile.last + 1; j < tile_blocks; ++j)
#pragma unroll
        for (u32 e = 0; e < 4; e += 2)
            to.store(tile.row(e), tile.column(j, e), {});
    u32 failed = 0;
    const auto stored = [&](const S(&x)[4], u32 b) {
#pragma unroll
        for (u32 e = 0; e < 4; e += 2) {
            const u32 r = tile.row(e), c = tile.column(b, e);
            to.store(r, c, {c > r ? 0 : x[e], c + 1 > r ? 0 : x[e + 1]});
        }
    };
    const auto fails = [&](u32 column) { failed = failed == 0 ? column : failed; };
    const auto nothing = [](u32) {};
    const DiagonalShared parts{shared.shown, shared.solution, shared.inverse, &shared.substitutes};
    factor_diagonal_tile(parts, tile, args.n, stored, nothing, nothing, fails);
    report(args.info, static_cast<i32>(group_index_x()), static_cast<i32>(failed));
}

} // namespace cupygemm

extern "C" __global__ void __launch_bounds__(cupygemm::threads, cupygemm::resident)
    cupygemm_factor_tile(const cupygemm::FactorTileArgs args) {
    using namespace cupygemm;
    __shared__ Shared shared;
    const u32 thread = local_thread();
    if (thread < 32)
        factor<2>(args, shared, thread);
    else
        factor<tile_blocks>(args, shared, thread);
}
