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
// instead (diagonal_tile.cuh). It and the two tiles below it are stored slab by slab, since the next
// tile on the diagonal and the one below wait for them: those are updated, and tiles are solved
// (tile_below.cuh), while the first is factored.
//
// A tile is solved by blocks of 8 columns, with the inverses of T's blocks on the diagonal if these
// are accurate; otherwise, one thread substitutes each row. Products do the rest. The sums of an
// element have the same order on every GPU.
#include "config.hpp"
#include "hopper/dependent_launch.cuh"
#include "hopper/diagonal_tile.cuh"
#include "hopper/thread_sums.cuh"
#include "hopper/tile_below.cuh"
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
    u64 inverses; // of the 8 x 8 blocks on the diagonal of the factors
    u64 info;     // i32 for each matrix: 1 + the first column that is not positive, or 0
    i32 rows, n;  // of C, and columns
    i32 batches, unused;
};
static_assert(sizeof(SolveTilesArgs) == 136,
              "SolveTilesArgs must match the dtype that the launcher packs");

constexpr u32 threads = 256;
constexpr u32 stages = 4, num_blocks = tile_rows / block;
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
        SlabOfTriangle slabs[2];          // of T(q, q), which is being factored
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
// thread waits only for the slabs that it needs next: two at a time, but one at a time for the tile
// on the diagonal and the one below, which wait for the tiles to their left, slab by slab.
CUPYGEMM_INLINE void products(Shared &shared, const Tile &tile, u32 thread, Sums &sums) {
    const u32 slabs = tile.q * slabs_per_tile;
    const bool follows = factors && tile.p - tile.q < 2 && slabs > 0;
    const u32 in_pairs = follows ? slabs - slabs_per_tile : slabs;
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
    for (u32 s = 0; s < in_pairs; s += 2) { // a barrier for each two
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
            if (issued < in_pairs && issued == s + 2 && progress.has(tile, issued + 1)) {
                issue();
                issue();
            }
        };
        sums.template subtract_all<slab, Left, Right>(stage, stage + Left::elements, copy_ahead);
        sums.template subtract_all<slab, Left, Right>(second, second + Left::elements, [] {});
    }
#pragma unroll 1
    for (u32 s = in_pairs; s < slabs; ++s) {
        if (issued == s) {
            progress.wait(tile, s);
            issue();
        }
        copy_async_wait<0>();
        workgroup_barrier(); // slab s is there, and the one before has been read
        const S *const stage = shared.stages[s % stages];
        sums.template subtract_all<slab, Left, Right>(stage, stage + Left::elements, [&] {
            if (issued < slabs && issued == s + 1 && progress.has(tile, issued))
                issue();
        });
    }
    workgroup_barrier(); // the ring has been read
}

