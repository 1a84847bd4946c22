// The norms for backward errors: each workgroup's largest magnitudes in r = b - A x, x and b, and
// in R r, C^-1 x and R b of the scaled system.
#include "common/solvers/krylov.hpp"

namespace cupygemm {

struct ErrorArgs {
    u64 r, x, b;
    u64 rows, columns; // the diagonals of R and C
    u64 found;         // `maxima` of each workgroup
    i32 n, unused;
};
static_assert(sizeof(ErrorArgs) == 56, "ErrorArgs must match the dtype that the launcher packs");

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads) cupygemm_error_parts(const cupygemm::ErrorArgs args) {
    using namespace cupygemm;
    __shared__ S largest[teams][maxima];
    const u32 thread = local_thread(), group = group_index_x(), i = group * threads + thread;
    S found[maxima] = {};
    if (i < static_cast<u32>(args.n)) {
        const S r = reinterpret_cast<const S *>(args.r)[i];
        const S x = reinterpret_cast<const S *>(args.x)[i];
        const S b = reinterpret_cast<const S *>(args.b)[i];
        const S row = reinterpret_cast<const S *>(args.rows)[i];
        const S column = reinterpret_cast<const S *>(args.columns)[i];
        const S of[maxima] = {r, x, b, row * r, x / column, row * b};
#pragma unroll
        for (u32 k = 0; k < maxima; ++k)
            found[k] = real_of_bits(bits_of(of[k]) & (~static_cast<W>(0) >> 1));
    }
#pragma unroll
    for (u32 k = 0; k < maxima; ++k) {
        const S of_32 = largest_of_32(found[k]);
        if (thread % 32 == 0)
            largest[thread / 32][k] = of_32;
    }
    workgroup_barrier(); // the maxima of the groups of 32 are in shared memory
    if (thread >= maxima)
        return;
    S of_all = largest[0][thread];
#pragma unroll
    for (u32 team = 1; team < teams; ++team)
        of_all = larger(of_all, largest[team][thread]);
    reinterpret_cast<S *>(args.found)[group * maxima + thread] = of_all;
}
