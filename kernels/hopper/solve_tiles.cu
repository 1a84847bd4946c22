// Solves X T^T = C for tiles of X, with T lower triangular, or factors A = L L^T, in one launch.
//
// With T = X = L and C = A, both are the same computation. A tile of 128 x 128 is
//
//   X(p, q) = (C(p, q) - sum over k < q of X(p, k) T(q, k)^T) T(q, q)^-T,
//
// which one thread block computes, with C in registers, and stores in the place of C, or elsewhere:
//
//   claim a tile | products with other tiles, when these are finished | blocks of columns | ...
//
// Thread blocks claim tiles column by column. A tile waits only for tiles that were claimed before
// it, so any number of resident thread blocks makes progress. Each row of tiles has a counter of
// its finished slabs of 16 columns. In a factorisation, the tile on the diagonal is factored
// instead. It and the tile below it are stored slab by slab, since the next tile on the diagonal
// waits for them: that one is updated, and the one below is solved, while the first is factored.
//
// A tile is solved by blocks of 8 columns, with the inverses of T's blocks on the diagonal if these
// are accurate; otherwise, and for factors of fp32, one thread substitutes each row. Products do
// the rest. The sums of an element have the same order on every GPU.
#include "config.hpp"
#include "hopper/dependent_launch.cuh"
#include "hopper/diagonal_block.cuh"
#include "hopper/thread_sums.cuh"
#include "hopper/tile_progress.cuh"
#include "hopper/tile_sums.cuh"

