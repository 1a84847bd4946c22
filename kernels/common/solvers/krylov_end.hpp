// Ends a cycle of GMRES: x += Z y, where y minimises the norm of (norm, 0, ..., 0) - H y. H is a
// Hessenberg matrix with one more row than columns.
//
// Each workgroup solves for y by Givens rotations, in shared memory, and updates its elements of x.
#include "common/solvers/krylov.hpp"

namespace cupygemm {

struct KrylovEndArgs {
    u64 columns;    // of H, `most` elements each; after the last possible column: the norm
    u64 directions; // Z, by vectors
    u64 x;
    i64 pitch; // elements between vectors of Z
    i32 n, steps;
    i32 direct; // y is the norm: a first solution, of one vector
    i32 unused;
};
static_assert(sizeof(KrylovEndArgs) == 48,
              "KrylovEndArgs must match the dtype that the launcher packs");

struct Shared {
    S h[most][most]; // (column, row)
    S right[most], cosine[most], sine[most];
};

// Rotate two rows of a column: (x, y) becomes (c x + s y, c y - s x).
CUPYGEMM_INLINE void rotate(S &x, S &y, S cosine, S sine) {
    const S old = x;
    x = plus_product(cosine * old, sine, y);
    y = minus_product(cosine * y, sine, old);
}

// Replace the right-hand side by y. A vector that depends on earlier ones has a zero on the
// diagonal, and its weight does not matter.
CUPYGEMM_INLINE void solve(Shared &shared, u32 steps) {
#pragma unroll 1
    for (u32 c = 0; c < steps; ++c) {
        S *const column = shared.h[c];
#pragma unroll 1
        for (u32 row = 0; row < c; ++row)
            rotate(column[row], column[row + 1], shared.cosine[row], shared.sine[row]);
        const S x = column[c], y = column[c + 1];
        const S length = square_root(plus_product(x * x, y, y));
        shared.cosine[c] = length > 0 ? x / length : 1;
        shared.sine[c] = length > 0 ? y / length : S{};
        column[c] = length;
        rotate(shared.right[c], shared.right[c + 1], shared.cosine[c], shared.sine[c]);
    }
#pragma unroll 1
    for (u32 c = steps; c-- > 0;) {
        const S diagonal = shared.h[c][c];
        const S weight = diagonal != 0 ? shared.right[c] / diagonal : S{};
        shared.right[c] = weight;
#pragma unroll 1
        for (u32 row = 0; row < c; ++row)
            shared.right[row] = minus_product(shared.right[row], shared.h[c][row], weight);
    }
}

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads) cupygemm_krylov_end(const cupygemm::KrylovEndArgs args) {
    using namespace cupygemm;
    __shared__ Shared shared;
    const u32 thread = local_thread(), steps = args.steps;
    const u32 i = group_index_x() * threads + thread;
    const S *const columns = reinterpret_cast<const S *>(args.columns);
    for (u32 k = thread; k < steps * most; k += threads)
        if (k % most <= k / most + 1)
            shared.h[k / most][k % most] = columns[k];
    if (thread < most)
        shared.right[thread] = thread == 0 ? columns[(most - 1) * most] : S{};
    workgroup_barrier(); // H and the right-hand side are in shared memory
    if (thread == 0 && args.direct == 0)
        solve(shared, steps);
    workgroup_barrier(); // y is in shared memory
    if (i >= static_cast<u32>(args.n))
        return;
    S *const x = reinterpret_cast<S *>(args.x);
    S sum = x[i];
#pragma unroll 4
    for (u32 k = 0; k < steps; ++k)
        sum = plus_product(sum, reinterpret_cast<const S *>(args.directions)[k * args.pitch + i],
                           shared.right[k]);
    x[i] = sum;
}
