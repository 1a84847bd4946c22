// Exponentials, logarithms and powers.
//
// exp: x = k ln 2 + r with |r| <= ln(2)/2, and the Taylor series of e^r up to r^13/13!.
// log: x = 2^k m with m in [1/sqrt 2, sqrt 2), and log m = 2 artanh(s), s = (m - 1)/(m + 1),
// |s| < 0.172.
// pow: exp(y log x), where log x is an unevaluated sum of two doubles with a relative error of
// about 2^-64.
#pragma once

#include <device/math_basic.h>

// An unevaluated sum: low is at most half a unit in the last place of high.
struct hip_double_double {
    double high, low;
};

HIP_DEVICE hip_double_double hip_sum(double a, double b) {
    HIP_EXACT
    double sum = a + b, part = sum - a;
    return {sum, (a - (sum - part)) + (b - part)};
}
HIP_DEVICE hip_double_double hip_product(double a, double b) {
    double product = a * b;
    return {product, fma(a, b, -product)};
}
HIP_DEVICE hip_double_double hip_product(hip_double_double a, hip_double_double b) {
    HIP_EXACT
    hip_double_double p = hip_product(a.high, b.high);
    p.low += a.high * b.low + a.low * b.high;
    return hip_sum(p.high, p.low);
}
HIP_DEVICE hip_double_double hip_sum(hip_double_double a, hip_double_double b) {
    HIP_EXACT
    hip_double_double s = hip_sum(a.high, b.high);
    s.low += a.low + b.low;
    return hip_sum(s.high, s.low);
}

static constexpr double hip_ln2_high = 0x1.62e42fee00000p-1; // ends with 21 zero bits
static constexpr double hip_ln2_low = 0x1.a39ef35793c76p-33;
static constexpr double hip_log2_e = 0x1.71547652b82fep+0;

// e^r - 1 - r for |r| <= ln(2)/2
HIP_DEVICE double hip_exp_tail(double r) {
    double p = 1.0 / 6227020800;
    p = fma(p, r, 1.0 / 479001600);
    p = fma(p, r, 1.0 / 39916800);
    p = fma(p, r, 1.0 / 3628800);
    p = fma(p, r, 1.0 / 362880);
    p = fma(p, r, 1.0 / 40320);
    p = fma(p, r, 1.0 / 5040);
    p = fma(p, r, 1.0 / 720);
    p = fma(p, r, 1.0 / 120);
    p = fma(p, r, 1.0 / 24);
    p = fma(p, r, 1.0 / 6);
    p = fma(p, r, 0.5);
    return p * r * r;
}

// e^(x.high + x.low)
HIP_DEVICE double hip_exp(hip_double_double x) {
    HIP_EXACT
    if (isnan(x.high)) {
        return x.high;
    }
    if (x.high > 710) {
        return __builtin_inf();
    }
    if (x.high < -746) {
        return 0;
    }
    double k = rint(x.high * hip_log2_e);
    hip_double_double r = hip_sum(fma(-k, hip_ln2_high, x.high), fma(-k, hip_ln2_low, x.low));
    double e = 1 + (r.high + (r.low + hip_exp_tail(r.high)));
    // Scale in two steps, so that a subnormal result is rounded once.
    int half = (int)k / 2;
    return ldexp(ldexp(e, half), (int)k - half);
}

