// Sine, cosine, tangent and their inverses.
//
// The argument is reduced to x = q pi/2 + r with |r| <= pi/4: up to 2^30 by subtracting q times
// pi/2 in three pieces, beyond that by multiplying x by the significant bits of 2/pi (Payne and
// Hanek, 1983). Then a Taylor series follows. atan first subtracts the nearest multiple of pi/8,
// which leaves |t| < 0.2 for its series.
#pragma once

#include <device/math_exponential.h>

static constexpr double hip_pi = 0x1.921fb54442d18p+1;
static constexpr hip_double_double hip_pi_2 = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};

// 64 zero bits, then the first 1280 fraction bits of 2/pi.
static __device__ const unsigned long long hip_two_over_pi[21] = {
    0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041,
    0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e,
    0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b,
    0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab,
    0xf0cfbc209af4361d,
};

// Returns 64 bits of the table, starting at a bit position.
HIP_DEVICE unsigned long long hip_two_over_pi_bits(int position) {
    int word = position >> 6, shift = position & 63;
    unsigned long long bits = hip_two_over_pi[word] << shift;
    return shift == 0 ? bits : bits | hip_two_over_pi[word + 1] >> (64 - shift);
}

// Reduces a finite |x| >= 2^30 modulo pi/2: the quotient modulo 4, and the remainder.
HIP_DEVICE int hip_reduce_large(double x, hip_double_double *r) {
    HIP_EXACT
    unsigned long long bits = (unsigned long long)__double_as_longlong(x);
    int exponent = (int)(bits >> 52 & 0x7ff) - 1075; // |x| = m 2^exponent
    unsigned long long m = (bits & 0xfffffffffffffull) | 0x10000000000000ull;
    // Only the quotient modulo 4 matters, so the window starts where m contributes units of 4.
    int position = exponent - 2 + 64;
    unsigned long long w2 = hip_two_over_pi_bits(position);
    unsigned long long w1 = hip_two_over_pi_bits(position + 64);
    unsigned long long w0 = hip_two_over_pi_bits(position + 128);
    unsigned __int128 product = (unsigned __int128)m * w0;
    product = (product >> 64) + (unsigned __int128)m * w1;
    unsigned long long low = (unsigned long long)product;
    unsigned long long high = (unsigned long long)(product >> 64) + m * w2;
    // high:low is the quotient modulo 4, in units of 2^-126.
    int quotient = (int)(high >> 62);
    high = high << 2 | low >> 62;
    low <<= 2;
    bool above_half = high >> 63;
    if (above_half) { // take the next quotient, and a negative remainder
        quotient++;
        low = ~low;
        high = ~high;
    }
    // Split the fraction into exact 32-bit pieces: near a multiple of pi/2, the leading ones are 0.
    hip_double_double f = hip_sum(
        hip_sum((double)(unsigned int)(high >> 32) * 0x1p-32, (double)(unsigned int)high * 0x1p-64),
        hip_sum((double)(unsigned int)(low >> 32) * 0x1p-96, (double)(unsigned int)low * 0x1p-128));
    *r = hip_product(f, hip_pi_2);
    if (above_half != (x < 0)) {
        r->high = -r->high;
        r->low = -r->low;
    }
    return (x < 0 ? -quotient : quotient) & 3;
}

HIP_DEVICE int hip_reduce(double x, hip_double_double *r) {
    HIP_EXACT
    if (fabs(x) >= 0x1p30) {
        return hip_reduce_large(x, r);
    }
    double q = rint(x * 0x1.45f306dc9c883p-1);
    double first = fma(-q, hip_pi_2.high, x); // exact
    hip_double_double second = hip_product(-q, hip_pi_2.low);
    *r = hip_sum(first, second.high);
    r->low += second.low + q * 0x1.f1976b7ed8fbcp-110;
    return (int)(long long)q & 3;
}

