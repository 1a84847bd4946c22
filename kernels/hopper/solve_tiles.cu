// Solves X T^T = C for tiles of X, with T lower triangular, or factors A = L L^T, in one launch.
//
// With T = X = L and C = A, both are the same computation. A tile of 128 x 128, or of 64 x 128 in
// systems with few right-hand sides, is
//
//   X(p, q) = (C(p, q) - sum over k < q of X(p, k) T(q, k)^T) T(q, q)^-T,
//
// which one thread block computes, with C in registers, and stores in place of C or elsewhere:
//
//   claim a tile | products with other tiles, when these are finished | blocks of columns | ...
//
// Thread blocks claim tiles column by column; if there is only one column, tiles are assigned in
// turn. A tile waits only for tiles that were claimed before it, so any number of resident thread
// blocks makes progress. Each row of tiles has a counter of its finished slabs of 16 columns. In a
// factorisation, the tile on the diagonal is factored instead (diagonal_tile.cuh). It and the two
// tiles below it are stored slab by slab, since the next diagonal tile and the tile below that one
// wait for them. So these two are updated, and tiles are solved (tile_below.cuh), while the
// diagonal tile is factored.
//
// A tile is solved by blocks of 8 columns, with the inverses of T's diagonal blocks if these are
// accurate; otherwise, one thread per row substitutes. The rest is products. The order in which the
// sums of an element are computed is the same on every GPU.
#include "config.hpp"
#include "hopper/dependent_launch.cuh"
#include "hopper/diagonal_tile.cuh"
#include "hopper/tile_of_system.cuh"

namespace cupygemm {

struct SolveTilesArgs {
    u64 c;                         // element (0, 0) of the first matrix
    i64 c_row, c_column, c_stride; // elements between rows, columns and matrices
    u64 source;                    // the initial value of C: C itself, or a read-only matrix
    i64 source_row, source_column, source_stride;
    u64 t;
    i64 t_row, t_column, t_stride;
    // u64 counters: claimed tiles, and finished slabs of each matrix and row of tiles. They must be
    // zero before the launch, unless there is one column of tiles.
    u64 progress;
    u64 inverses; // of the 8 x 8 blocks on the diagonal of the factors
    u64 info;     // i32 for each matrix, or 0: becomes 1 + the first column that is not positive
    i32 rows, n;  // of C, and columns
    i32 batches, unused;
};
static_assert(sizeof(SolveTilesArgs) == 136,
              "SolveTilesArgs must match the dtype that the launcher packs");

struct alignas(2 * sizeof(S)) Pair {
    S first, second;
};

// Store zeros in the mirrored tile above the diagonal. No thread block reads it.
CUPYGEMM_INLINE void zero_mirrored(const SolveTilesArgs &args, const Tile &tile, u32 thread) {
    const u32 column = tile.p * tile_rows + thread % tile_rows;
    S *const to = const_cast<S *>(tile.x.start) + tile.q * tile_columns * args.c_row + column;
    if (column < tile.t.rows)
        for (u32 i = thread / tile_rows; i < tile_rows; i += threads / tile_rows)
            to[i * args.c_row] = 0;
}

// Call visit(sum, row, column) for the thread's sums inside the matrix.
template <class Visit>
CUPYGEMM_INLINE void inside(const Tile &tile, Sums &sums, const Visit &visit) {
    const u32 rows = tile.x.rows - tile.p * tile_rows;
    const u32 columns = tile.t.rows - tile.q * tile_columns;
    if (rows >= tile_rows && columns >= tile_columns)
        sums.for_each(0, num_blocks, visit);
    else
        sums.for_each(0, num_blocks, [&](S &sum, u32 r, u32 c) {
            if (r < rows && c < columns)
                visit(sum, r, c);
        });
}

// Load C; for a factorisation, without the elements above the diagonal.
CUPYGEMM_INLINE void load(const SolveTilesArgs &args, const Tile &tile, Sums &sums) {
    const S *const from = tile.source;
    sums.for_each(0, num_blocks, [](S &sum, u32, u32) { sum = 0; });
    const auto take = [&](S &sum, u32 r, u32 c) {
        sum = from[r * args.source_row + c * args.source_column];
    };
    if (factors && tile.p == tile.q)
        inside(tile, sums, [&](S &sum, u32 r, u32 c) {
            if (c <= r)
                take(sum, r, c);
        });
    else
        inside(tile, sums, take);
}

CUPYGEMM_INLINE void store(const SolveTilesArgs &args, const Tile &tile, Sums &sums) {
    const i64 row = Config::rows_adjacent ? 1 : args.c_row;
    const i64 column = Config::rows_adjacent ? args.c_column : 1;
    inside(tile, sums, [&](S &sum, u32 r, u32 c) { tile.c[r * row + c * column] = sum; });
}

// Sums in another order are stored to the ring, from which each warp reads its rows.
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

// Store a lane's elements of a block column that are inside the matrix and not above its diagonal,
// two at a time if they are adjacent and aligned.
template <u32 places> CUPYGEMM_INLINE void store_block(const SolveTilesArgs &args, const Tile &tile,
                                                       const RowsOfTile<places> &rows,
                                                       const S (&x)[4], u32 b) {
    constexpr bool in_pairs = !Config::rows_adjacent && Config::together > 1;
    const i64 row = Config::rows_adjacent ? 1 : args.c_row;
    const i64 column = Config::rows_adjacent ? args.c_column : 1;
    const u32 inside = tile.x.rows - tile.p * tile_rows;
#pragma unroll
    for (u32 e = 0; e < 4; e += 2) {
        const u32 r = rows.row(e), c = rows.column(b, e);
        const u32 end = tile.p != tile.q ? tile_columns : r + 1;
        S *const to = tile.c + r * row + c * column;
        if (r < inside && c < end) {
            if (in_pairs && c + 1 < end) {
                *reinterpret_cast<Pair *>(to) = {x[e], x[e + 1]};
            } else {
                to[0] = x[e];
                if (c + 1 < end)
                    to[column] = x[e + 1];
            }
        }
    }
}

// Factor a tile on the diagonal, by all warps. Two blocks form a slab, which is counted by a warp
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
        if (info != nullptr && *info == 0)
            *info = static_cast<i32>(tile.q * tile_columns + count);
    };
    factor_diagonal_tile({shared.block, shared.solution, shared.inverse, &shared.substitutes}, rows,
                         tile.t.rows - tile.q * tile_columns, stored, inverted, counts, fails);
}