namespace cupygemm {

struct SolveTilesArgs {
    u64 c;                         // element (0, 0) of the first matrix
    i64 c_row, c_column, c_stride; // elements between rows, columns and matrices
    u64 source;                    // what C is before; C itself, or a matrix that is only read
    i64 source_row, source_column, source_stride;
    u64 t;
    i64 t_row, t_column, t_stride;
    u64 progress; // u64 counters: claimed tiles, and finished slabs of each matrix and row of tiles
    u64 info;     // i32 for each matrix: 1 + the first column that is not positive, or 0
    i32 rows, n;  // of C, and columns
    i32 batches, unused;
};
static_assert(sizeof(SolveTilesArgs) == 128,
              "SolveTilesArgs must match the dtype that the launcher packs");

constexpr u32 threads = 256;
constexpr u32 stages = 4, num_blocks = tile_rows / block;
constexpr S most_growth = 32;
constexpr u32 part = factors ? slab : tile_rows; // columns of T(q, q) that are waited for together
template <class Real, bool of_factors> struct SumsOf {
    using Type = TileSums<Real>;
};
template <> struct SumsOf<float, true> {
    using Type = ThreadSums;
};
template <u32 depth> using OfTriangle =
    TileOperand<S, tile_rows, depth, Config::triangle_rows_adjacent, Config::triangle_together,
                threads>;
using Left = TileOperand<S, tile_rows, slab, Config::rows_adjacent, Config::together, threads>;
using Right = OfTriangle<slab>;
using Triangle = OfTriangle<tile_rows>;
using Narrow = TileOperand<S, tile_rows, block, false, 1, threads>;
using Sums = SumsOf<S, factors>::Type;
static_assert(Narrow::pitch == block_pitch, "fragments are read from blocks of columns, too");
constexpr u32 stage_elements = Left::elements + Right::elements;
static_assert(Triangle::elements <= stages * stage_elements, "the triangle must fit in the ring");

struct Shared {
    union {
        S stages[stages][stage_elements]; // X(p, k) and T(q, k), a slab of 16 k each
        S triangle[Triangle::elements];   // T(q, q), when the products are done
    };
    union {
        alignas(16) S block[tile_rows * block_pitch];    // a block of columns, by row
        alignas(16) S inverses[tile_rows * block_pitch]; // of the 8 x 8 blocks on T's diagonal
    };
    alignas(16) S solution[tile_rows * block_pitch];
    S inverse[tile_rows], scale[tile_rows]; // of T's diagonal
    S sizes[tile_rows];                     // of T's rows in their 8 x 8 blocks
    u32 substitutes;                        // whether an inverse is too inexact
    u64 claimed;
};
static_assert(sizeof(Shared) == Config::shared_bytes, "the launcher must know the shared memory");

// Subtract the products with all tiles to the left. Slabs of finished tiles are copied ahead; a
// thread waits only for the slab that it needs next.
CUPYGEMM_INLINE void products(Shared &shared, const Tile &tile, u32 thread, Sums &sums) {
    const u32 slabs = tile.q * slabs_per_tile;
    Progress progress;
    u32 issued = 0;
    const auto issue = [&] {
        S *const stage = shared.stages[issued % stages];
        Left::copy(stage, tile.x, tile.p * tile_rows, issued * slab, thread);
        Right::copy(stage + Left::elements, tile.t, tile.q * tile_rows, issued * slab, thread);
        copy_async_commit();
        ++issued;
    };
#pragma unroll 1
    for (u32 s = 0; s < slabs; s += 2) { // a barrier for each two
        if (issued == s) {
            progress.wait(tile, s + 1);
            issue();
            issue();
        }
        if (issued == s + 2)
            copy_async_wait<0>();
        else
            copy_async_wait<2>();
        workgroup_barrier(); // slabs s and s + 1 are there, and the two before have been read
        const S *const stage = shared.stages[s % stages], *const second = stage + stage_elements;
        const auto copy_ahead = [&] {
            if (issued < slabs && issued == s + 2 && progress.has(tile, issued + 1)) {
                issue();
                issue();
            }
        };
        sums.template subtract_all<slab, Left, Right>(stage, stage + Left::elements, copy_ahead);
        sums.template subtract_all<slab, Left, Right>(second, second + Left::elements, [] {});
    }
    workgroup_barrier(); // the ring has been read
}

// Load columns of T(q, q) when they are finished, and invert their diagonal. An element whose
// inverse may overflow is scaled before.
CUPYGEMM_INLINE void load_triangle(Shared &shared, const Tile &tile, u32 thread, u32 first) {
    if (factors)
        while (tile.finished(tile.q) <= tile.q * slabs_per_tile + first / slab) {
        }
    Triangle::template copy<part>(shared.triangle, tile.t, tile.q * tile_rows, tile.q * tile_rows,
                                  thread, first);
    copy_async_commit();
    copy_async_wait<0>();
    workgroup_barrier(); // these columns are in shared memory
    if (thread - first < part) {
        S x = shared.triangle[Triangle::place(thread, thread)];
        if (Config::unit || tile.q * tile_rows + thread >= tile.t.rows)
            x = 1;
        const bool fits = absolute(x) >= Config::smallest_invertible;
        const S scale = fits ? 1 : 1 / Config::tolerance;
        shared.inverse[thread] = 1 / (x * scale);
        shared.scale[thread] = scale;
    }
    workgroup_barrier(); // the inverses are in shared memory
}

// Exchange a block of columns through shared memory: a thread gets a row of it.
CUPYGEMM_INLINE void show_block(Shared &shared, Sums &sums, u32 b) {
    sums.for_each(b, b + 1, [&](const S &sum, u32 r, u32 c) {
        shared.block[r * block_pitch + c % block] = sum;
    });
    workgroup_barrier(); // the block is in shared memory
}
CUPYGEMM_INLINE void take_block(const S *solution, Sums &sums, u32 b) {
    sums.for_each(b, b + 1,
                  [&](S &sum, u32 r, u32 c) { sum = solution[r * block_pitch + c % block]; });
}

CUPYGEMM_INLINE void substitute_block(const Shared &shared, u32 row, u32 first, S (&x)[block]) {
#pragma unroll
    for (u32 j = 0; j < block; ++j)
        x[j] = shared.block[row * block_pitch + j];
#pragma unroll
    for (u32 j = 0; j < block; ++j) {
        x[j] = x[j] * shared.inverse[first + j] * shared.scale[first + j];
#pragma unroll
        for (u32 k = j + 1; k < block; ++k)
            x[k] = fma_of(-x[j], shared.triangle[Triangle::place(first + k, first + j)], x[k]);
    }
}

// Invert the 8 x 8 blocks on T's diagonal, one row by each thread. Returns whether a product with
// them is about as exact as substitution: the error is at most 16 u |R| (|T^-1| |T|)^T.
CUPYGEMM_INLINE bool invert_blocks(Shared &shared, u32 thread, u32 first_of_part) {
    const u32 first = thread / block * block, i = thread % block;
    const bool inverts = thread - first_of_part < part;
    const auto element = [&](u32 row, u32 column) {
        return shared.triangle[Triangle::place(first + row, first + column)];
    };
    S y[block], size = 0;
    if (thread == 0)
        shared.substitutes = 0;
    if (inverts) {
#pragma unroll
        for (u32 j = 0; j < block; ++j)
            if (j < i)
                size += absolute(element(i, j));
        shared.sizes[thread] = size + absolute(1 / shared.inverse[thread]);
    }
    workgroup_barrier(); // the sizes are in shared memory
    if (inverts) {
        S growth = 0;
#pragma unroll
        for (u32 j = block; j-- > 0;) {
            S sum = j == i ? 1 : 0;
#pragma unroll
            for (u32 k = j + 1; k < block; ++k)
                sum = fma_of(-y[k], element(k, j), sum);
            y[j] = sum * shared.inverse[first + j];
            growth += absolute(y[j]) * shared.sizes[first + j];
            shared.inverses[thread * block_pitch + j] = y[j];
        }
        if (!(growth <= most_growth) || shared.scale[thread] != 1)
            shared.substitutes = 1;
    }
    workgroup_barrier(); // the inverses are in shared memory
    return shared.substitutes == 0;
}

template <class AnySums>
CUPYGEMM_INLINE void solve(const Shared &shared, AnySums &sums, u32 first, u32 end) {
    if constexpr (AnySums::multiplies_inverses)
        sums.template solve<Triangle>(shared.triangle, shared.inverses, block_pitch, first, end);
}

// Replace the sums by X in some blocks of columns, one after the other.
CUPYGEMM_INLINE void substitute(Shared &shared, u32 thread, Sums &sums, u32 first_block,
                                u32 end_block) {
    S *const solution = shared.solution;
#pragma unroll 1
    for (u32 b = first_block; b < end_block; ++b) {
        const u32 first = b * block;
        show_block(shared, sums, b);
        if (thread < tile_rows) {
            S x[block];
            substitute_block(shared, thread, first, x);
#pragma unroll
            for (u32 j = 0; j < block; ++j)
                solution[thread * block_pitch + j] = x[j];
        }
        workgroup_barrier(); // the solution is in shared memory, and the block has been read
        take_block(solution, sums, b);
        sums.template subtract<Narrow, Triangle>(solution, shared.triangle, first, b + 1,
                                                 num_blocks);
    }
}

// Store zeros in the tile opposite to this one, above the diagonal. No thread block reads it.
CUPYGEMM_INLINE void zero_mirrored(const SolveTilesArgs &args, const Tile &tile, u32 thread) {
    const u32 column = tile.p * tile_rows + thread % tile_rows;
    S *const to = const_cast<S *>(tile.x.start) + tile.q * tile_rows * args.c_row + column;
    if (column < tile.t.rows)
        for (u32 i = thread / tile_rows; i < tile_rows; i += threads / tile_rows)
            to[i * args.c_row] = 0;
}

// Call visit(sum, row, column) for the sums of the thread, in some blocks of columns, that are
// inside the matrix.
template <class Visit>
CUPYGEMM_INLINE void inside(const Tile &tile, Sums &sums, u32 first, u32 end, const Visit &visit) {
    const u32 rows = tile.x.rows - tile.p * tile_rows, columns = tile.t.rows - tile.q * tile_rows;
    if (rows >= tile_rows && columns >= tile_rows)
        sums.for_each(first, end, visit);
    else
        sums.for_each(first, end, [&](S &sum, u32 r, u32 c) {
            if (r < rows && c < columns)
                visit(sum, r, c);
        });
}

CUPYGEMM_INLINE void load(const SolveTilesArgs &args, const Tile &tile, Sums &sums) {
    const S *const from = tile.source;
    sums.for_each(0, num_blocks, [](S &sum, u32, u32) { sum = 0; });
    inside(tile, sums, 0, num_blocks,
           [&](S &sum, u32 r, u32 c) { sum = from[r * args.source_row + c * args.source_column]; });
}

CUPYGEMM_INLINE void store(const SolveTilesArgs &args, const Tile &tile, Sums &sums, u32 first,
                           u32 end) {
    const i64 row = Config::rows_adjacent ? 1 : args.c_row;
    const i64 column = Config::rows_adjacent ? args.c_column : 1;
    inside(tile, sums, first, end,
           [&](S &sum, u32 r, u32 c) { tile.c[r * row + c * column] = sum; });
}

// Factor a block of columns of a tile on the diagonal, one row by each of 128 threads.
CUPYGEMM_INLINE void factor_rows(const Shared &shared, const Tile &tile, u32 thread, u32 first,
                                 i32 *info, S *solution) {
    const u32 columns = tile.t.rows - tile.q * tile_rows; // of the matrix, from the tile's first on
    const u32 left = columns > first ? columns - first : 0;
    const S *const rows = shared.block + first * block_pitch;
    const S *const mine = shared.block + thread * block_pitch;
    S x[block];
    u32 failed = factor_block<false>(rows, mine, thread - first, left, x);
    if (failed == ~0u)
        failed = factor_block<true>(rows, mine, thread - first, left, x);
    if (thread == 0 && failed != 0 && *info == 0)
        *info = static_cast<i32>(tile.q * tile_rows + first + failed);
#pragma unroll
    for (u32 j = 0; j < block; ++j)
        solution[thread * block_pitch + j] = first + j <= thread ? x[j] : 0;
}

// Factor a tile on the diagonal, block by block. Two blocks are a slab, which is counted one block
// later, by a thread that factors no row: it waits until the stores are performed.
CUPYGEMM_INLINE void factor_tile(const SolveTilesArgs &args, Shared &shared, const Tile &tile,
                                 u32 thread, i32 *info, Sums &sums) {
    S *const solution = shared.solution;
    const u32 end = sums.end_at_diagonal();
#pragma unroll 1
    for (u32 b = 0; b < num_blocks; ++b) {
        show_block(shared, sums, b);
        if (b % 2 == 0 && b > 0)
            publish(tile, thread, b / 2); // every thread has stored blocks b - 2 and b - 1
        if (thread < tile_rows)
            factor_rows(shared, tile, thread, b * block, info, solution);
        workgroup_barrier(); // the factor's block is in shared memory, and the sums have been read
        take_block(solution, sums, b);
        if (b % 2 == 1)
            store(args, tile, sums, b - 1, b + 1);
        sums.template subtract<Narrow, Narrow>(solution, solution, 0, b + 1, end);
    }
}

// Solve for a tile, or for one below the diagonal when T(q, q) is being factored, for its slabs.
CUPYGEMM_INLINE void solve_parts(const SolveTilesArgs &args, Shared &shared, const Tile &tile,
                                 u32 thread, Sums &sums) {
    const bool is_next = factors && tile.p == tile.q + 1;
#pragma unroll 1
    for (u32 first = 0; first < tile_rows; first += part) {
        const u32 first_block = first / block, end_block = (first + part) / block;
        load_triangle(shared, tile, thread, first);
        if (Sums::multiplies_inverses && invert_blocks(shared, thread, first))
            solve(shared, sums, first_block, end_block);
        else
            substitute(shared, thread, sums, first_block, end_block);
        if (!is_next)
            continue;
        store(args, tile, sums, first_block, end_block);
        workgroup_barrier(); // the slab is stored
        publish(tile, thread, first / slab + 1);
    }
    if (!is_next)
        store(args, tile, sums, 0, num_blocks);
}

CUPYGEMM_INLINE void solve_tile(const SolveTilesArgs &args, Shared &shared, const Tile &tile,
                                u32 thread, i32 *info) {
    Sums sums(thread);
    load(args, tile, sums);
    products(shared, tile, thread, sums);
    if (factors && tile.p == tile.q)
        factor_tile(args, shared, tile, thread, info, sums);
    else
        solve_parts(args, shared, tile, thread, sums);
    if (factors && tile.p != tile.q)
        zero_mirrored(args, tile, thread);
    workgroup_barrier(); // the tile is stored, and shared memory has been read
    publish(tile, thread, slabs_per_tile);
}

} // namespace cupygemm

