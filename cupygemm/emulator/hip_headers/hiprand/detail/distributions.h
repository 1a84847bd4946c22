/* Uniform, normal and log-normal numbers of hipRAND's device interface.
 *
 * Uniform numbers are above 0, up to and including 1. Normal ones are made in pairs by the
 * transform of Box and Muller; the second is kept for the next call. The formulas are those of
 * rocRAND's documentation and headers. */
#pragma once

#include <hiprand/detail/engines.h>

// -- uniform --------------------------------------------------------------------------------------

HIPRAND_DEVICE float cupygemm_unit(unsigned int x) { return 0x1p-32f + x * 0x1p-32f; }
HIPRAND_DEVICE double cupygemm_unit(unsigned int low, unsigned int high) {
    return 0x1p-53 + (low | (unsigned long long)(high >> 11) << 32) * 0x1p-53;
}
HIPRAND_DEVICE double cupygemm_mrg_unit(unsigned int x) { return x * 2.3283065498378288e-10; }

template <typename State> HIPRAND_DEVICE float hiprand_uniform(State *s) {
    return cupygemm_unit(hiprand(s));
}
HIPRAND_DEVICE float hiprand_uniform(hiprandStateMRG32k3a *s) {
    return (float)cupygemm_mrg_unit(cupygemm_mrg_next(s));
}
template <typename State> HIPRAND_DEVICE double hiprand_uniform_double(State *s) {
    unsigned int low = hiprand(s);
    return cupygemm_unit(low, hiprand(s));
}
HIPRAND_DEVICE double hiprand_uniform_double(hiprandStateMRG32k3a *s) {
    return cupygemm_mrg_unit(cupygemm_mrg_next(s));
}
HIPRAND_DEVICE float4 hiprand_uniform4(hiprandStatePhilox4_32_10 *s) {
    uint4 x = hiprand4(s);
    return make_float4(cupygemm_unit(x.x), cupygemm_unit(x.y), cupygemm_unit(x.z),
                       cupygemm_unit(x.w));
}
HIPRAND_DEVICE double2 hiprand_uniform2_double(hiprandStatePhilox4_32_10 *s) {
    uint4 x = hiprand4(s);
    return make_double2(cupygemm_unit(x.x, x.y), cupygemm_unit(x.z, x.w));
}
HIPRAND_DEVICE double4 hiprand_uniform4_double(hiprandStatePhilox4_32_10 *s) {
    double2 low = hiprand_uniform2_double(s), high = hiprand_uniform2_double(s);
    return make_double4(low.x, low.y, high.x, high.y);
}

// -- normal ---------------------------------------------------------------------------------------

HIPRAND_DEVICE float2 cupygemm_box_muller(float u, float angle) {
    float sine, cosine, size = sqrtf(-2.0f * logf(u));
    __sincosf(angle, &sine, &cosine);
    return make_float2(sine * size, cosine * size);
}
/* The angle is in units of pi. */
HIPRAND_DEVICE double2 cupygemm_box_muller(double u, double half_turns) {
    double sine, cosine, size = sqrt(-2.0 * log(u));
    sincospi(half_turns, &sine, &cosine);
    return make_double2(sine * size, cosine * size);
}

HIPRAND_DEVICE float2 cupygemm_normals(unsigned int x, unsigned int y) {
    return cupygemm_box_muller(cupygemm_unit(x), 1.46291807e-09f + y * 1.46291807e-09f);
}
HIPRAND_DEVICE double2 cupygemm_normals(uint4 x) {
    unsigned long long first = x.x ^ (unsigned long long)x.y << 21;
    unsigned long long second = x.z ^ (unsigned long long)x.w << 21;
    return cupygemm_box_muller(0x1p-53 + first * 0x1p-53, 0x1p-52 + second * 0x1p-52);
}

template <typename State> HIPRAND_DEVICE float2 hiprand_normal2(State *s) {
    unsigned int x = hiprand(s);
    return cupygemm_normals(x, hiprand(s));
}
HIPRAND_DEVICE float2 hiprand_normal2(hiprandStateMRG32k3a *s) {
    float u = hiprand_uniform(s);
    return cupygemm_box_muller(u, hiprand_uniform(s) * 6.2831855f);
}
template <typename State> HIPRAND_DEVICE double2 hiprand_normal2_double(State *s) {
    uint4 x;
    x.x = hiprand(s), x.y = hiprand(s), x.z = hiprand(s), x.w = hiprand(s);
    return cupygemm_normals(x);
}
HIPRAND_DEVICE double2 hiprand_normal2_double(hiprandStateMRG32k3a *s) {
    double u = hiprand_uniform(s); // in single precision, as in rocRAND
    return cupygemm_box_muller(u, hiprand_uniform(s) * 2.0);
}
HIPRAND_DEVICE float4 hiprand_normal4(hiprandStatePhilox4_32_10 *s) {
    float2 low = hiprand_normal2(s), high = hiprand_normal2(s);
    return make_float4(low.x, low.y, high.x, high.y);
}
HIPRAND_DEVICE double4 hiprand_normal4_double(hiprandStatePhilox4_32_10 *s) {
    double2 low = hiprand_normal2_double(s), high = hiprand_normal2_double(s);
    return make_double4(low.x, low.y, high.x, high.y);
}

template <typename State> HIPRAND_DEVICE float hiprand_normal(State *s) {
    if (s->spare.has_float) {
        s->spare.has_float = false;
        return s->spare.of_float;
    }
    float2 made = hiprand_normal2(s);
    s->spare.has_float = true;
    s->spare.of_float = made.y;
    return made.x;
}
template <typename State> HIPRAND_DEVICE double hiprand_normal_double(State *s) {
    if (s->spare.has_double) {
        s->spare.has_double = false;
        return s->spare.of_double;
    }
    double2 made = hiprand_normal2_double(s);
    s->spare.has_double = true;
    s->spare.of_double = made.y;
    return made.x;
}

// -- log-normal -----------------------------------------------------------------------------------

template <typename State>
HIPRAND_DEVICE float hiprand_log_normal(State *s, float mean, float deviation) {
    return expf(mean + deviation * hiprand_normal(s));
}
template <typename State>
HIPRAND_DEVICE float2 hiprand_log_normal2(State *s, float mean, float deviation) {
    float2 x = hiprand_normal2(s);
    return make_float2(expf(mean + deviation * x.x), expf(mean + deviation * x.y));
}
template <typename State>
HIPRAND_DEVICE double hiprand_log_normal_double(State *s, double mean, double deviation) {
    return exp(mean + deviation * hiprand_normal_double(s));
}
template <typename State>
HIPRAND_DEVICE double2 hiprand_log_normal2_double(State *s, double mean, double deviation) {
    double2 x = hiprand_normal2_double(s);
    return make_double2(exp(mean + deviation * x.x), exp(mean + deviation * x.y));
}
HIPRAND_DEVICE float4 hiprand_log_normal4(hiprandStatePhilox4_32_10 *s, float mean,
                                          float deviation) {
    float2 low = hiprand_log_normal2(s, mean, deviation);
    float2 high = hiprand_log_normal2(s, mean, deviation);
    return make_float4(low.x, low.y, high.x, high.y);
}
