// Rounding, remainders, classification and other functions that are exact or almost instructions.
#pragma once

#include <device/integer.h>
#include <device/keywords.h>

// Forbids contraction in a function that relies on the rounding of each operation.
#define HIP_EXACT _Pragma("clang fp contract(off) reassociate(off)")

// Defines a function of one or two arguments in both precisions by the builtin of that name.
#define HIP_MATH_BUILTIN(name)                                                                     \
    HIP_DEVICE double name(double x) { return __builtin_##name(x); }                               \
    HIP_DEVICE float name##f(float x) { return __builtin_##name##f(x); }
#define HIP_MATH_BUILTIN_2(name)                                                                   \
    HIP_DEVICE double name(double x, double y) { return __builtin_##name(x, y); }                  \
    HIP_DEVICE float name##f(float x, float y) { return __builtin_##name##f(x, y); }
HIP_MATH_BUILTIN(sqrt)
HIP_MATH_BUILTIN(floor)
HIP_MATH_BUILTIN(ceil)
HIP_MATH_BUILTIN(trunc)
HIP_MATH_BUILTIN(rint)
HIP_MATH_BUILTIN(nearbyint)
HIP_MATH_BUILTIN(round)
HIP_MATH_BUILTIN(fabs)
HIP_MATH_BUILTIN_2(fmod)
HIP_MATH_BUILTIN_2(fmin)
HIP_MATH_BUILTIN_2(fmax)
HIP_MATH_BUILTIN_2(copysign)
#undef HIP_MATH_BUILTIN
#undef HIP_MATH_BUILTIN_2

HIP_DEVICE double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
HIP_DEVICE float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
HIP_DEVICE double ldexp(double x, int exponent) { return __builtin_ldexp(x, exponent); }
HIP_DEVICE float ldexpf(float x, int exponent) { return __builtin_ldexpf(x, exponent); }
HIP_DEVICE double frexp(double x, int *exponent) { return __builtin_frexp(x, exponent); }
HIP_DEVICE float frexpf(float x, int *exponent) { return __builtin_frexpf(x, exponent); }
HIP_DEVICE double nan(const char *) { return __builtin_nan(""); }
HIP_DEVICE float nanf(const char *) { return __builtin_nanf(""); }
HIP_DEVICE double rsqrt(double x) { return 1 / sqrt(x); }
HIP_DEVICE float rsqrtf(float x) { return (float)(1 / sqrt((double)x)); }

HIP_DEVICE constexpr bool isnan(double x) { return x != x; }
HIP_DEVICE constexpr bool isnan(float x) { return x != x; }
HIP_DEVICE constexpr bool isinf(double x) { return x == __builtin_inf() || x == -__builtin_inf(); }
HIP_DEVICE constexpr bool isinf(float x) { return x == __builtin_inff() || x == -__builtin_inff(); }
HIP_DEVICE constexpr bool isfinite(double x) { return !isinf(x) && !isnan(x); }
HIP_DEVICE constexpr bool isfinite(float x) { return !isinf(x) && !isnan(x); }
HIP_DEVICE constexpr bool signbit(double x) { return __builtin_bit_cast(long long, x) < 0; }
HIP_DEVICE constexpr bool signbit(float x) { return __builtin_bit_cast(int, x) < 0; }
HIP_DEVICE bool isnormal(double x) { return isfinite(x) && fabs(x) >= 0x1p-1022; }
HIP_DEVICE bool isnormal(float x) { return isfinite(x) && fabsf(x) >= 0x1p-126f; }

// The C library's own names, which programs for CUDA use as well.
HIP_DEVICE int __isnan(double x) { return isnan(x); }
HIP_DEVICE int __isnanf(float x) { return isnan(x); }
HIP_DEVICE int __isinf(double x) { return isinf(x); }
HIP_DEVICE int __isinff(float x) { return isinf(x); }
HIP_DEVICE int __finite(double x) { return isfinite(x); }
HIP_DEVICE int __finitef(float x) { return isfinite(x); }
HIP_DEVICE int __signbit(double x) { return signbit(x); }
HIP_DEVICE int __signbitf(float x) { return signbit(x); }

HIP_DEVICE double modf(double x, double *whole) {
    *whole = trunc(x);
    return copysign(isinf(x) ? 0.0 : x - *whole, x);
}
HIP_DEVICE float modff(float x, float *whole) {
    *whole = truncf(x);
    return copysignf(isinf(x) ? 0.0f : x - *whole, x);
}
HIP_DEVICE double fdim(double x, double y) {
    return isnan(x) || isnan(y) ? x + y : x > y ? x - y : 0;
}
HIP_DEVICE float fdimf(float x, float y) {
    return isnan(x) || isnan(y) ? x + y : x > y ? x - y : 0;
}
HIP_DEVICE int ilogb(double x) {
    int exponent;
    if (x == 0 || isnan(x)) {
        return -2147483647 - 1;
    }
    if (isinf(x)) {
        return 2147483647;
    }
    frexp(x, &exponent);
    return exponent - 1;
}
HIP_DEVICE int ilogbf(float x) { return ilogb((double)x); }
HIP_DEVICE double logb(double x) {
    return x == 0 ? -__builtin_inf() : isfinite(x) ? (double)ilogb(x) : x * x;
}
HIP_DEVICE float logbf(float x) { return (float)logb((double)x); }
HIP_DEVICE double scalbn(double x, int exponent) { return ldexp(x, exponent); }
HIP_DEVICE float scalbnf(float x, int exponent) { return ldexpf(x, exponent); }
HIP_DEVICE double scalbln(double x, long exponent) {
    return ldexp(x, (int)max(-100000l, min(exponent, 100000l)));
}
HIP_DEVICE float scalblnf(float x, long exponent) { return (float)scalbln((double)x, exponent); }

// Returns the next value towards y: the bits plus or minus 1, plus if y is further from zero.
HIP_DEVICE double nextafter(double x, double y) {
    if (isnan(x) || isnan(y)) {
        return x + y;
    }
    if (x == y) {
        return y;
    }
    if (x == 0) {
        return copysign(0x1p-1074, y);
    }
    long long bits = __double_as_longlong(x);
    return __longlong_as_double(bits + ((x < y) == (x > 0) ? 1 : -1));
}
HIP_DEVICE float nextafterf(float x, float y) {
    if (isnan(x) || isnan(y)) {
        return x + y;
    }
    if (x == y) {
        return y;
    }
    if (x == 0) {
        return copysignf(0x1p-149f, y);
    }
    int bits = __float_as_int(x);
    return __int_as_float(bits + ((x < y) == (x > 0) ? 1 : -1));
}

// Returns x - n*y for the integer n nearest to x/y, ties to even, and stores the low bits of n in
// *quotient.
HIP_DEVICE double remquo(double x, double y, int *quotient) {
    HIP_EXACT
    double ax = fabs(x), ay = fabs(y);
    *quotient = 0;
    if (isnan(x) || isnan(y) || isinf(x) || y == 0) {
        return (x * y) / (x * y);
    }
    double rest = ax;
    int n = 0;
    for (int step = 2; step >= 0; step--) { // n modulo 8
        double multiple = ldexp(ay, step);
        if (step == 2 && isfinite(2 * multiple)) {
            rest = fmod(rest, 2 * multiple);
        }
        if (rest >= multiple) {
            rest -= multiple;
            n += 1 << step;
        }
    }
    double half = 0.5 * ay;
    if (rest > half || (rest == half && (n & 1)) || (half == 0 && 2 * rest > ay)) {
        rest -= ay;
        n++;
    }
    *quotient = signbit(x) != signbit(y) ? -(n & 7) : n & 7;
    return signbit(x) ? -rest : rest;
}
HIP_DEVICE float remquof(float x, float y, int *quotient) {
    return (float)remquo((double)x, (double)y, quotient);
}
HIP_DEVICE double remainder(double x, double y) {
    int quotient;
    return remquo(x, y, &quotient);
}
HIP_DEVICE float remainderf(float x, float y) { return (float)remainder((double)x, (double)y); }

HIP_DEVICE long lrint(double x) { return (long)rint(x); }
HIP_DEVICE long lrintf(float x) { return (long)rintf(x); }
HIP_DEVICE long long llrint(double x) { return (long long)rint(x); }
HIP_DEVICE long long llrintf(float x) { return (long long)rintf(x); }
HIP_DEVICE long lround(double x) { return (long)round(x); }
HIP_DEVICE long lroundf(float x) { return (long)roundf(x); }
HIP_DEVICE long long llround(double x) { return (long long)round(x); }
HIP_DEVICE long long llroundf(float x) { return (long long)roundf(x); }

// Scales by a power of two, so that the squares neither overflow nor underflow.
HIP_DEVICE double hypot(double x, double y) {
    double big = fmax(fabs(x), fabs(y)), small = fmin(fabs(x), fabs(y));
    if (isinf(x) || isinf(y)) {
        return __builtin_inf();
    }
    if (isnan(x) || isnan(y) || big == 0) {
        return fabs(x) + fabs(y);
    }
    int exponent;
    frexp(big, &exponent);
    big = ldexp(big, -exponent);
    small = ldexp(small, -exponent);
    double square = big * big, rest = fma(big, big, -square);
    double sum = fma(small, small, square);
    double root = sqrt(sum);
    // One Newton step with the exact residual.
    double residual = fma(small, small, square - sum) + rest + fma(-root, root, sum);
    return ldexp(root + residual / (2 * root), exponent);
}
HIP_DEVICE float hypotf(float x, float y) { return (float)hypot((double)x, (double)y); }
HIP_DEVICE double rhypot(double x, double y) { return 1 / hypot(x, y); }
HIP_DEVICE float rhypotf(float x, float y) { return (float)(1 / hypot((double)x, (double)y)); }
HIP_DEVICE double norm3d(double x, double y, double z) { return hypot(hypot(x, y), z); }
HIP_DEVICE float norm3df(float x, float y, float z) {
    return (float)norm3d((double)x, (double)y, (double)z);
}
HIP_DEVICE double norm4d(double x, double y, double z, double w) {
    return hypot(hypot(x, y), hypot(z, w));
}
HIP_DEVICE float norm4df(float x, float y, float z, float w) {
    return (float)norm4d((double)x, (double)y, (double)z, (double)w);
}
HIP_DEVICE double rnorm3d(double x, double y, double z) { return 1 / norm3d(x, y, z); }
HIP_DEVICE float rnorm3df(float x, float y, float z) {
    return (float)rnorm3d((double)x, (double)y, (double)z);
}
HIP_DEVICE double rnorm4d(double x, double y, double z, double w) { return 1 / norm4d(x, y, z, w); }
HIP_DEVICE float rnorm4df(float x, float y, float z, float w) {
    return (float)rnorm4d((double)x, (double)y, (double)z, (double)w);
}
// The norm of `n` numbers: as in HIP, their squares are added without scaling.
HIP_DEVICE double norm(int n, const double *x) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    return sqrt(sum);
}
HIP_DEVICE float normf(int n, const float *x) {
    float sum = 0;
    for (int i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    return sqrtf(sum);
}
HIP_DEVICE double rnorm(int n, const double *x) { return 1 / norm(n, x); }
HIP_DEVICE float rnormf(int n, const float *x) { return 1 / normf(n, x); }