HIP_DEVICE double hip_sin_reduced(hip_double_double r) {
    HIP_EXACT
    double z = r.high * r.high;
    double p = 1.0 / 355687428096000;
    p = fma(p, z, -1.0 / 1307674368000);
    p = fma(p, z, 1.0 / 6227020800);
    p = fma(p, z, -1.0 / 39916800);
    p = fma(p, z, 1.0 / 362880);
    p = fma(p, z, -1.0 / 5040);
    p = fma(p, z, 1.0 / 120);
    p = fma(p, z, -1.0 / 6);
    return r.high + fma(p * z, r.high, r.low * fma(-0.5, z, 1));
}
HIP_DEVICE double hip_cos_reduced(hip_double_double r) {
    HIP_EXACT
    double z = r.high * r.high;
    double p = -1.0 / 6402373705728000;
    p = fma(p, z, 1.0 / 20922789888000);
    p = fma(p, z, -1.0 / 87178291200);
    p = fma(p, z, 1.0 / 479001600);
    p = fma(p, z, -1.0 / 3628800);
    p = fma(p, z, 1.0 / 40320);
    p = fma(p, z, -1.0 / 720);
    p = fma(p, z, 1.0 / 24);
    double half = 0.5 * z, near = 1 - half;
    return near + (((1 - near) - half) + fma(p * z, z, -r.high * r.low));
}

HIP_DEVICE void sincos(double x, double *sine, double *cosine) {
    if (!isfinite(x)) {
        *sine = *cosine = __builtin_nan("");
        return;
    }
    hip_double_double r;
    int quadrant = hip_reduce(x, &r);
    double s = hip_sin_reduced(r), c = hip_cos_reduced(r);
    double a = quadrant & 1 ? c : s, b = quadrant & 1 ? s : c;
    *sine = quadrant & 2 ? -a : a;
    *cosine = (quadrant + 1) & 2 ? -b : b;
}
HIP_DEVICE double sin(double x) {
    double s, c;
    sincos(x, &s, &c);
    return x == 0 ? x : s;
}
HIP_DEVICE double cos(double x) {
    double s, c;
    sincos(x, &s, &c);
    return c;
}
HIP_DEVICE double tan(double x) {
    double s, c;
    sincos(x, &s, &c);
    return x == 0 ? x : s / c;
}
// Reduces pi x, where the quotient of x by 1/2 and the remainder are exact.
HIP_DEVICE void sincospi(double x, double *sine, double *cosine) {
    if (!isfinite(x)) {
        *sine = *cosine = __builtin_nan("");
        return;
    }
    double q = rint(2 * x);
    double rest = fma(-0.5, q, x);
    hip_double_double r = hip_product(hip_double_double{rest, 0},
                                      hip_double_double{2 * hip_pi_2.high, 2 * hip_pi_2.low});
    double s = hip_sin_reduced(r), c = hip_cos_reduced(r);
    int quadrant = (int)(long long)fmod(q, 4) & 3;
    double a = quadrant & 1 ? c : s, b = quadrant & 1 ? s : c;
    *sine = quadrant & 2 ? -a : a;
    *cosine = (quadrant + 1) & 2 ? -b : b;
}
HIP_DEVICE double sinpi(double x) {
    double s, c;
    sincospi(x, &s, &c);
    return x == rint(x) && isfinite(x) ? copysign(0.0, x) : s;
}
HIP_DEVICE double cospi(double x) {
    double s, c;
    sincospi(x, &s, &c);
    return c;
}

