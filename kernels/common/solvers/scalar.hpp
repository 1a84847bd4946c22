// Arithmetic of the solvers' elements: real and complex numbers in fp32 or fp64.
//
// `Real<S>` is the type of the parts of S, and `Word<S>` an unsigned integer of the same size. The
// compilers contract products and sums to fused multiply-adds.
#pragma once

#include "common/numeric.hpp"
#include "common/threads.hpp"

namespace cupygemm {

template <class S> struct Parts;
template <> struct Parts<float> {
    using Real = float;
    using Word = u32;
    static constexpr int words = 1;
};
template <> struct Parts<double> {
    using Real = double;
    using Word = u64;
    static constexpr int words = 1;
};
template <class R> struct Parts<Complex<R>> {
    using Real = R;
    using Word = typename Parts<R>::Word;
    static constexpr int words = 2;
};
template <class S> using Real = typename Parts<S>::Real;
template <class S> using Word = typename Parts<S>::Word;

CUPYGEMM_INLINE u32 bits_of(float x) { return f32_bits(x); }
CUPYGEMM_INLINE u64 bits_of(double x) { return f64_bits(x); }

// The first 32 bits of a word.
CUPYGEMM_INLINE u32 high_word(u32 word) { return word; }
CUPYGEMM_INLINE u32 high_word(u64 word) { return static_cast<u32>(word >> 32); }
CUPYGEMM_INLINE float real_of_bits(u32 bits) { return float_of_bits(bits); }
CUPYGEMM_INLINE double real_of_bits(u64 bits) { return double_of_bits(bits); }

// The words of a number, for exchange between threads.
template <class R> CUPYGEMM_INLINE void to_words(R x, Word<R> *words) { words[0] = bits_of(x); }
template <class R> CUPYGEMM_INLINE void to_words(Complex<R> x, Word<R> *words) {
    words[0] = bits_of(x.re);
    words[1] = bits_of(x.im);
}
template <class R> CUPYGEMM_INLINE void to_words_alone(R x, Word<R> *words) {
    store_alone(words, bits_of(x));
}
template <class R> CUPYGEMM_INLINE void to_words_alone(Complex<R> x, Word<R> *words) {
    store_alone(words, bits_of(x.re));
    store_alone(words + 1, bits_of(x.im));
}
template <class S> CUPYGEMM_INLINE S from_words(const Word<S> *words) {
    if constexpr (Parts<S>::words == 1)
        return real_of_bits(words[0]);
    else
        return {real_of_bits(words[0]), real_of_bits(words[1])};
}

// A number from another lane; `move` moves one word.
template <class Move> CUPYGEMM_INLINE float moved(float x, const Move &move) {
    return float_of_bits(move(f32_bits(x)));
}
template <class Move> CUPYGEMM_INLINE double moved(double x, const Move &move) {
    const u64 bits = f64_bits(x), low = move(static_cast<u32>(bits));
    return double_of_bits(low | static_cast<u64>(move(static_cast<u32>(bits >> 32))) << 32);
}
template <class R, class Move> CUPYGEMM_INLINE Complex<R> moved(Complex<R> x, const Move &move) {
    return {moved(x.re, move), moved(x.im, move)};
}
template <class S> CUPYGEMM_INLINE S exchanged(S x, u32 mask) {
    return moved(x, [mask](u32 word) { return exchanged(word, mask); });
}
template <class S> CUPYGEMM_INLINE S from_lane(S x, u32 lane) {
    return moved(x, [lane](u32 word) { return from_lane(word, lane); });
}

template <u32 lanes, class S> CUPYGEMM_INLINE S from_lane_of(S x, u32 lane) {
    return moved(x, [lane](u32 word) { return word_from_lane_of<lanes>(word, lane); });
}

template <class R> CUPYGEMM_INLINE void compute_now(Complex<R> &x) {
    compute_now(x.re);
    compute_now(x.im);
}

template <class R> CUPYGEMM_INLINE void keep_here(Complex<R> &x) {
    keep_here(x.re);
    keep_here(x.im);
}
template <class S, u32 count> CUPYGEMM_INLINE void keep_all_here(S (&x)[count]) {
#pragma unroll
    for (u32 i = 0; i < count; ++i)
        keep_here(x[i]);
}

CUPYGEMM_INLINE float plus(float x, float y) { return x + y; }
CUPYGEMM_INLINE double plus(double x, double y) { return x + y; }
template <class R> CUPYGEMM_INLINE Complex<R> plus(Complex<R> x, Complex<R> y) {
    return {x.re + y.re, x.im + y.im};
}

CUPYGEMM_INLINE float times(float x, float y) { return x * y; }
CUPYGEMM_INLINE double times(double x, double y) { return x * y; }
template <class R> CUPYGEMM_INLINE Complex<R> times(Complex<R> x, Complex<R> y) {
    return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}
template <class R> CUPYGEMM_INLINE Complex<R> times(Complex<R> x, R y) {
    return {x.re * y, x.im * y};
}

// z + x y
CUPYGEMM_INLINE float plus_product(float z, float x, float y) { return fma_of(x, y, z); }
CUPYGEMM_INLINE double plus_product(double z, double x, double y) { return fma_of(x, y, z); }
template <class R>
CUPYGEMM_INLINE Complex<R> plus_product(Complex<R> z, Complex<R> x, Complex<R> y) {
    return {fma_of(-x.im, y.im, fma_of(x.re, y.re, z.re)),
            fma_of(x.im, y.re, fma_of(x.re, y.im, z.im))};
}

CUPYGEMM_INLINE float negated(float x) { return -x; }
CUPYGEMM_INLINE double negated(double x) { return -x; }
template <class R> CUPYGEMM_INLINE Complex<R> negated(Complex<R> x) { return {-x.re, -x.im}; }

template <class S> CUPYGEMM_INLINE S minus_product(S z, S x, S y) {
    return plus_product(z, negated(x), y);
}

CUPYGEMM_INLINE float conjugated(float x) { return x; }
CUPYGEMM_INLINE double conjugated(double x) { return x; }
template <class R> CUPYGEMM_INLINE Complex<R> conjugated(Complex<R> x) { return {x.re, -x.im}; }

CUPYGEMM_INLINE float real_part(float x) { return x; }
CUPYGEMM_INLINE double real_part(double x) { return x; }
template <class R> CUPYGEMM_INLINE R real_part(Complex<R> x) { return x.re; }
CUPYGEMM_INLINE float imaginary_part(float) { return 0; }
CUPYGEMM_INLINE double imaginary_part(double) { return 0; }
template <class R> CUPYGEMM_INLINE R imaginary_part(Complex<R> x) { return x.im; }

template <class S> CUPYGEMM_INLINE S of_real(Real<S> x) {
    if constexpr (Parts<S>::words == 1)
        return x;
    else
        return {x, 0};
}

template <class S> CUPYGEMM_INLINE S with_parts(Real<S> x) {
    if constexpr (Parts<S>::words == 1)
        return x;
    else
        return {x, x};
}

CUPYGEMM_INLINE float absolute(float x) { return x < 0 ? -x : x; }
CUPYGEMM_INLINE double absolute(double x) { return x < 0 ? -x : x; }
// The same by the sign bit, which has a shorter chain of dependent instructions.
template <class R> CUPYGEMM_INLINE R without_sign(R x) {
    return real_of_bits(bits_of(x) & (~static_cast<Word<R>>(0) >> 1));
}

CUPYGEMM_INLINE float infinity(float) { return float_of_bits(0x7f800000u); }
CUPYGEMM_INLINE double infinity(double) { return double_of_bits(0x7ff0000000000000ull); }

// |re| + |im|, the magnitude by which LAPACK chooses pivots.
template <class S> CUPYGEMM_INLINE Real<S> magnitude(S x) {
    if constexpr (Parts<S>::words == 1)
        return without_sign(x);
    else
        return without_sign(x.re) + without_sign(x.im);
}

// A number of that magnitude, with any sign.
CUPYGEMM_INLINE float signed_magnitude(float x) { return x; }
CUPYGEMM_INLINE double signed_magnitude(double x) { return x; }
template <class R> CUPYGEMM_INLINE R signed_magnitude(Complex<R> x) { return magnitude(x); }

CUPYGEMM_INLINE float divided(float x, float y) { return x / y; }
CUPYGEMM_INLINE double divided(double x, double y) { return x / y; }
template <class R> CUPYGEMM_INLINE Complex<R> divided(Complex<R> x, R y) {
    return {x.re / y, x.im / y};
}
// By Smith's method, which squares no part and so avoids overflow. (R. L. Smith, Communications of
// the ACM 5, 1962)
template <class R> CUPYGEMM_INLINE Complex<R> divided(Complex<R> x, Complex<R> y) {
    const bool by_re = absolute(y.re) >= absolute(y.im);
    const R large = by_re ? y.re : y.im, small = by_re ? y.im : y.re;
    const R ratio = small / large, denominator = large + small * ratio;
    const R first = by_re ? x.re : x.im, second = by_re ? x.im : x.re;
    const R re = (first + second * ratio) / denominator;
    const R im = (second - first * ratio) / denominator;
    return {re, by_re ? im : -im};
}

// The inverse of a number, by Smith's method with inverses of real numbers. The inverse of the
// larger part must be a normal number; then so is the result.
template <class R> CUPYGEMM_INLINE Complex<R> inverse(Complex<R> x) {
    const bool by_re = without_sign(x.re) >= without_sign(x.im);
    const R large = by_re ? x.re : x.im, small = by_re ? x.im : x.re;
    const R ratio = small * inverse(large), first = inverse(fma_of(small, ratio, large));
    const R second = ratio * first;
    return by_re ? Complex<R>{first, -second} : Complex<R>{second, -first};
}

// Solve L x = b in registers: element(i, j) returns an element of L, for i > j, and divide(x, j)
// the quotient of x and diagonal element j. All loops are unrolled, so a step consists only of its
// products.
template <u32 count, class S, class Element, class Divide> CUPYGEMM_INLINE void
solve_in_registers(S (&x)[count], const Element &element, const Divide &divide) {
#pragma unroll
    for (u32 j = 0; j < count; ++j) {
        x[j] = divide(x[j], j);
#pragma unroll
        for (u32 i = j + 1; i < count; ++i)
            x[i] = minus_product(x[i], element(i, j), x[j]);
        keep_all_here(x);
    }
}

} // namespace cupygemm
