// Bessel functions.
//
// For x < 25, J uses Miller's backward recurrence, normalised by J0 + 2 J2 + 2 J4 + ... = 1, and Y0
// and Y1 use Neumann's series in the same J. For x >= 25, both use Hankel's asymptotic expansion,
// whose smallest term is far below a rounding error there. I0 and I1 use the power series, whose
// terms are all positive, and from 30 on the asymptotic expansion. Formulas: DLMF 10.6, 10.8,
// 10.12, 10.17, 10.25, 10.40. Errors are a few units in the last place of the largest value nearby;
// close to a zero, the absolute error is small but the relative error is not.
#pragma once

#include <device/math_exponential.h>
#include <device/math_trigonometric.h>

static constexpr double hip_bessel_large = 25;

struct hip_bessel {
    double j0, j1, y0, y1;
};

// for 0 < x < 25
HIP_DEVICE hip_bessel hip_bessel_recurrence(double x) {
    double above = 0, here = 0x1p-900; // J at the orders n + 1 and n, up to a common factor
    double sum = 0, even = 0, odd = 0;
    for (int n = 2 * ((int)x / 2) + 40; n > 0; n--) {
        int k = n / 2;
        double signed_here = k % 2 ? -here : here;
        if (n % 2 == 0) {
            sum += 2 * here;
            even += signed_here / k;
        } else if (k > 0) {
            odd += signed_here * n / ((double)k * (k + 1));
        }
        double below = 2 * n / x * here - above;
        above = here;
        here = below;
        if (fabs(here) > 0x1p800) {
            above *= 0x1p-800;
            here *= 0x1p-800;
            sum *= 0x1p-800;
            even *= 0x1p-800;
            odd *= 0x1p-800;
        }
    }
    double scale = 1 / (sum + here);
    double logarithm = log(0.5 * x) + 0x1.2788cfc6fb619p-1; // Euler's constant
    hip_bessel b;
    b.j0 = here * scale;
    b.j1 = above * scale;
    b.y0 = 2 / hip_pi * (logarithm * b.j0 - 2 * even * scale);
    b.y1 = 2 / hip_pi * ((logarithm - 1) * b.j1 - b.j0 / x - odd * scale); // -dY0/dx
    return b;
}

// Returns J and Y of order 0 or 1 for x >= 25.
HIP_DEVICE void hip_bessel_asymptotic(double x, int order, double *j, double *y) {
    double p = 1, q = 0, term = 1;
    double mu = 4.0 * order * order;
    for (int k = 1; k <= 24; k++) {
        double odd = 2 * k - 1;
        term *= (mu - odd * odd) / (k * 8 * x);
        double with_sign = k / 2 % 2 ? -term : term;
        if (k % 2 == 0) {
            p += with_sign;
        } else {
            q += with_sign;
        }
    }
    // cos and sin of x - order pi/2 - pi/4
    double s, c;
    sincos(x, &s, &c);
    double root = sqrt(1 / (hip_pi * x));
    double cosine = order == 0 ? c + s : s - c;
    double sine = order == 0 ? s - c : -(c + s);
    *j = root * (p * cosine - q * sine);
    *y = root * (p * sine + q * cosine);
}

HIP_DEVICE void hip_bessel_pair(double x, int order, double *j, double *y) {
    if (x >= hip_bessel_large) {
        hip_bessel_asymptotic(x, order, j, y);
    } else {
        hip_bessel b = hip_bessel_recurrence(x);
        *j = order == 0 ? b.j0 : b.j1;
        *y = order == 0 ? b.y0 : b.y1;
    }
}
HIP_DEVICE double hip_bessel_j(double x, int order) {
    double a = fabs(x), j, y;
    if (a < 0x1p-30) {
        return order == 0 ? 1 : 0.5 * x;
    }
    if (isinf(a) || isnan(x)) {
        return isnan(x) ? x : 0;
    }
    hip_bessel_pair(a, order, &j, &y);
    return order == 1 && x < 0 ? -j : j;
}
HIP_DEVICE double hip_bessel_y(double x, int order) {
    double j, y;
    if (!(x > 0) || isinf(x)) {
        return x > 0 ? 0 : x == 0 ? -__builtin_inf() : __builtin_nan("");
    }
    if (x < 0x1p-30) {
        return order == 0 ? 2 / hip_pi * (log(0.5 * x) + 0x1.2788cfc6fb619p-1) : -2 / (hip_pi * x);
    }
    hip_bessel_pair(x, order, &j, &y);
    return y;
}

