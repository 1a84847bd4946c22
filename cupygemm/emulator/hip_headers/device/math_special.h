// The error function, the gamma function and related functions.
//
// The polynomials are Chebyshev fits, computed for these headers with mpmath at 200 bits: erf(x)/x
// in x^2 up to 0.22; exp(x^2) erfc(x) (1 + 2x) in (x - 3)/(x + 3) for x from 0.46875 to 28;
// lgamma(2 + z)/z in z between -0.5 and 0.5. Their relative errors are below 4e-17. Outside that
// interval, the gamma function uses Gamma(x + 1) = x Gamma(x), and above 20 Stirling's series.
#pragma once

#include <device/math_exponential.h>
#include <device/math_trigonometric.h>

template <int n> HIP_DEVICE double hip_polynomial(const double (&coefficients)[n], double x) {
    double value = coefficients[0];
    for (int i = 1; i < n; i++) {
        value = fma(value, x, coefficients[i]);
    }
    return value;
}

static constexpr double hip_erf_small = 0.46875;

// erf(x) for |x| < 0.46875
HIP_DEVICE double hip_erf_near_zero(double x) {
    constexpr double coefficients[] = {
        -0x1.3e3f2877546bep-23, 0x1.b7fe98012e940p-20,  -0x1.f4c2b35d4b36bp-17,
        0x1.f9a2d8fd29459p-14,  -0x1.c02db30f72262p-11, 0x1.565bcd0ca52fbp-8,
        -0x1.b82ce31284e0ep-6,  0x1.ce2f21a042b9ep-4,   -0x1.812746b0379e7p-2,
        0x1.20dd750429b6dp+0,
    };
    return x * hip_polynomial(coefficients, x * x);
}
// exp(x^2) erfc(x) for x >= 0.46875
HIP_DEVICE double hip_scaled_erfc(double x) {
    constexpr double coefficients[] = {
        0x1.3572b0e18a248p-29,  -0x1.b8e007612b20cp-28, -0x1.28948d258add7p-26,
        0x1.5a5d37ef7a2e5p-25,  0x1.cc9175402c886p-24,  -0x1.30ef2b4eb59a9p-23,
        -0x1.4d5165bf57b0cp-21, 0x1.8093d8007962bp-22,  0x1.d2575640d0cacp-19,
        -0x1.893f8bce60930p-21, -0x1.513e47516c2d4p-16, 0x1.4c2e01e94f1d1p-18,
        0x1.065a49a68770cp-13,  -0x1.b912919bf8b84p-14, -0x1.98db51a77eda2p-11,
        0x1.ef1bdd804099ap-10,  0x1.4b884e46fad2ep-9,   -0x1.8574c40c0dc24p-6,
        0x1.17ca2877f008ap-4,   -0x1.e88b803a48a3dp-4,  0x1.098366a5b46edp-3,
        -0x1.85a15c58aa60bp-5,  -0x1.15c084bb9e8f3p-3,  0x1.40c522d7e4987p+0,
    };
    // Beyond 28 the asymptotic series 1 - z/2 (1 - 3z/2 (1 - 5z/2 ...)), z = 1/x^2, has converged.
    if (x > 28) {
        double z = 1 / (x * x);
        double series = 1;
        for (double odd = 15; odd > 0; odd -= 2) {
            series = 1 - 0.5 * odd * z * series;
        }
        return 0x1.20dd750429b6dp-1 / x * series;
    }
    return hip_polynomial(coefficients, (x - 3) / (x + 3)) / (1 + 2 * x);
}
HIP_DEVICE double hip_exp_minus_square(double x) {
    hip_double_double square = hip_product(x, x);
    return hip_exp({-square.high, -square.low});
}