// Elements above the diagonal become zeros after the factor's elements are counted, since no thread
// block reads them.
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
    if (tile.q * tile_columns + c < tile.t.rows)
        for (u32 r = thread / tile_rows; r < c; r += threads / tile_rows)
            tile.c[r * row + c * column] = 0;
}

// Solve for a tile below the diagonal of a factorisation.
CUPYGEMM_INLINE void solve_rows(const SolveTilesArgs &args, Shared &shared, const Tile &tile,
                                u32 thread, Sums &sums) {
    show_sums(shared, sums);
    RowsOfTile<tile_blocks> rows(thread, false);
    take_rows(shared, sums, rows);
    workgroup_barrier(); // the sums have been read
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

CUPYGEMM_INLINE void solve_tile(const SolveTilesArgs &args, Shared &shared, Ring &ring,
                                const Tile &tile, u32 thread, i32 *info) {
    Sums sums(thread);
    load(args, tile, sums);
    products(shared, ring, tile, thread, sums);
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

// The shared memory of a thread block fills an SM. Unless the compiler is told, it saves registers,
// and orders the products of tf32 terms so that each waits for the last one.
extern "C" __global__ void __launch_bounds__(cupygemm::threads, cupygemm::factors ? 0 : 1)
    cupygemm_solve_tiles(const cupygemm::SolveTilesArgs args) {
    using namespace cupygemm;
    extern __shared__ __align__(128) u8 dynamic_shared[];
    Shared &shared = *reinterpret_cast<Shared *>(dynamic_shared);
    const u32 thread = local_thread(), rows = args.rows, n = args.n, batches = args.batches;
    const u32 num_p = ceil_div(rows, tile_rows), num_q = ceil_div(n, tile_columns);
    wait_for_work_before();
    Ring ring(shared, thread);
    u32 q = 0, column = 0; // and the number of the first tile of column q
    if (thread == 0)
        shared.claimed = group_index_x() - static_cast<u64>(gridDim.x);
#pragma unroll 1
    while (true) {
        if (thread == 0) // a tile of the only column waits for no other
            shared.claimed = num_q > 1 ? count_up(args.progress) : shared.claimed + gridDim.x;
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
                            q * tile_columns * args.source_column,
                        c + p * tile_rows * args.c_row + q * tile_columns * args.c_column,
                        args.progress + 8 * (1 + matrix * num_p),
                        reinterpret_cast<S *>(args.inverses) +
                            (matrix * num_p + q) * num_blocks * inverse_elements};
        i32 *const info = reinterpret_cast<i32 *>(args.info);
        solve_tile(args, shared, ring, tile, thread, info == nullptr ? info : info + matrix);
    }
}
