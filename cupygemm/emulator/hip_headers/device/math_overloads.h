// C++ overloads: the plain names for single precision, integers and mixed arguments, min and max of
// floating-point numbers, and the fast and the explicitly rounded functions.
#pragma once

#include <device/math_basic.h>
#include <device/math_bessel.h>
#include <device/math_exponential.h>
#include <device/math_hyperbolic.h>
#include <device/math_special.h>
#include <device/math_trigonometric.h>

template <typename T> struct hip_is_integer {
    static constexpr bool value = false;
};
#define HIP_INTEGER(type)                                                                          \
    template <> struct hip_is_integer<type> {                                                      \
        static constexpr bool value = true;                                                        \
    };
HIP_INTEGER(bool)
HIP_INTEGER(char)
HIP_INTEGER(signed char)
HIP_INTEGER(unsigned char)
HIP_INTEGER(short)
HIP_INTEGER(unsigned short)
HIP_INTEGER(int)
HIP_INTEGER(unsigned int)
HIP_INTEGER(long)
HIP_INTEGER(unsigned long)
HIP_INTEGER(long long)
HIP_INTEGER(unsigned long long)
#undef HIP_INTEGER

template <bool condition, typename T> struct hip_enable_if {};
template <typename T> struct hip_enable_if<true, T> {
    typedef T type;
};
template <typename T, typename R = double> using hip_if_integer =
    typename hip_enable_if<hip_is_integer<T>::value, R>::type;

template <typename T> struct hip_is_arithmetic {
    static constexpr bool value = hip_is_integer<T>::value;
};
template <> struct hip_is_arithmetic<_Float16> {
    static constexpr bool value = true;
};
template <> struct hip_is_arithmetic<float> {
    static constexpr bool value = true;
};
template <> struct hip_is_arithmetic<double> {
    static constexpr bool value = true;
};
template <typename A, typename B> struct hip_are_same {
    static constexpr bool value = false;
};
template <typename A> struct hip_are_same<A, A> {
    static constexpr bool value = true;
};
// double for two arithmetic types that are not both float or both double.
template <typename A, typename B> using hip_if_mixed =
    typename hip_enable_if<hip_is_arithmetic<A>::value && hip_is_arithmetic<B>::value &&
                               (!hip_are_same<A, B>::value || hip_is_integer<A>::value),
                           double>::type;