HIP_DEVICE double erf(double x) {
    double a = fabs(x);
    if (a < hip_erf_small) {
        return hip_erf_near_zero(x);
    }
    if (isnan(x)) {
        return x;
    }
    return copysign(a > 6 ? 1 : 1 - hip_exp_minus_square(a) * hip_scaled_erfc(a), x);
}
HIP_DEVICE double erfc(double x) {
    double a = fabs(x);
    if (a < hip_erf_small) {
        return 1 - hip_erf_near_zero(x);
    }
    if (isnan(x)) {
        return x;
    }
    double value = a > 27.3 ? 0 : hip_exp_minus_square(a) * hip_scaled_erfc(a);
    return x < 0 ? 2 - value : value;
}
HIP_DEVICE double erfcx(double x) {
    double a = fabs(x);
    if (a < hip_erf_small) {
        return exp(x * x) * (1 - hip_erf_near_zero(x));
    }
    if (isinf(x)) {
        return x > 0 ? 0 : x * x;
    }
    double scaled = hip_scaled_erfc(a);
    return x > 0 || isnan(x) ? scaled : 2 * hip_exp(hip_product(x, x)) - scaled;
}

// Returns the inverse of erfc on (0, 1] by Winitzki's closed form and steps of Halley's method.
HIP_DEVICE double hip_erfc_inverse(double y) {
    double l = log(y * (2 - y));
    double b = 2 / (hip_pi * 0.147) + 0.5 * l;
    double w = sqrt(sqrt(b * b - l / 0.147) - b);
    for (int i = 0; i < 4; i++) {
        double slope = 0x1.20dd750429b6dp+0 * hip_exp_minus_square(w); // -erfc'(w)
        double step = (erfc(w) - y) / slope;
        w += step / (1 - w * step);
    }
    return w;
}
HIP_DEVICE double erfinv(double x) {
    double a = fabs(x);
    if (!(a < 1)) {
        return a == 1 ? copysign(__builtin_inf(), x) : __builtin_nan("");
    }
    if (a > 0.5) {
        return copysign(hip_erfc_inverse(1 - a), x);
    }
    double w = x * 0x1.c5bf891b4ef6bp-1; // sqrt(pi)/2
    for (int i = 0; i < 5; i++) {
        double step = (erf(w) - x) / (0x1.20dd750429b6dp+0 * exp(-w * w));
        w -= step / (1 + w * step);
    }
    return x == 0 ? x : w;
}
HIP_DEVICE double erfcinv(double y) {
    if (!(y > 0 && y < 2)) {
        return y == 0 ? __builtin_inf() : y == 2 ? -__builtin_inf() : __builtin_nan("");
    }
    if (y > 0.5 && y < 1.5) {
        return erfinv(1 - y); // exact
    }
    return y <= 1 ? hip_erfc_inverse(y) : -hip_erfc_inverse(2 - y);
}
// Returns erfc(-x/sqrt 2)/2. In the tail, the rounding error of x/sqrt 2 must be compensated.
HIP_DEVICE double normcdf(double x) {
    hip_double_double u = hip_product(-x, 0x1.6a09e667f3bcdp-1);
    u.low += -x * -0x1.bdd3413b26456p-55;
    double slope = fabs(u.high) < 27 ? 0x1.20dd750429b6dp+0 * hip_exp_minus_square(u.high) : 0;
    return 0.5 * (erfc(u.high) - (slope == 0 ? 0 : slope * u.low));
}
HIP_DEVICE double normcdfinv(double x) { return -0x1.6a09e667f3bcdp+0 * erfcinv(2 * x); }