HIP_DEVICE double exp(double x) { return hip_exp({x, 0}); }
HIP_DEVICE double exp2(double x) {
    HIP_EXACT
    if (!(fabs(x) < 1100)) {
        return isnan(x) ? x : x > 0 ? __builtin_inf() : 0;
    }
    double k = rint(x);
    hip_double_double r = hip_product(x - k, 0x1.62e42fefa39efp-1);
    r.low += (x - k) * 0x1.abc9e3b39803fp-56;
    return ldexp(hip_exp(r), (int)k);
}
HIP_DEVICE double exp10(double x) {
    HIP_EXACT
    if (!(fabs(x) < 400)) {
        return isnan(x) ? x : x > 0 ? __builtin_inf() : 0;
    }
    // The integer powers of ten up to 10^22 are doubles.
    if (x == rint(x) && x >= 0 && x <= 22) {
        double power = 1;
        for (int i = 0; i < (int)x; i++) {
            power *= 10;
        }
        return power;
    }
    hip_double_double r = hip_product(x, 0x1.26bb1bbb55516p+1);
    r.low += x * -0x1.f48ad494ea3e9p-53;
    return hip_exp(r);
}
HIP_DEVICE double expm1(double x) {
    HIP_EXACT
    if (isnan(x) || x == 0) {
        return x;
    }
    if (x < -40) {
        return -1;
    }
    if (x > 710) {
        return __builtin_inf();
    }
    double k = rint(x * hip_log2_e);
    if (k == 0) {
        return x + hip_exp_tail(x);
    }
    hip_double_double r = hip_sum(fma(-k, hip_ln2_high, x), -k * hip_ln2_low);
    double tail = r.low + hip_exp_tail(r.high);
    if (k > 60) {
        return ldexp(ldexp(1 + (r.high + tail), (int)k - 1), 1);
    }
    // 2^k (1 + r + tail) - 1, the large parts first
    double scale = ldexp(1.0, (int)k);
    hip_double_double sum = hip_sum(scale - 1, scale * r.high);
    return sum.high + (sum.low + scale * tail);
}

// Returns log(x) for a finite x > 0 as a sum of two doubles.
HIP_DEVICE hip_double_double hip_log(double x) {
    HIP_EXACT
    int k;
    double m = frexp(x, &k); // in [0.5, 1)
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2;
        k--;
    }
    double f = m - 1; // exact
    // s = f/(2 + f), to twice the precision
    hip_double_double d = hip_sum(2, f);
    double s = f / d.high;
    double s_low = (fma(-s, d.high, f) - s * d.low) / d.high;
    hip_double_double ss = hip_product({s, s_low}, {s, s_low});
    double z = ss.high;
    // 2 artanh(s) = 2s + s^3 (2/3 + z (2/5 + z (2/7 + ...)))
    double p = 2.0 / 25;
    p = fma(p, z, 2.0 / 23);
    p = fma(p, z, 2.0 / 21);
    p = fma(p, z, 2.0 / 19);
    p = fma(p, z, 2.0 / 17);
    p = fma(p, z, 2.0 / 15);
    p = fma(p, z, 2.0 / 13);
    p = fma(p, z, 2.0 / 11);
    p = fma(p, z, 2.0 / 9);
    p = fma(p, z, 2.0 / 7);
    hip_double_double series = hip_sum(hip_product(ss, {2.0 / 5, -0x1.999999999999ap-56}),
                                       hip_double_double{z * z * p, 0});
    series = hip_sum(hip_double_double{2.0 / 3, 0x1.5555555555555p-55}, series);
    hip_double_double cubic = hip_product(hip_product(ss, {s, s_low}), series);
    hip_double_double whole = hip_sum(hip_double_double{2 * s, 2 * s_low}, cubic);
    hip_double_double power = hip_sum(k * hip_ln2_high, k * hip_ln2_low);
    return hip_sum(power, whole);
}
// Handles the arguments of logarithms that are not positive finite numbers.
HIP_DEVICE bool hip_log_is_special(double x, double *result) {
    if (x > 0 && !isinf(x)) {
        return false;
    }
    *result = x == 0 ? -__builtin_inf() : x > 0 || isnan(x) ? x : __builtin_nan("");
    return true;
}
HIP_DEVICE double log(double x) {
    double result;
    return hip_log_is_special(x, &result) ? result : hip_log(x).high;
}
HIP_DEVICE double log2(double x) {
    HIP_EXACT
    double result;
    if (hip_log_is_special(x, &result)) {
        return result;
    }
    int k;
    double m = frexp(x, &k);
    if (m == 0.5) {
        return k - 1;
    }
    hip_double_double l = hip_product(hip_log(x), {0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56});
    return l.high + l.low;
}
HIP_DEVICE double log10(double x) {
    HIP_EXACT
    double result;
    if (hip_log_is_special(x, &result)) {
        return result;
    }
    hip_double_double l = hip_product(hip_log(x), {0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57});
    return l.high + l.low;
}
// log(u) + (x - (u - 1))/u with u = 1 + x rounded
HIP_DEVICE double log1p(double x) {
    HIP_EXACT
    if (x == 0 || isnan(x) || x == __builtin_inf()) {
        return x;
    }
    if (x <= -1) {
        return x == -1 ? -__builtin_inf() : __builtin_nan("");
    }
    if (fabs(x) < 0x1p-54) {
        return x;
    }
    hip_double_double u = hip_sum(1, x);
    hip_double_double l = hip_log(u.high);
    return l.high + (l.low + u.low / u.high);
}

