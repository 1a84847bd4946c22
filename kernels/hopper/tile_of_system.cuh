// A tile of a triangular system, X = C T^-T, when the products are done. T(q, q) is then in shared
// memory.
//
// All 8 x 8 blocks on T's diagonal are inverted if that is accurate. Otherwise, each row is
// substituted by a thread, by blocks of 8 columns.
#pragma once

#include "hopper/tile_products.cuh"

namespace cupygemm {

// Load T(q, q), and invert its diagonal. An element whose inverse may overflow is scaled first.
CUPYGEMM_INLINE void load_triangle(Shared &shared, const Tile &tile, u32 thread) {
    const u32 first = tile.q * tile_columns;
    if (first + tile_columns <= tile.t.columns) // an address for each thread, not for each copy
        Triangle::Slabs(tile.t, first, thread).copy_inside(shared.triangle, first);
    else
        Triangle::copy(shared.triangle, tile.t, first, first, thread);
    copy_async_commit();
    copy_async_wait<0>();
    workgroup_barrier(); // the triangle is in shared memory
    if (thread < tile_columns) {
        S x = shared.triangle[Triangle::place(thread, thread)];
        if (Config::unit || tile.q * tile_columns + thread >= tile.t.rows)
            x = 1;
        const bool fits = absolute(x) >= Config::smallest_invertible;
        const S scale = fits ? 1 : 1 / Config::tolerance;
        shared.inverse[thread] = 1 / (x * scale);
        shared.scale[thread] = scale;
    }
    workgroup_barrier(); // the inverses are in shared memory
}

// Exchange a block column through shared memory, so that each thread has a row of it.
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

// Invert the 8 x 8 blocks on T's diagonal, one row per thread. Returns whether a product with them
// is about as accurate as substitution: the error is at most 16 u |R| (|T^-1| |T|)^T.
CUPYGEMM_INLINE bool invert_blocks(Shared &shared, u32 thread) {
    const u32 first = thread / block * block, i = thread % block;
    const bool inverts = thread < tile_columns;
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

// Replace the sums by X, one block column after the other.
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

} // namespace cupygemm
