// Hyperbolic functions and their inverses, computed with expm1 and log1p.
#pragma once

#include <device/math_exponential.h>

HIP_DEVICE double sinh(double x) {
    double a = fabs(x);
    if (a > 40) {
        double half = exp(0.5 * a);
        return copysign(0.5 * half * half, x);
    }
    double e = expm1(a);
    return copysign(0.5 * (e + e / (e + 1)), x);
}
HIP_DEVICE double cosh(double x) {
    double a = fabs(x);
    if (a > 40) {
        double half = exp(0.5 * a);
        return 0.5 * half * half;
    }
    double e = exp(a);
    return 0.5 * e + 0.5 / e;
}
HIP_DEVICE double tanh(double x) {
    double a = fabs(x);
    if (a > 20) {
        return copysign(1.0, x);
    }
    double e = expm1(2 * a);
    return isnan(x) ? x : copysign(e / (e + 2), x);
}
HIP_DEVICE double asinh(double x) {
    double a = fabs(x);
    double value =
        a > 0x1p28 ? log(a) + 0x1.62e42fefa39efp-1 : log1p(a + a * a / (1 + sqrt(1 + a * a)));
    return isnan(x) ? x : copysign(value, x);
}
HIP_DEVICE double acosh(double x) {
    if (x > 0x1p28) {
        return log(x) + 0x1.62e42fefa39efp-1;
    }
    double t = x - 1;
    return x < 1 ? __builtin_nan("") : log1p(t + sqrt(t * (2 + t)));
}
HIP_DEVICE double atanh(double x) {
    double a = fabs(x);
    return copysign(0.5 * log1p(2 * a / (1 - a)), x);
}

HIP_DEVICE float sinhf(float x) { return (float)sinh((double)x); }
HIP_DEVICE float coshf(float x) { return (float)cosh((double)x); }
HIP_DEVICE float tanhf(float x) { return (float)tanh((double)x); }
HIP_DEVICE float asinhf(float x) { return (float)asinh((double)x); }
HIP_DEVICE float acoshf(float x) { return (float)acosh((double)x); }
HIP_DEVICE float atanhf(float x) { return (float)atanh((double)x); }