HIP_DEVICE double pow(double x, double y) {
    HIP_EXACT
    if (x == 1 || y == 0) {
        return 1;
    }
    if (isnan(x) || isnan(y)) {
        return x + y;
    }
    double ax = fabs(x);
    bool whole = rint(y) == y; // true for infinities and beyond 2^53, which are even
    bool odd = whole && fabs(y) < 0x1p53 && ((long long)y & 1);
    if (isinf(y)) {
        return ax == 1 ? 1 : (ax > 1) == (y > 0) ? __builtin_inf() : 0;
    }
    if (ax == 0 || isinf(ax)) {
        double magnitude = (ax == 0) == (y > 0) ? 0 : __builtin_inf();
        return odd ? copysign(magnitude, x) : magnitude;
    }
    if (x < 0 && !whole) {
        return __builtin_nan("");
    }
    hip_double_double l = hip_log(ax);
    double exponent = y * l.high;
    double magnitude;
    if (fabs(exponent) > 800) {
        magnitude = exponent > 0 ? __builtin_inf() : 0;
    } else {
        hip_double_double product = hip_product(y, l.high);
        product.low += y * l.low;
        magnitude = hip_exp(hip_sum(product.high, product.low));
    }
    return odd && x < 0 ? -magnitude : magnitude;
}

HIP_DEVICE double cbrt(double x) {
    HIP_EXACT
    if (x == 0 || !isfinite(x)) {
        return x;
    }
    double a = fabs(x);
    if (a < 0x1p-900) { // scale, since the cube of a small root would not be exact
        return 0x1p-100 * cbrt(0x1p300 * x);
    }
    double r = exp(log(a) / 3);
    // One Newton step, with r^3 - a to twice the precision
    hip_double_double square = hip_product(r, r);
    hip_double_double cube = hip_product(square, {r, 0});
    double residual = (cube.high - a) + cube.low;
    return copysign(r - residual / (3 * square.high), x);
}
HIP_DEVICE double rcbrt(double x) { return 1 / cbrt(x); }

HIP_DEVICE float expf(float x) { return __builtin_expf(x); }
HIP_DEVICE float exp2f(float x) { return __builtin_exp2f(x); }
HIP_DEVICE float exp10f(float x) { return (float)exp10((double)x); }
HIP_DEVICE float expm1f(float x) { return (float)expm1((double)x); }
HIP_DEVICE float logf(float x) { return __builtin_logf(x); }
HIP_DEVICE float log2f(float x) { return __builtin_log2f(x); }
HIP_DEVICE float log10f(float x) { return __builtin_log10f(x); }
HIP_DEVICE float log1pf(float x) { return (float)log1p((double)x); }
HIP_DEVICE float powf(float x, float y) { return (float)pow((double)x, (double)y); }
HIP_DEVICE double powi(double x, int n) { return pow(x, (double)n); }
HIP_DEVICE float powif(float x, int n) { return (float)powi((double)x, n); }
HIP_DEVICE float cbrtf(float x) { return (float)cbrt((double)x); }
HIP_DEVICE float rcbrtf(float x) { return (float)(1 / cbrt((double)x)); }