extern "C" __global__ void __launch_bounds__(256)
    cupygemm_solve_tiles(const cupygemm::SolveTilesArgs args) {
    using namespace cupygemm;
    extern __shared__ __align__(128) u8 dynamic_shared[];
    Shared &shared = *reinterpret_cast<Shared *>(dynamic_shared);
    const u32 thread = local_thread(), rows = args.rows, n = args.n, batches = args.batches;
    const u32 num_p = ceil_div(rows, tile_rows), num_q = ceil_div(n, tile_rows);
    wait_for_work_before();
    u32 q = 0, column = 0; // and the number of the first tile of column q
#pragma unroll 1
    while (true) {
        if (thread == 0)
            shared.claimed = count_up(args.progress);
        workgroup_barrier(); // the claim is in shared memory
        const u32 claimed = static_cast<u32>(shared.claimed);
        const u32 matrix = claimed % batches, number = claimed / batches;
        u32 in_column = factors ? num_p - q : num_p;
        while (q < num_q && number >= column + in_column) {
            column += in_column;
            ++q;
            in_column = factors ? num_p - q : num_p;
        }
        if (q >= num_q)
            break;
        const u32 p = number - column + (factors ? q : 0);
        S *const c = reinterpret_cast<S *>(args.c) + matrix * args.c_stride;
        const S *const t = reinterpret_cast<const S *>(args.t) + matrix * args.t_stride;
        const S *const source =
            reinterpret_cast<const S *>(args.source) + matrix * args.source_stride;
        const Tile tile{p,
                        q,
                        {c, args.c_row, args.c_column, rows, n},
                        {t, args.t_row, args.t_column, n, n},
                        source + p * tile_rows * args.source_row +
                            q * tile_rows * args.source_column,
                        c + p * tile_rows * args.c_row + q * tile_rows * args.c_column,
                        args.progress + 8 * (1 + matrix * num_p)};
        solve_tile(args, shared, tile, thread, reinterpret_cast<i32 *>(args.info) + matrix);
    }
}