// lgamma(2 + z) for |z| <= 0.5
HIP_DEVICE double hip_lgamma_near_two(double z) {
    constexpr double coefficients[] = {
        0x1.11fa5e7c86f7bp-24,  -0x1.2009c1a550d0dp-23, 0x1.b40adb09a1e12p-23,
        -0x1.ce17528bcf460p-22, 0x1.012012be3900ap-20,  -0x1.1276ebd557fb0p-19,
        0x1.258f3057730fap-18,  -0x1.3cb3be36ad88bp-17, 0x1.580e0afa55850p-16,
        -0x1.78de9ab752b81p-15, 0x1.a127afee53e7dp-14,  -0x1.d3fd4b679c1c4p-13,
        0x1.0b36af8779ca0p-11,  -0x1.38ac5c2d48207p-10, 0x1.7add6eadb5317p-9,
        -0x1.e404fc218dbaep-8,  0x1.51322ac7d848ap-6,   -0x1.13e001a55760ap-4,
        0x1.4a34cc4a60fa6p-2,   0x1.b0ee6072093cep-2,
    };
    return z * hip_polynomial(coefficients, z);
}
// Returns lgamma(x) - ((x - 1/2) log x - x + log(2 pi)/2) for x >= 20 by Stirling's series.
HIP_DEVICE double hip_stirling(double x) {
    double z = 1 / (x * x);
    double p = -691.0 / 360360;
    p = fma(p, z, 1.0 / 1188);
    p = fma(p, z, -1.0 / 1680);
    p = fma(p, z, 1.0 / 1260);
    p = fma(p, z, -1.0 / 360);
    return fma(p, z, 1.0 / 12) / x;
}
HIP_DEVICE double lgamma(double x) {
    if (!isfinite(x)) {
        return x * x;
    }
    if (x <= 0 && x == floor(x)) {
        return __builtin_inf();
    }
    if (x < -20) { // reflection: Gamma(x) Gamma(1 - x) = pi/sin(pi x)
        return log(hip_pi / fabs(sinpi(x))) - lgamma(1 - x);
    }
    if (x < 0.5) {
        double product = 1;
        double moved = x;
        while (moved < 0.5) {
            product *= moved;
            moved += 1;
        }
        return lgamma(moved) - log(fabs(product));
    }
    if (x < 1.5) {
        return hip_lgamma_near_two(x - 1) - log1p(x - 1);
    }
    if (x <= 2.5) {
        return hip_lgamma_near_two(x - 2);
    }
    if (x < 20) {
        double product = 1;
        while (x > 2.5) {
            x -= 1;
            product *= x;
        }
        return hip_lgamma_near_two(x - 2) + log(product);
    }
    return (x - 0.5) * log(x) - x + 0x1.d67f1c864beb5p-1 + hip_stirling(x);
}
HIP_DEVICE double tgamma(double x) {
    if (isnan(x) || x == __builtin_inf()) {
        return x;
    }
    if (x == 0) {
        return copysign(__builtin_inf(), x);
    }
    if (x < 0 && x == floor(x)) {
        return __builtin_nan("");
    }
    if (x < -20) {
        return x < -190 ? copysign(0.0, sinpi(x)) : hip_pi / (sinpi(x) * tgamma(1 - x));
    }
    if (x > 172) {
        return __builtin_inf();
    }
    if (x > 20) {
        double root = pow(x, 0.5 * x - 0.25); // its square may overflow before the factor exp(-x)
        return root * exp(-x) * root * 0x1.40d931ff62706p+1 * exp(hip_stirling(x));
    }
    double factor = 1;
    double divisor = 1;
    while (x > 2.5) {
        x -= 1;
        factor *= x;
    }
    while (x < 1.5) {
        divisor *= x;
        x += 1;
    }
    return exp(hip_lgamma_near_two(x - 2)) * factor / divisor;
}

HIP_DEVICE float erff(float x) { return (float)erf((double)x); }
HIP_DEVICE float erfcf(float x) { return (float)erfc((double)x); }
HIP_DEVICE float erfcxf(float x) { return (float)erfcx((double)x); }
HIP_DEVICE float erfinvf(float x) { return (float)erfinv((double)x); }
HIP_DEVICE float erfcinvf(float x) { return (float)erfcinv((double)x); }
HIP_DEVICE float normcdff(float x) { return (float)normcdf((double)x); }
HIP_DEVICE float normcdfinvf(float x) { return (float)normcdfinv((double)x); }
HIP_DEVICE float lgammaf(float x) { return (float)lgamma((double)x); }
HIP_DEVICE float tgammaf(float x) { return (float)tgamma((double)x); }
