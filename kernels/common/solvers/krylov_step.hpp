// One of the launches that orthogonalise a vector against a basis, and normalise it:
//
//   stage 0   s0 = V^T w
//   stage 1   w -= V s0,  s1 = V^T w
//   stage 2   w -= V s1,  s2 = w^T w
//   stage 3   the next vector of V is w / sqrt(s2);  the column is (s0 + s1, sqrt(s2))
//
// A workgroup stores its partial sums; the workgroups that need the sums add all parts in the same
// order. With an empty basis, stages 2 and 3 begin a cycle: w = R r times a power of two that
// brings the largest element near one, and the column is the norm of R r.
#include "common/solvers/krylov.hpp"

namespace cupygemm {

struct KrylovArgs {
    u64 from;     // w; to begin, r
    u64 scale;    // the diagonal of R, to begin
    u64 to;       // w, or the next vector of V
    u64 basis;    // V, by vectors
    u64 parts;    // of the sums: (stage, workgroup, vector)
    u64 column;   // of the Hessenberg matrix
    u64 largest;  // of error_parts.hpp, to begin
    i64 pitch;    // elements between vectors of V
    i32 n, count; // of elements, and of vectors
    i32 stage, unused;
};
static_assert(sizeof(KrylovArgs) == 80, "KrylovArgs must match the dtype that the launcher packs");

struct Shared {
    S totals[2][most]; // of the stages 0 and 1, or of stage 2
    S elements[threads];
    S power;
};

// Add the parts of a stage's sums.
CUPYGEMM_INLINE void add_parts(const KrylovArgs &args, u32 stage, u32 count, u32 workgroups,
                               S (&totals)[most], u32 thread) {
    const S *const parts = reinterpret_cast<const S *>(args.parts) + stage * workgroups * most;
#pragma unroll 1
    for (u32 i = thread / 32; i < count; i += teams) {
        S sum{};
        for (u32 j = thread % 32; j < workgroups; j += 32)
            sum = plus(sum, parts[j * most + i]);
        sum = sum_of_32(sum);
        if (thread % 32 == 0)
            totals[i] = sum;
    }
}

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads) cupygemm_krylov_step(const cupygemm::KrylovArgs args) {
    using namespace cupygemm;
    __shared__ Shared shared;
    const u32 thread = local_thread(), group = group_index_x(), n = args.n, count = args.count;
    const u32 stage = args.stage, first = group * threads, at = first + thread;
    const u32 workgroups = ceil_div(n, threads);
    const bool begins = count == 0, inside = at < n;
    const S *const basis = reinterpret_cast<const S *>(args.basis);
    S value = inside ? reinterpret_cast<const S *>(args.from)[at] : S{};
    if (begins && thread < 32) {
        S largest{};
        for (u32 j = thread; j < workgroups; j += 32)
            largest = larger(largest, reinterpret_cast<const S *>(args.largest)[j * maxima + 3]);
        largest = largest_of_32(largest);
        shared.power = inverse_power_of_two(largest);
    }
    if (stage == 3 && group == 0) {
        add_parts(args, 0, count, workgroups, shared.totals[0], thread);
        add_parts(args, 1, count, workgroups, shared.totals[1], thread);
        workgroup_barrier(); // the sums are in shared memory
        S *const column = reinterpret_cast<S *>(args.column);
        if (thread < count)
            column[thread] = plus(shared.totals[0][thread], shared.totals[1][thread]);
        workgroup_barrier(); // the sums have been read
    }
    if (stage > 0)
        add_parts(args, stage - 1, stage < 3 ? count : 1, workgroups, shared.totals[0], thread);
    workgroup_barrier(); // the sums and the power are in shared memory
    if (stage == 3) {
        const S norm = square_root(shared.totals[0][0]);
        if (inside)
            reinterpret_cast<S *>(args.to)[at] = norm > 0 ? value / norm : S{};
        if (group == 0 && thread == 0)
            reinterpret_cast<S *>(args.column)[count] = begins ? norm / shared.power : norm;
        return;
    }
    if (begins)
        value = inside ? value * reinterpret_cast<const S *>(args.scale)[at] * shared.power : S{};
    if (stage > 0 && inside) {
#pragma unroll 4
        for (u32 i = 0; i < count; ++i)
            value = minus_product(value, shared.totals[0][i], basis[i * args.pitch + at]);
        reinterpret_cast<S *>(args.to)[at] = value;
    }
    shared.elements[thread] = value;
    workgroup_barrier(); // the elements are in shared memory
    const u32 sums = stage == 2 ? 1 : count;
#pragma unroll 1
    for (u32 i = thread / 32; i < sums; i += teams) {
        const S *const other = basis + i * args.pitch;
        S sum{};
#pragma unroll
        for (u32 k = thread % 32; k < threads; k += 32)
            if (first + k < n)
                sum = plus_product(sum, shared.elements[k],
                                   stage == 2 ? shared.elements[k] : other[first + k]);
        sum = sum_of_32(sum);
        if (thread % 32 == 0)
            reinterpret_cast<S *>(args.parts)[(stage * workgroups + group) * most + i] = sum;
    }
}
