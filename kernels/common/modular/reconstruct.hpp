// Reconstructs sums of products from their residues by the Chinese remainder theorem, and adds them
// to C.
//
// P is the product of the moduli p_l, and the weight w_l is 1 modulo p_l and 0 modulo the others.
// The integer is sum(w_l r_l) - Q P, with the Q that makes it smallest. Weights and P are sums of
// two doubles; the high parts have few bits, so that their sum is exact. Then
//
//   Q = nearest(high sum / P)   integer = (high sum - Q P_high) + (low sum - Q P_low)
//
// has an error below 2^-80 P. It is scaled back by powers of two: C = alpha integer 2^-e + beta C.
#include "common/modular/moduli.hpp"
#include "config.hpp"

namespace cupygemm {

struct ReconstructArgs {
    u64 sums;                         // i32, (matrix, modulus, m, pitch)
    u64 row_exponents, col_exponents; // i32, (matrix, m) and (matrix, n)
    u64 addend, c;                    // addend is not read if beta is zero
    i64 add_row, add_column, add_batch;
    i64 row, column, batch;                     // elements between rows, columns and matrices of C
    i64 row_exponent_batch, col_exponent_batch; // 0 where all matrices have one operand
    double alpha, beta;
    double inverse, product_high, product_low;  // of P
    double high[most_moduli], low[most_moduli]; // the weights
    i32 m, n, pitch;
    i32 unused;
};
static_assert(sizeof(ReconstructArgs) == 416, "ReconstructArgs must match what the launcher packs");

constexpr u32 threads = Config::threads, count = Config::moduli;
constexpr u32 per_thread = 4, across = Config::across, down = threads / across;

struct alignas(16) Sums {
    i32 values[per_thread];
};

// Adds the residues of one modulus, times the parts of their weight.
struct AddResidues {
    const ReconstructArgs &args;
    const i32 *sums; // of the first modulus
    i64 plane;       // elements between moduli
    double (&high)[per_thread], (&low)[per_thread];

    template <class Modulus> CUPYGEMM_INLINE void operator()(Modulus) const {
        const Sums each = *reinterpret_cast<const Sums *>(sums + Modulus::index * plane);
#pragma unroll
        for (u32 i = 0; i < per_thread; ++i) {
            const double residue = Modulus::residue(each.values[i]);
            high[i] = fma_of(args.high[Modulus::index], residue, high[i]);
            low[i] = fma_of(args.low[Modulus::index], residue, low[i]);
        }
    }
};

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_reconstruct(const cupygemm::ReconstructArgs args) {
    using namespace cupygemm;
    const u32 thread = local_thread();
    const u32 strips = (static_cast<u32>(args.n) + across * per_thread - 1) / (across * per_thread);
    const i64 matrix = group_index_y();
    const i32 row = static_cast<i32>(group_index_x() / strips * down + thread / across);
    const i32 column =
        static_cast<i32>((group_index_x() % strips * across + thread % across) * per_thread);
    if (row >= args.m || column >= args.n)
        return;

    const i64 plane = static_cast<i64>(args.m) * args.pitch;
    const i32 *sums = reinterpret_cast<const i32 *>(args.sums) + matrix * count * plane +
                      static_cast<i64>(row) * args.pitch + column;
    double high[per_thread] = {}, low[per_thread] = {};
    for_moduli<count>(AddResidues{args, sums, plane, high, low});

    const i32 *row_exponents =
        reinterpret_cast<const i32 *>(args.row_exponents) + matrix * args.row_exponent_batch;
    const i32 *col_exponents =
        reinterpret_cast<const i32 *>(args.col_exponents) + matrix * args.col_exponent_batch;
    using S = Config::Scalar;
    S *const c = reinterpret_cast<S *>(args.c) + matrix * args.batch + row * args.row;
    const S *const addend =
        reinterpret_cast<const S *>(args.addend) + matrix * args.add_batch + row * args.add_row;
    const i32 row_exponent = row_exponents[row];
#pragma unroll
    for (u32 i = 0; i < per_thread; ++i) {
        if (column + static_cast<i32>(i) >= args.n)
            break;
        const i64 at = column + i;
        const double multiple = nearest_integer(high[i] * args.inverse);
        const double rest = fma_of(-multiple, args.product_low, low[i]);
        const double integer = fma_of(-multiple, args.product_high, high[i]) + rest;
        const i32 col_exponent = col_exponents[at];
        const bool is_finite = row_exponent != not_finite && col_exponent != not_finite;
        double value = times_power_of_two(integer, is_finite ? -row_exponent - col_exponent : 0);
        value = is_finite ? args.alpha * value : double_of_bits(0x7ff8000000000000ull);
        if (args.beta != 0)
            value = fma_of(args.beta, static_cast<double>(addend[at * args.add_column]), value);
        c[at * args.column] = static_cast<S>(value);
    }
}
