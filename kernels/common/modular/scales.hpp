// Powers of two by which vectors are scaled before they are rounded to integers.
//
// The vectors are rows of A or columns of B. The integers of a vector get the largest Euclidean
// norm that the moduli allow: the sum of products of two of them is at most the product of their
// norms, which must stay below half the product of the moduli.
//
//   largest magnitude, sum of squares -> norm -> exponent of 2^e
//
// If squares could overflow or underflow, a second pass scales elements before it squares them.
#include "common/modular/moduli.hpp"
#include "config.hpp"

namespace cupygemm {

struct ScalesArgs {
    u64 x;                           // element 0 of the first vector of the first matrix
    i64 vector_stride, along, batch; // elements between vectors, along k, and between matrices
    u64 exponents;                   // i32, (matrix, vector)
    double norm;                     // the largest norm of a scaled vector
    i32 vectors, k;
};
static_assert(sizeof(ScalesArgs) == 56, "ScalesArgs must match the struct that the launcher packs");

constexpr u32 threads = Config::threads;
// Adjacent threads read adjacent elements, along k or of adjacent vectors.
constexpr u32 lanes = Config::along_k ? 32 : 16, in_group = threads / lanes;

// The exponent of a positive number: x is in [2^e, 2^(e + 1)).
CUPYGEMM_INLINE i32 exponent_of(double x) {
    constexpr double normal = 0x1p-1022, lift = 0x1p64;
    const bool is_small = x < normal;
    const u64 bits = f64_bits(is_small ? x * lift : x);
    return static_cast<i32>(bits >> 52) - 1023 - (is_small ? 64 : 0);
}

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads) cupygemm_scales(const cupygemm::ScalesArgs args) {
    using namespace cupygemm;
    __shared__ double parts[lanes][in_group], sums[lanes][in_group];
    const u32 thread = local_thread();
    const u32 lane = Config::along_k ? thread % lanes : thread / in_group;
    const u32 member = Config::along_k ? thread / lanes : thread % in_group;
    const i32 vector = static_cast<i32>(group_index_x() * in_group + member);
    const i64 matrix = group_index_y();
    const Config::Scalar *x = reinterpret_cast<const Config::Scalar *>(args.x) +
                              matrix * args.batch + vector * args.vector_stride;
    const i32 k = vector < args.vectors ? args.k : 0;

    double largest = 0, sum = 0;
#pragma unroll 8
    for (i32 i = static_cast<i32>(lane); i < k; i += lanes) {
        const double value = static_cast<double>(x[i * args.along]);
        largest = maximum_or_nan(largest, value < 0 ? -value : value);
        sum = fma_of(value, value, sum); // NaN if the value is
    }
    parts[lane][member] = largest;
    sums[lane][member] = sum;
    workgroup_barrier(); // the largest magnitude and the sum of each lane are in shared memory
    sum = 0;
    for (u32 i = 0; i < lanes; ++i) {
        largest = maximum_or_nan(largest, parts[i][member]);
        sum += sums[i][member];
    }
    // Infinity minus itself is NaN.
    const bool is_finite = sum == sum && largest - largest == 0;
    const bool is_scaled = is_finite && !(largest > 0x1p-500 && largest < 0x1p500);
    const i32 exponent = is_scaled && largest > 0 ? exponent_of(largest) : 0;
    sum = is_scaled || lane != 0 ? 0 : sum; // the first lane has the sum of all
    for (i32 i = static_cast<i32>(lane); i < (is_scaled ? k : 0); i += lanes) {
        const double value = times_power_of_two(static_cast<double>(x[i * args.along]), -exponent);
        sum = fma_of(value, value, sum);
    }
    workgroup_barrier(); // every lane has read the sums
    sums[lane][member] = sum;
    workgroup_barrier(); // the sum of each lane is in shared memory
    if (lane != 0 || vector >= args.vectors)
        return;
    sum = 0;
    for (u32 i = 0; i < lanes; ++i)
        sum += sums[i][member];
    const i32 scale = sum > 0 ? exponent_of(args.norm / square_root(sum)) - exponent : 0;
    reinterpret_cast<i32 *>(args.exponents)[matrix * args.vectors + vector] =
        is_finite ? scale : not_finite;
}