// Load T(q, q), and invert its diagonal. An element whose inverse may overflow is scaled before.
CUPYGEMM_INLINE void load_triangle(Shared &shared, const Tile &tile, u32 thread) {
    Triangle::copy(shared.triangle, tile.t, tile.q * tile_rows, tile.q * tile_rows, thread);
    copy_async_commit();
    copy_async_wait<0>();
    workgroup_barrier(); // the triangle is in shared memory
    if (thread < tile_rows) {
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
CUPYGEMM_INLINE bool invert_blocks(Shared &shared, u32 thread) {
    const u32 first = thread / block * block, i = thread % block;
    const bool inverts = thread < tile_rows;
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

template <class AnySums> CUPYGEMM_INLINE void solve(const Shared &shared, AnySums &sums) {
    if constexpr (AnySums::multiplies_inverses)
        sums.template solve<Triangle>(shared.triangle, shared.inverses, block_pitch);
}

// Replace the sums by X in blocks of columns, one after the other.
CUPYGEMM_INLINE void substitute(Shared &shared, u32 thread, Sums &sums) {
    S *const solution = shared.solution;
#pragma unroll 1
    for (u32 b = 0; b < num_blocks; ++b) {
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

// Call visit(sum, row, column) for the sums of the thread that are inside the matrix.
template <class Visit>
CUPYGEMM_INLINE void inside(const Tile &tile, Sums &sums, const Visit &visit) {
    const u32 rows = tile.x.rows - tile.p * tile_rows, columns = tile.t.rows - tile.q * tile_rows;
    if (rows >= tile_rows && columns >= tile_rows)
        sums.for_each(0, num_blocks, visit);
    else
        sums.for_each(0, num_blocks, [&](S &sum, u32 r, u32 c) {
            if (r < rows && c < columns)
                visit(sum, r, c);
        });
}

CUPYGEMM_INLINE void load(const SolveTilesArgs &args, const Tile &tile, Sums &sums) {
    const S *const from = tile.source;
    sums.for_each(0, num_blocks, [](S &sum, u32, u32) { sum = 0; });
    inside(tile, sums,
           [&](S &sum, u32 r, u32 c) { sum = from[r * args.source_row + c * args.source_column]; });
}

CUPYGEMM_INLINE void store(const SolveTilesArgs &args, const Tile &tile, Sums &sums) {
    const i64 row = Config::rows_adjacent ? 1 : args.c_row;
    const i64 column = Config::rows_adjacent ? args.c_column : 1;
    inside(tile, sums, [&](S &sum, u32 r, u32 c) { tile.c[r * row + c * column] = sum; });
}

// Sums that have another order are stored in the ring, for their rows to be taken.
constexpr u32 sums_pitch = tile_rows + 4;
static_assert(tile_rows * sums_pitch <= stages * stage_elements, "the sums must fit in the ring");
CUPYGEMM_INLINE void show_sums(Shared &shared, Sums &sums) {
    if constexpr (!Sums::multiplies_inverses) {
        sums.for_each(0, num_blocks, [&](const S &sum, u32 r, u32 c) {
            shared.triangle[r * sums_pitch + c] = sum;
        });
        workgroup_barrier(); // the sums are in shared memory
    }
}
template <u32 places>
CUPYGEMM_INLINE void take_rows(const Shared &shared, const Sums &sums, RowsOfTile<places> &rows) {
#pragma unroll
    for (u32 j = 0; j < places; ++j)
#pragma unroll
        for (u32 e = 0; e < 4; ++e) {
            if constexpr (Sums::multiplies_inverses)
                rows.value[j][e] = sums.value[j][e];
            else
                rows.value[j][e] = shared.triangle[rows.row(e) * sums_pitch + rows.column(j, e)];
        }
}

// Store a lane's elements of a block of columns that are inside the matrix, and not above its
// diagonal.
template <u32 places>
CUPYGEMM_INLINE void store_block(const SolveTilesArgs &args, const Tile &tile,
                                 const RowsOfTile<places> &rows, const S (&x)[4], u32 b) {
    const i64 row = Config::rows_adjacent ? 1 : args.c_row;
    const i64 column = Config::rows_adjacent ? args.c_column : 1;
    const u32 inside = tile.x.rows - tile.p * tile_rows;
#pragma unroll
    for (u32 e = 0; e < 4; ++e) {
        const u32 r = rows.row(e), c = rows.column(b, e);
        if (r < inside && (tile.p != tile.q || c <= r))
            tile.c[r * row + c * column] = x[e];
    }
}

// Factor a tile on the diagonal, by all warps. Two blocks are a slab, which is counted by a warp
// whose rows are finished: it waits until the stores are performed.
template <u32 places> CUPYGEMM_INLINE void factor_rows(const SolveTilesArgs &args, Shared &shared,
                                                       const Tile &tile, u32 thread, i32 *info,
                                                       const Sums &sums) {
    RowsOfTile<places> rows(thread, true);
    take_rows(shared, sums, rows);
    const auto stored = [&](const S(&x)[4], u32 b) { store_block(args, tile, rows, x, b); };
    const auto inverted = [&](u32 b) {
        if (thread / 32 == 1)
#pragma unroll
            for (u32 i = 0; i < inverse_elements; i += 32) {
                const u32 at = i + rows.lane;
                const bool is_mark = at == 1 && shared.substitutes != 0;
                tile.inverses[b * inverse_elements + at] = is_mark ? 1 : shared.inverse[at];
            }
    };
    const auto counts = [&](u32 b) {
        if (thread == 32 && b > 0)
            store_release(tile.done + 8 * tile.p, tile.q * slabs_per_tile + b / 2);
    };
    const auto fails = [&](u32 count) {
        if (*info == 0)
            *info = static_cast<i32>(tile.q * tile_rows + count);
    };
    factor_diagonal_tile({shared.block, shared.solution, shared.inverse, &shared.substitutes}, rows,
                         tile.t.rows - tile.q * tile_rows, stored, inverted, counts, fails);
}

// Elements above the diagonal become zeros when the factor's are counted, since no thread block
// reads them.
CUPYGEMM_INLINE void factor_tile(const SolveTilesArgs &args, Shared &shared, const Tile &tile,
                                 u32 thread, i32 *info, Sums &sums) {
    show_sums(shared, sums);
    if (thread < 32)
        factor_rows<2>(args, shared, tile, thread, info, sums);
    else
        factor_rows<num_blocks>(args, shared, tile, thread, info, sums);
    workgroup_barrier(); // the tile is stored
    publish(tile, thread, slabs_per_tile);
    const i64 row = Config::rows_adjacent ? 1 : args.c_row;
    const i64 column = Config::rows_adjacent ? args.c_column : 1;
    const u32 c = thread % tile_rows;
    if (tile.q * tile_rows + c < tile.t.rows)
        for (u32 r = thread / tile_rows; r < c; r += threads / tile_rows)
            tile.c[r * row + c * column] = 0;
}

// Solve for a tile below the diagonal of a factorisation.
CUPYGEMM_INLINE void solve_rows(const SolveTilesArgs &args, Shared &shared, const Tile &tile,
                                u32 thread, Sums &sums) {
    show_sums(shared, sums);
    RowsOfTile<num_blocks> rows(thread, false);
    take_rows(shared, sums, rows);
    workgroup_barrier(); // they have been read
    SlabsOfTriangle slabs(shared.slabs, tile, thread);
    solve_below(
        slabs, rows, shared.block, shared.solution, tile.p - tile.q < 3,
        [&](const S(&x)[4], u32 b) { store_block(args, tile, rows, x, b); },
        [&](u32 s) { publish(tile, thread, s + 1); });
}

// Solve for a tile of a triangular system.
CUPYGEMM_INLINE void solve_with_triangle(const SolveTilesArgs &args, Shared &shared,
                                         const Tile &tile, u32 thread, Sums &sums) {
    load_triangle(shared, tile, thread);
    if (Sums::multiplies_inverses && invert_blocks(shared, thread))
        solve(shared, sums);
    else
        substitute(shared, thread, sums);
    store(args, tile, sums);
}

CUPYGEMM_INLINE void solve_tile(const SolveTilesArgs &args, Shared &shared, const Tile &tile,
                                u32 thread, i32 *info) {
    Sums sums(thread);
    load(args, tile, sums);
    products(shared, tile, thread, sums);
    if constexpr (!factors)
        solve_with_triangle(args, shared, tile, thread, sums);
    else if (tile.p == tile.q)
        factor_tile(args, shared, tile, thread, info, sums);
    else
        solve_rows(args, shared, tile, thread, sums);
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
                        args.progress + 8 * (1 + matrix * num_p),
                        reinterpret_cast<S *>(args.inverses) +
                            (matrix * num_p + q) * num_blocks * inverse_elements};
        solve_tile(args, shared, tile, thread, reinterpret_cast<i32 *>(args.info) + matrix);
    }
}
