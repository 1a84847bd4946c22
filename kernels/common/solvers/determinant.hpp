// Determinants of factored matrices, P A = L U: the product of U's diagonal, with the sign of P, or
// the logarithm of its magnitude and its sign.
//
// A group of 32 threads multiplies one matrix's diagonal. A partial product may overflow or
// underflow even if the whole one does not, so each is a number between 2 and 4 and a power of two.
#include "common/solvers/scalar.hpp"
#include "config.hpp"

namespace cupygemm {

struct DeterminantArgs {
    u64 lu;           // element (0, 0) of the first matrix
    i64 next_pivot;   // elements from one element of a diagonal to the next
    i64 next_matrix;  // and from a matrix to the next
    u64 pivots;       // i32, (n,) of each matrix: row i was swapped with row pivots[i]
    u64 determinants; // one of each matrix, or its sign
    u64 logarithms;   // of magnitudes, real; or 0
    i32 n, batches;
};
static_assert(sizeof(DeterminantArgs) == 56,
              "DeterminantArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
using R = Real<S>;
using W = Word<S>;
constexpr u32 threads = Config::threads, lanes = 32;
constexpr u32 ahead = 8; // loads that a lane has in flight
constexpr bool of_logarithms = Config::logarithms;
constexpr i32 fraction_bits = sizeof(R) == 4 ? 23 : 52, bias = sizeof(R) == 4 ? 127 : 1023;

// Two to a power for which this is a normal number.
CUPYGEMM_INLINE R power_of_two(i32 exponent) {
    return real_of_bits(static_cast<W>(exponent + bias) << fraction_bits);
}

template <class T> CUPYGEMM_INLINE R larger_part(T x) {
    const R re = without_sign(real_part(x)), im = without_sign(imaginary_part(x));
    return re > im ? re : im;
}

// A number times a power of two. The larger part of the number is between 2 and 4; or it is zero,
// infinite or NaN, and the power is 1.
template <class T> struct Scaled {
    T value;
    i32 exponent;

    CUPYGEMM_INLINE explicit Scaled(T x, i32 given = 0) : value(x), exponent(given) {
        const W bits = bits_of(larger_part(x));
        if (bits == 0 || bits >= bits_of(infinity(R{})))
            return;
        const bool is_subnormal = bits >> fraction_bits == 0;
        if (is_subnormal)
            value = times(value, power_of_two(fraction_bits + 1));
        const i32 found = static_cast<i32>(bits_of(larger_part(value)) >> fraction_bits) - bias - 1;
        value = times(value, power_of_two(-found));
        exponent += found - (is_subnormal ? fraction_bits + 1 : 0);
    }
    CUPYGEMM_INLINE Scaled operator*(Scaled other) const {
        return Scaled(times(value, other.value), exponent + other.exponent);
    }
    CUPYGEMM_INLINE Scaled from(u32 mask) const {
        Scaled other(*this);
        other.value = exchanged(value, mask);
        other.exponent = static_cast<i32>(exchanged(static_cast<u32>(exponent), mask));
        return other;
    }
    // The number itself. The power is applied in steps, of which only the last one rounds.
    CUPYGEMM_INLINE T whole() const {
        constexpr i32 most = 3 * bias - 6;
        const i32 all = exponent > most ? most : exponent < -most ? -most : exponent;
        const i32 step = all / 3;
        return times(times(times(value, power_of_two(step)), power_of_two(step)),
                     power_of_two(all - 2 * step));
    }
};

// x / |x|, or zero; NaN counts as positive, as in NumPy.
CUPYGEMM_INLINE R unit_of(R x, R) { return x < 0 ? -1 : x == 0 ? 0 : 1; }
CUPYGEMM_INLINE Complex<R> unit_of(Complex<R> x, R size) {
    return size == 0 ? Complex<R>{} : divided(x, size);
}

CUPYGEMM_INLINE R size_of(R x) { return without_sign(x); }
CUPYGEMM_INLINE R size_of(Complex<R> x) { return square_root(fma_of(x.re, x.re, x.im * x.im)); }

// The natural logarithm, by log x = 2 artanh((x - 1) / (x + 1)) with x between 0.7 and 1.42.
CUPYGEMM_INLINE R logarithm(Scaled<R> of) {
    if (of.value == 0)
        return -infinity(R{});
    if (!(of.value < infinity(R{})))
        return of.value;
    const bool is_upper = of.value > static_cast<R>(2.8);
    const R x = of.value / (is_upper ? 4 : 2), ratio = (x - 1) / (x + 1), square = ratio * ratio;
    R sum = 0;
#pragma unroll
    for (i32 k = 11; k >= 0; --k)
        sum = fma_of(sum, square, static_cast<R>(1) / static_cast<R>(2 * k + 1));
    const R exponent = static_cast<R>(of.exponent + (is_upper ? 2 : 1));
    return fma_of(exponent, static_cast<R>(0.693147180559945309417), 2 * ratio * sum);
}

// The factors of a determinant that a thread has multiplied.
struct Product {
    Scaled<S> all{of_real<S>(1)};
    S unit = of_real<S>(1);
    Scaled<R> size{static_cast<R>(1)};

    CUPYGEMM_INLINE void take(S pivot) {
        const Scaled<S> scaled(pivot);
        if constexpr (of_logarithms) {
            const R found = size_of(scaled.value);
            unit = times(unit, unit_of(scaled.value, found));
            size = size * Scaled<R>(found, scaled.exponent);
        } else {
            all = all * scaled;
        }
    }
    CUPYGEMM_INLINE void take_others() {
#pragma unroll
        for (u32 mask = lanes / 2; mask > 0; mask /= 2) {
            if constexpr (of_logarithms) {
                unit = times(unit, exchanged(unit, mask));
                size = size * size.from(mask);
            } else {
                all = all * all.from(mask);
            }
        }
    }
};

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_determinant(const cupygemm::DeterminantArgs args) {
    using namespace cupygemm;
    const u32 lane = local_thread() % lanes, n = args.n;
    const u32 matrix = group_index_x() * (threads / lanes) + local_thread() / lanes;
    if (matrix >= static_cast<u32>(args.batches)) // for all lanes of a group
        return;
    const S *const diagonal = reinterpret_cast<const S *>(args.lu) + matrix * args.next_matrix;
    const i32 *const pivots =
        reinterpret_cast<const i32 *>(args.pivots) + static_cast<i64>(matrix) * n;
    Product product;
    u32 swaps = 0;
#pragma unroll 1
    for (u32 first = lane; first < n; first += lanes * ahead) {
        S pivot[ahead];
#pragma unroll
        for (u32 k = 0; k < ahead; ++k) {
            const u32 i = first + lanes * k;
            pivot[k] = i < n ? diagonal[i * args.next_pivot] : of_real<S>(1);
            swaps += i < n && pivots[i] != static_cast<i32>(i) ? 1 : 0;
        }
#pragma unroll
        for (u32 k = 0; k < ahead; ++k)
            product.take(pivot[k]);
    }
    product.take_others();
#pragma unroll
    for (u32 mask = lanes / 2; mask > 0; mask /= 2)
        swaps += exchanged(swaps, mask);
    if (lane != 0)
        return;
    S determinant = of_logarithms ? product.unit : product.all.whole();
    if (swaps % 2 != 0)
        determinant = negated(determinant);
    reinterpret_cast<S *>(args.determinants)[matrix] = determinant;
    if constexpr (of_logarithms)
        reinterpret_cast<R *>(args.logarithms)[matrix] = logarithm(product.size);
}