HIP_DEVICE double j0(double x) { return hip_bessel_j(x, 0); }
HIP_DEVICE double j1(double x) { return hip_bessel_j(x, 1); }
HIP_DEVICE double y0(double x) { return hip_bessel_y(x, 0); }
HIP_DEVICE double y1(double x) { return hip_bessel_y(x, 1); }
// The forward recurrence is stable for Y, and for J if the order is below the argument.
HIP_DEVICE double yn(int n, double x) {
    double before = y0(x), here = y1(x);
    if (n == 0 || isinf(here) || isnan(here)) {
        return n == 0 ? before : here;
    }
    for (int k = 1; k < n; k++) {
        double next = 2 * k / x * here - before;
        before = here;
        here = next;
    }
    return here;
}
HIP_DEVICE double jn(int n, double x) {
    double a = fabs(x);
    double sign = x < 0 && n % 2 ? -1 : 1;
    if (n < 2) {
        return n == 0 ? j0(x) : j1(x);
    }
    if (a == 0 || isinf(a) || isnan(x)) {
        return isnan(x) ? x : 0;
    }
    if (a > n) {
        double before = j0(a), here = j1(a);
        for (int k = 1; k < n; k++) {
            double next = 2 * k / a * here - before;
            before = here;
            here = next;
        }
        return sign * here;
    }
    double above = 0, here = 0x1p-900, wanted = 0, sum = 0;
    for (int k = 2 * ((n + 60) / 2); k > 0; k--) {
        sum += k % 2 == 0 ? 2 * here : 0;
        wanted = k == n ? here : wanted;
        double below = 2 * k / a * here - above;
        above = here;
        here = below;
        if (fabs(here) > 0x1p800) {
            above *= 0x1p-800;
            here *= 0x1p-800;
            sum *= 0x1p-800;
            wanted *= 0x1p-800;
        }
    }
    return sign * wanted / (sum + here);
}

// Returns I of order 0 or 1 at |x|.
HIP_DEVICE double hip_bessel_i(double x, int order) {
    if (x < 30) {
        double z = 0.25 * x * x;
        double term = order == 0 ? 1 : 0.5 * x, sum = term;
        for (int k = 1; k < 100 && term > sum * 0x1p-60; k++) {
            term *= z / ((double)k * (k + order));
            sum += term;
        }
        return sum;
    }
    double mu = 4.0 * order * order, term = 1, sum = 1;
    for (int k = 1; k <= 30; k++) {
        double odd = 2 * k - 1;
        term *= (odd * odd - mu) / (k * 8 * x);
        sum += term;
    }
    double half = exp(0.5 * x);
    return isinf(half) ? half : half / sqrt(2 * hip_pi * x) * sum * half;
}
HIP_DEVICE double cyl_bessel_i0(double x) { return hip_bessel_i(fabs(x), 0); }
HIP_DEVICE double cyl_bessel_i1(double x) { return copysign(hip_bessel_i(fabs(x), 1), x); }

HIP_DEVICE float j0f(float x) { return (float)j0((double)x); }
HIP_DEVICE float j1f(float x) { return (float)j1((double)x); }
HIP_DEVICE float y0f(float x) { return (float)y0((double)x); }
HIP_DEVICE float y1f(float x) { return (float)y1((double)x); }
HIP_DEVICE float jnf(int n, float x) { return (float)jn(n, (double)x); }
HIP_DEVICE float ynf(int n, float x) { return (float)yn(n, (double)x); }
HIP_DEVICE float cyl_bessel_i0f(float x) { return (float)cyl_bessel_i0((double)x); }
HIP_DEVICE float cyl_bessel_i1f(float x) { return (float)cyl_bessel_i1((double)x); }