#define HIP_MATH(name)                                                                             \
    HIP_DEVICE float name(float x) { return name##f(x); }                                          \
    template <typename T> HIP_DEVICE hip_if_integer<T> name(T x) { return name((double)x); }
HIP_MATH(acos)
HIP_MATH(acosh)
HIP_MATH(asin)
HIP_MATH(asinh)
HIP_MATH(atan)
HIP_MATH(atanh)
HIP_MATH(cbrt)
HIP_MATH(ceil)
HIP_MATH(cos)
HIP_MATH(cosh)
HIP_MATH(cospi)
HIP_MATH(cyl_bessel_i0)
HIP_MATH(cyl_bessel_i1)
HIP_MATH(erf)
HIP_MATH(erfc)
HIP_MATH(erfcinv)
HIP_MATH(erfcx)
HIP_MATH(erfinv)
HIP_MATH(exp)
HIP_MATH(exp10)
HIP_MATH(exp2)
HIP_MATH(expm1)
HIP_MATH(fabs)
HIP_MATH(floor)
HIP_MATH(j0)
HIP_MATH(j1)
HIP_MATH(lgamma)
HIP_MATH(log)
HIP_MATH(log10)
HIP_MATH(log1p)
HIP_MATH(log2)
HIP_MATH(logb)
HIP_MATH(nearbyint)
HIP_MATH(normcdf)
HIP_MATH(normcdfinv)
HIP_MATH(rcbrt)
HIP_MATH(rint)
HIP_MATH(round)
HIP_MATH(rsqrt)
HIP_MATH(sin)
HIP_MATH(sinh)
HIP_MATH(sinpi)
HIP_MATH(sqrt)
HIP_MATH(tan)
HIP_MATH(tanh)
HIP_MATH(tgamma)
HIP_MATH(trunc)
HIP_MATH(y0)
HIP_MATH(y1)
#undef HIP_MATH

#define HIP_MATH_2(name)                                                                           \
    HIP_DEVICE float name(float x, float y) { return name##f(x, y); }                              \
    template <typename A, typename B> HIP_DEVICE hip_if_mixed<A, B> name(A x, B y) {               \
        return name((double)x, (double)y);                                                         \
    }
HIP_MATH_2(atan2)
HIP_MATH_2(copysign)
HIP_MATH_2(fdim)
HIP_MATH_2(fmax)
HIP_MATH_2(fmin)
HIP_MATH_2(fmod)
HIP_MATH_2(hypot)
HIP_MATH_2(nextafter)
HIP_MATH_2(pow)
HIP_MATH_2(remainder)
HIP_MATH_2(rhypot)
#undef HIP_MATH_2

#define HIP_MATH_TO(type, name)                                                                    \
    HIP_DEVICE type name(float x) { return name##f(x); }                                           \
    template <typename T> HIP_DEVICE hip_if_integer<T, type> name(T x) { return name((double)x); }
HIP_MATH_TO(int, ilogb)
HIP_MATH_TO(long, lrint)
HIP_MATH_TO(long, lround)
HIP_MATH_TO(long long, llrint)
HIP_MATH_TO(long long, llround)
#undef HIP_MATH_TO

#define HIP_CLASSIFY(name)                                                                         \
    template <typename T> HIP_DEVICE constexpr hip_if_integer<T, bool> name(T x) {                 \
        return name((double)x);                                                                    \
    }
HIP_CLASSIFY(isfinite)
HIP_CLASSIFY(isinf)
HIP_CLASSIFY(isnan)
HIP_CLASSIFY(isnormal)
HIP_CLASSIFY(signbit)
#undef HIP_CLASSIFY

HIP_DEVICE float fma(float x, float y, float z) { return fmaf(x, y, z); }
HIP_DEVICE _Float16 fma(_Float16 x, _Float16 y, _Float16 z) { return __builtin_fmaf16(x, y, z); }
template <typename A, typename B, typename C> HIP_DEVICE typename hip_enable_if<
    hip_is_arithmetic<A>::value && hip_is_arithmetic<B>::value && hip_is_arithmetic<C>::value &&
        !(hip_are_same<A, B>::value && hip_are_same<B, C>::value && !hip_is_integer<A>::value),
    double>::type
fma(A x, B y, C z) {
    return fma((double)x, (double)y, (double)z);
}
HIP_DEVICE float frexp(float x, int *exponent) { return frexpf(x, exponent); }
HIP_DEVICE float ldexp(float x, int exponent) { return ldexpf(x, exponent); }
HIP_DEVICE float scalbn(float x, int exponent) { return scalbnf(x, exponent); }
HIP_DEVICE float scalbln(float x, long exponent) { return scalblnf(x, exponent); }
HIP_DEVICE float modf(float x, float *whole) { return modff(x, whole); }
HIP_DEVICE float remquo(float x, float y, int *quotient) { return remquof(x, y, quotient); }
HIP_DEVICE void sincos(float x, float *sine, float *cosine) { sincosf(x, sine, cosine); }
HIP_DEVICE void sincospi(float x, float *sine, float *cosine) { sincospif(x, sine, cosine); }
HIP_DEVICE float abs(float x) { return fabsf(x); }
HIP_DEVICE double abs(double x) { return fabs(x); }
template <typename A, typename B> HIP_DEVICE
    typename hip_enable_if<!(hip_is_integer<A>::value && hip_is_integer<B>::value),
                           hip_if_mixed<A, B>>::type
    min(A x, B y) {
    return fmin((double)x, (double)y);
}
template <typename A, typename B> HIP_DEVICE
    typename hip_enable_if<!(hip_is_integer<A>::value && hip_is_integer<B>::value),
                           hip_if_mixed<A, B>>::type
    max(A x, B y) {
    return fmax((double)x, (double)y);
}
HIP_DEVICE float min(float x, float y) { return fminf(x, y); }
HIP_DEVICE float max(float x, float y) { return fmaxf(x, y); }
HIP_DEVICE double min(double x, double y) { return fmin(x, y); }
HIP_DEVICE double max(double x, double y) { return fmax(x, y); }

// HIP allows the fast functions to be less accurate; here they are as accurate as the others.
HIP_DEVICE float __expf(float x) { return expf(x); }
HIP_DEVICE float __exp10f(float x) { return exp10f(x); }
HIP_DEVICE float __logf(float x) { return logf(x); }
HIP_DEVICE float __log2f(float x) { return log2f(x); }
HIP_DEVICE float __log10f(float x) { return log10f(x); }
HIP_DEVICE float __powf(float x, float y) { return powf(x, y); }
HIP_DEVICE float __sinf(float x) { return sinf(x); }
HIP_DEVICE float __cosf(float x) { return cosf(x); }
HIP_DEVICE float __tanf(float x) { return tanf(x); }
HIP_DEVICE void __sincosf(float x, float *sine, float *cosine) { sincosf(x, sine, cosine); }
HIP_DEVICE float fdividef(float x, float y) { return x / y; }
HIP_DEVICE float __fdividef(float x, float y) { return x / y; }
HIP_DEVICE float __saturatef(float x) { return x > 0 ? fminf(x, 1.0f) : 0; }

// Each operation is rounded to nearest separately, and never contracted.
#define HIP_ROUNDED(type, name, expression)                                                        \
    HIP_DEVICE type name(type x, type y) {                                                         \
        HIP_EXACT                                                                                  \
        return expression;                                                                         \
    }
HIP_ROUNDED(float, __fadd_rn, x + y)
HIP_ROUNDED(float, __fsub_rn, x - y)
HIP_ROUNDED(float, __fmul_rn, x *y)
HIP_ROUNDED(float, __fdiv_rn, x / y)
HIP_ROUNDED(double, __dadd_rn, x + y)
HIP_ROUNDED(double, __dsub_rn, x - y)
HIP_ROUNDED(double, __dmul_rn, x *y)
HIP_ROUNDED(double, __ddiv_rn, x / y)
#undef HIP_ROUNDED
HIP_DEVICE float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
HIP_DEVICE double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
HIP_DEVICE float __fsqrt_rn(float x) { return sqrtf(x); }
HIP_DEVICE double __dsqrt_rn(double x) { return sqrt(x); }
HIP_DEVICE float __frcp_rn(float x) { return 1 / x; }
HIP_DEVICE double __drcp_rn(double x) { return 1 / x; }
HIP_DEVICE float __frsqrt_rn(float x) { return rsqrtf(x); }

// Conversions: _rn rounds to nearest, _rz towards zero, _rd down, _ru up.
#define HIP_CONVERT(from, to, name)                                                                \
    HIP_DEVICE to name##_rn(from x) { return (to)rint(x); }                                        \
    HIP_DEVICE to name##_rz(from x) { return (to)x; }                                              \
    HIP_DEVICE to name##_rd(from x) { return (to)floor(x); }                                       \
    HIP_DEVICE to name##_ru(from x) { return (to)ceil(x); }
HIP_CONVERT(float, int, __float2int)
HIP_CONVERT(float, unsigned int, __float2uint)
HIP_CONVERT(float, long long, __float2ll)
HIP_CONVERT(float, unsigned long long, __float2ull)
HIP_CONVERT(double, int, __double2int)
HIP_CONVERT(double, unsigned int, __double2uint)
HIP_CONVERT(double, long long, __double2ll)
HIP_CONVERT(double, unsigned long long, __double2ull)
#undef HIP_CONVERT
HIP_DEVICE float __int2float_rn(int x) { return (float)x; }
HIP_DEVICE float __uint2float_rn(unsigned int x) { return (float)x; }
HIP_DEVICE float __ll2float_rn(long long x) { return (float)x; }
HIP_DEVICE float __ull2float_rn(unsigned long long x) { return (float)x; }
HIP_DEVICE double __int2double_rn(int x) { return x; }
HIP_DEVICE double __uint2double_rn(unsigned int x) { return x; }
HIP_DEVICE double __ll2double_rn(long long x) { return (double)x; }
HIP_DEVICE double __ull2double_rn(unsigned long long x) { return (double)x; }
HIP_DEVICE float __double2float_rn(double x) { return (float)x; }

// The same rounded towards zero (_rz), down (_rd) and up (_ru): one step back if the nearest number
// is beyond. `wide` holds both types without rounding.
#define HIP_ROUND(name, from, to, bits, wide)                                                      \
    HIP_DEVICE to name##_rd(from x) {                                                              \
        to nearest = (to)x;                                                                        \
        bits code = __builtin_bit_cast(bits, nearest);                                             \
        if ((wide)nearest > (wide)x)                                                               \
            nearest = __builtin_bit_cast(to, nearest > 0 ? code - 1 : code + 1);                   \
        return nearest;                                                                            \
    }                                                                                              \
    HIP_DEVICE to name##_ru(from x) {                                                              \
        to nearest = (to)x;                                                                        \
        bits code = __builtin_bit_cast(bits, nearest);                                             \
        if ((wide)nearest < (wide)x)                                                               \
            nearest = __builtin_bit_cast(to, nearest < 0 ? code - 1 : code + 1);                   \
        return nearest;                                                                            \
    }                                                                                              \
    HIP_DEVICE to name##_rz(from x) { return x < 0 ? name##_ru(x) : name##_rd(x); }
HIP_ROUND(__double2float, double, float, int, double)
HIP_ROUND(__int2float, int, float, int, double)
HIP_ROUND(__uint2float, unsigned int, float, int, double)
HIP_ROUND(__ll2float, long long, float, int, __int128)
HIP_ROUND(__ull2float, unsigned long long, float, int, __int128)
HIP_ROUND(__ll2double, long long, double, long long, __int128)
HIP_ROUND(__ull2double, unsigned long long, double, long long, __int128)
#undef HIP_ROUND