// Returns atan(y/x) in the first octant, where 0 <= y <= x and x > 0.
HIP_DEVICE double hip_atan_octant(double y, double x) {
    HIP_EXACT
    // Subtract a = 0, pi/8 or pi/4: t = (y - x tan a)/(x + y tan a).
    double ratio = y / x;
    hip_double_double angle = {0, 0};
    double tangent = 0;
    if (ratio > 0.66817863791929891) {
        angle = {0x1.921fb54442d18p-1, 0x1.1a62633145c07p-55};
        tangent = 1;
    } else if (ratio > 0.19891236737965800) {
        angle = {0x1.921fb54442d18p-2, 0x1.c398861b78b55p-59}; // atan of the rounded tangent
        tangent = 0x1.a827999fcef32p-2;
    }
    double numerator = tangent == 0 ? y : fma(-x, tangent, y);
    double denominator = fma(y, tangent, x);
    double t = numerator / denominator;
    double t_low = fma(-t, denominator, numerator) / denominator;
    double z = t * t;
    double p = 1.0 / 29;
    p = fma(p, z, -1.0 / 27);
    p = fma(p, z, 1.0 / 25);
    p = fma(p, z, -1.0 / 23);
    p = fma(p, z, 1.0 / 21);
    p = fma(p, z, -1.0 / 19);
    p = fma(p, z, 1.0 / 17);
    p = fma(p, z, -1.0 / 15);
    p = fma(p, z, 1.0 / 13);
    p = fma(p, z, -1.0 / 11);
    p = fma(p, z, 1.0 / 9);
    p = fma(p, z, -1.0 / 7);
    p = fma(p, z, 1.0 / 5);
    p = fma(p, z, -1.0 / 3);
    return angle.high + (t + (angle.low + t_low + p * z * t));
}
HIP_DEVICE double atan2(double y, double x) {
    HIP_EXACT
    if (isnan(x) || isnan(y)) {
        return x + y;
    }
    double ax = fabs(x), ay = fabs(y);
    double angle;
    if (ay == 0) {
        angle = 0;
    } else if (isinf(ax) && isinf(ay)) {
        angle = hip_pi / 4;
    } else if (isinf(ay) || ax == 0) {
        angle = hip_pi / 2;
    } else if (isinf(ax)) {
        angle = 0;
    } else {
        // Near the ends of the range, scale both, so that no product overflows or underflows.
        if (fmax(ax, ay) > 0x1p1000) {
            ax *= 0x1p-100;
            ay *= 0x1p-100;
        } else if (fmax(ax, ay) < 0x1p-900) {
            ax *= 0x1p100;
            ay *= 0x1p100;
        }
        angle = ay <= ax ? hip_atan_octant(ay, ax)
                         : hip_pi_2.high - (hip_atan_octant(ax, ay) - hip_pi_2.low);
    }
    if (signbit(x)) {
        angle = 2 * hip_pi_2.high - (angle - 2 * hip_pi_2.low);
    }
    return copysign(angle, y);
}
HIP_DEVICE double atan(double x) { return x == 0 ? x : atan2(x, 1.0); }
HIP_DEVICE double asin(double x) { return x == 0 ? x : atan2(x, sqrt((1 - x) * (1 + x))); }
HIP_DEVICE double acos(double x) {
    return fabs(x) > 1 ? __builtin_nan("") : 2 * atan2(sqrt(1 - x), sqrt(1 + x));
}

HIP_DEVICE float sinf(float x) { return (float)sin((double)x); }
HIP_DEVICE float cosf(float x) { return (float)cos((double)x); }
HIP_DEVICE float tanf(float x) { return (float)tan((double)x); }
HIP_DEVICE void sincosf(float x, float *sine, float *cosine) {
    double s, c;
    sincos((double)x, &s, &c);
    *sine = (float)s;
    *cosine = (float)c;
}
HIP_DEVICE float sinpif(float x) { return (float)sinpi((double)x); }
HIP_DEVICE float cospif(float x) { return (float)cospi((double)x); }
HIP_DEVICE void sincospif(float x, float *sine, float *cosine) {
    double s, c;
    sincospi((double)x, &s, &c);
    *sine = (float)s;
    *cosine = (float)c;
}
HIP_DEVICE float asinf(float x) { return (float)asin((double)x); }
HIP_DEVICE float acosf(float x) { return (float)acos((double)x); }
HIP_DEVICE float atanf(float x) { return (float)atan((double)x); }
HIP_DEVICE float atan2f(float y, float x) { return (float)atan2((double)y, (double)x); }
