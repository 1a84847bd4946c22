// hipFloatComplex and hipDoubleComplex, the C interface to complex numbers.
#pragma once

#include <hip/hip_runtime.h>

typedef float2 hipFloatComplex;
typedef double2 hipDoubleComplex;
typedef hipFloatComplex hipComplex;

#define HIP_COMPLEX(type, real, f, root)                                                           \
    HIP_DEVICE type make_##type(real x, real y) { return {x, y}; }                                 \
    HIP_DEVICE real hipCreal##f(type z) { return z.x; }                                            \
    HIP_DEVICE real hipCimag##f(type z) { return z.y; }                                            \
    HIP_DEVICE type hipConj##f(type z) { return {z.x, -z.y}; }                                     \
    HIP_DEVICE real hipCsqabs##f(type z) { return z.x * z.x + z.y * z.y; }                         \
    HIP_DEVICE real hipCabs##f(type z) { return root(z.x, z.y); }                                  \
    HIP_DEVICE type hipCadd##f(type a, type b) { return {a.x + b.x, a.y + b.y}; }                  \
    HIP_DEVICE type hipCsub##f(type a, type b) { return {a.x - b.x, a.y - b.y}; }                  \
    HIP_DEVICE type hipCmul##f(type a, type b) {                                                   \
        return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};                                     \
    }                                                                                              \
    HIP_DEVICE type hipCdiv##f(type a, type b) {                                                   \
        real square = hipCsqabs##f(b);                                                             \
        return {(a.x * b.x + a.y * b.y) / square, (a.y * b.x - a.x * b.y) / square};               \
    }                                                                                              \
    HIP_DEVICE type hipCfma##f(type a, type b, type c) { return hipCadd##f(hipCmul##f(a, b), c); }
HIP_COMPLEX(hipFloatComplex, float, f, hypotf)
HIP_COMPLEX(hipDoubleComplex, double, , hypot)
#undef HIP_COMPLEX

HIP_DEVICE hipComplex make_hipComplex(float x, float y) { return {x, y}; }
HIP_DEVICE hipDoubleComplex hipComplexFloatToDouble(hipFloatComplex z) { return {z.x, z.y}; }
HIP_DEVICE hipFloatComplex hipComplexDoubleToFloat(hipDoubleComplex z) {
    return {(float)z.x, (float)z.y};
}
