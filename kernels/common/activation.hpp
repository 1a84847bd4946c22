// Activation functions in fp32 and fp64, identical on every target.
//
// Each formula avoids cancellation and overflow. sigmoid is built from e^-|x|. gelu is
// max(x, 0) - |x| tail(|x|), where tail is the upper tail of the normal distribution, computed as
// e^(-x^2/2) times a function that hardly varies. fp32 uses the hardware's exp2 and reciprocal,
// accurate to 1 or 2 units in the last place; fp64 uses functions of this file. Results that are
// rounded to 16 bits or fewer afterwards take shorter formulas, accurate to 13 bits (15 where
// |x| < 6), in about half the instructions. Results below the smallest normal number become 0; NaN
// stays NaN.
#pragma once

#include "common/numeric.hpp"

namespace cupygemm {

// e^x for x <= 0, as 2^n times 2^r (fp32) or 2^n times e^r (fp64), where n is an integer and r is
// small. Adding `shift`, whose last bit is worth 1, rounds x / ln(2) to n in the sum's low bits.
CUPYGEMM_INLINE float exp_of_negative(float x) {
    constexpr float log2_e = 1.4426950216293335f, log2_e_low = 1.92596299e-8f;
    constexpr float shift = 12582912; // 1.5 * 2^23
    const float shifted = fma_of(x, log2_e, shift);
    const float n = shifted - shift;
    const float r = fma_of(x, log2_e_low, fma_of(x, log2_e, -n));
    const float scale = float_of_bits((f32_bits(shifted) << 23) + 0x3f800000u); // 2^n
    return x < -87.3f ? 0 : hardware_exp2(r) * scale;
}

CUPYGEMM_INLINE double exp_of_negative(double x) {
    constexpr double log2_e = 1.4426950408889634;
    constexpr double ln_2 = 0.6931471805599453, ln_2_low = 2.3190468138462996e-17;
    constexpr double shift = 6755399441055744.0; // 1.5 * 2^52
    const double shifted = fma_of(x, log2_e, shift);
    const double n = shifted - shift;
    const double r = fma_of(n, -ln_2_low, fma_of(n, -ln_2, x)); // at most ln(2) / 2
    double sum = 1.0 / 6227020800.0;                            // Taylor series up to r^13 / 13!
    constexpr double inverse_factorials[13] = {1.0 / 479001600.0,
                                               1.0 / 39916800.0,
                                               1.0 / 3628800.0,
                                               1.0 / 362880.0,
                                               1.0 / 40320.0,
                                               1.0 / 5040.0,
                                               1.0 / 720.0,
                                               1.0 / 120.0,
                                               1.0 / 24.0,
                                               1.0 / 6.0,
                                               0.5,
                                               1.0,
                                               1.0};
#pragma unroll
    for (int i = 0; i < 13; ++i)
        sum = fma_of(sum, r, inverse_factorials[i]);
    const double scale = double_of_bits((f64_bits(shifted) << 52) + 0x3ff0000000000000ull);
    return x < -708.0 ? 0 : sum * scale;
}

CUPYGEMM_INLINE float reciprocal(float x) { return hardware_reciprocal(x); }
CUPYGEMM_INLINE double reciprocal(double x) { return 1 / x; }

CUPYGEMM_INLINE float magnitude(float x) { return float_of_bits(f32_bits(x) & 0x7fffffffu); }
CUPYGEMM_INLINE double magnitude(double x) {
    return double_of_bits(f64_bits(x) & 0x7fffffffffffffffull);
}

// (1 + x) tail(x) e^(x^2/2) for x >= 0, as a polynomial in t = (x - k) / (x + k), which maps [0,
// inf) to [-1, 1) (M. M. Shepherd and J. G. Laframboise, "Chebyshev approximation of (1 + 2x)
// exp(x^2) erfc(x) in 0 <= x < inf", Math. Comp. 36, 1981). The coefficients are those of Chebyshev
// interpolants, computed with mpmath's chebyfit in 50 digits. In fp32, k = 4, x is at most 16, and
// the error is 1.4e-9; in fp64, k = 5, x is at most 40, and the error is 7e-18. For larger x the
// tail is 0.
template <class Real> struct NormalTail;

template <> struct NormalTail<float> {
    static constexpr float k = 4, end = 16;
    static constexpr float coefficients[11] = {
        -7.506471445e-5f, -6.823701398e-5f, 0.0006904429921f, -0.0002989144813f,
        -0.005001626278f, 0.01793922804f,   -0.03219794671f,  0.02860005152f,
        0.01399964664f,   -0.09670346849f,  0.4720532063f};
};

template <> struct NormalTail<double> {
    static constexpr double k = 5, end = 40;
    static constexpr double coefficients[23] = {
        7.5195142426943452753e-10, 3.9777199082724217564e-9,  3.5180215224753572053e-10,
        -3.1931420875079906556e-8, -2.186097318751282009e-8,  1.9880186832899551842e-7,
        1.245584441332959602e-7,   -1.3099251379800419912e-6, -6.8839721757385017992e-8,
        9.0611849353880969916e-6,  -9.8965193804271107214e-6, -0.000053608037514625632082,
        0.00018233421567560568028, 7.7916921311594781184e-6,  -0.0016760723509154355297,
        0.0065220006560217192953,  -0.015170415402300888404,  0.024536963244480904864,
        -0.026401042966303376981,  0.010002352385204272945,   0.031030368425963377847,
        -0.091552281834008804044,  0.46151582985003777453};
};

// x tail(x) for x >= 0, where tail(x) is the probability that a standard normal variable exceeds x.
template <class Real> CUPYGEMM_INLINE Real normal_tail_times(Real x) {
    using Tail = NormalTail<Real>;
    x = x > Tail::end ? Tail::end : x;
    const Real inverse = reciprocal((x + Tail::k) * (x + 1));
    const Real t = (x - Tail::k) * (x + 1) * inverse;
    Real sum = 0;
#pragma unroll
    for (Real coefficient : Tail::coefficients)
        sum = fma_of(sum, t, coefficient);
    const Real square = x * x;
    const Real rest = fma_of(x, x, -square); // the rounding error of the square
    const Real power = exp_of_negative(square * Real(-0.5));
    const Real exact = fma_of(power, rest * Real(-0.5), power);
    return x * (x + Tail::k) * inverse * sum * exact;
}

template <class Real> CUPYGEMM_INLINE Real positive_part(Real x) {
    return maximum_or_nan(x, Real(0));
}

// -- For results of at most 16 bits ---------------------------------------------------------------

// -log2 of the normal distribution's tail for 0 <= x <= end, which is close to a parabola. The
// polynomial minimises the largest error; it was computed with Lawson's iteration on 4001 Chebyshev
// points. For x > end, x tail(x) is below the smallest normal number.
struct NarrowNormalTail {
    static constexpr float end = 13.2f;
    static constexpr float coefficients[10] = {
        1.92336369e-9f,  -1.40332901e-7f, 4.50273046e-6f, -8.41045185e-5f, 0.00102408626f,
        -0.00867957808f, 0.0539847352f,   0.458760709f,   1.1509937f,      1.00002956f};
};

CUPYGEMM_INLINE float narrow_gelu(float x) {
    using Tail = NarrowNormalTail;
    const float whole = magnitude(x), size = whole > Tail::end ? Tail::end : whole;
    float bits = Tail::coefficients[0];
#pragma unroll
    for (int i = 1; i < 10; ++i)
        bits = fma_of(bits, size, Tail::coefficients[i]);
    return fma_of(-size, hardware_exp2(-bits), positive_part(x));
}

// Where the result is below the smallest normal number, 2^-x overflows and its reciprocal is 0.
CUPYGEMM_INLINE float narrow_sigmoid(float x) {
    constexpr float log2_e = 1.4426950216293335f;
    return hardware_reciprocal(1 + hardware_exp2(x * -log2_e));
}

// -- For results of any width ---------------------------------------------------------------------

template <bool narrow, class Real> CUPYGEMM_INLINE Real sigmoid_of(Real x) {
    if constexpr (narrow) {
        return narrow_sigmoid(x);
    } else {
        const Real small = exp_of_negative(-magnitude(x));
        const Real inverse = reciprocal(1 + small);
        return x >= 0 ? inverse : small * inverse;
    }
}

// x sigmoid(y), where y is large when x is. The lower limit on x keeps -infinity from meeting a
// sigmoid of zero.
template <bool narrow, class Real> CUPYGEMM_INLINE Real times_sigmoid(Real x, Real y) {
    return maximum_or_nan(x, Real(-1000)) * sigmoid_of<narrow>(y);
}

// -- The activation functions ---------------------------------------------------------------------
//
// One struct for each row of cupygemm/_epilogue/activations.py, with the name of the row.
// `of<narrow>(x)` returns the function of x; `narrow` says that at most 16 bits of it are kept.

namespace activations {

struct relu {
    template <bool narrow, class Real> CUPYGEMM_INLINE static Real of(Real x) {
        return positive_part(x);
    }
};

struct gelu {
    template <bool narrow, class Real> CUPYGEMM_INLINE static Real of(Real x) {
        if constexpr (narrow)
            return narrow_gelu(x);
        else
            return positive_part(x) - normal_tail_times(magnitude(x));
    }
};

struct gelu_tanh {
    template <bool narrow, class Real> CUPYGEMM_INLINE static Real of(Real x) {
        // (1 + tanh(y / 2)) / 2 is sigmoid(y), and y is 2 sqrt(2/pi) (x + 0.044715 x^3).
        constexpr Real linear = Real(1.5957691216057308), cubic = Real(0.071354816272600255);
        return times_sigmoid<narrow>(x, x * fma_of(x * x, cubic, linear));
    }
};

struct silu {
    template <bool narrow, class Real> CUPYGEMM_INLINE static Real of(Real x) {
        return times_sigmoid<narrow>(x, x);
    }
};

struct sigmoid {
    template <bool narrow, class Real> CUPYGEMM_INLINE static Real of(Real x) {
        return sigmoid_of<narrow>(x);
    }
};

} // namespace activations

// The activation of an epilogue that has none.
struct NoActivation {
    template <bool narrow, class Real> CUPYGEMM_INLINE static Real of(Real x) { return x; }
};

// Whether a struct is defined, rather than only declared, as a kernel's configuration declares the
// activation that it names.
template <class T, class = void> struct IsDefined {
    static constexpr bool value = false;
};
template <class T> struct IsDefined<T, decltype(void(sizeof(T)))> {
    static constexpr bool value = true;
};

// T, or NoActivation where T is not defined, so that the static_assert on IsDefined is the only
// error of the compilation.
template <class T, bool defined = IsDefined<T>::value> struct DefinedActivation {
    using Type = T;
};
template <class T> struct DefinedActivation<T, false> {
    using Type = NoActivation;
};

} // namespace cupygemm
