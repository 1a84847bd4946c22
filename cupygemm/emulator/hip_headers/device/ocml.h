// ROCm's device library by its own names, which some kernels call directly.
#pragma once

#include <device/math.h>

#define HIP_OCML(name)                                                                             \
    HIP_DEVICE float __ocml_##name##_f32(float x) { return name##f(x); }                           \
    HIP_DEVICE double __ocml_##name##_f64(double x) { return name(x); }
#define HIP_OCML_2(name)                                                                           \
    HIP_DEVICE float __ocml_##name##_f32(float x, float y) { return name##f(x, y); }               \
    HIP_DEVICE double __ocml_##name##_f64(double x, double y) { return name(x, y); }
HIP_OCML(acos)
HIP_OCML(acosh)
HIP_OCML(asin)
HIP_OCML(asinh)
HIP_OCML(atan)
HIP_OCML(atanh)
HIP_OCML(cbrt)
HIP_OCML(ceil)
HIP_OCML(cos)
HIP_OCML(cosh)
HIP_OCML(erf)
HIP_OCML(erfc)
HIP_OCML(exp)
HIP_OCML(exp10)
HIP_OCML(exp2)
HIP_OCML(expm1)
HIP_OCML(fabs)
HIP_OCML(floor)
HIP_OCML(log)
HIP_OCML(log10)
HIP_OCML(log1p)
HIP_OCML(log2)
HIP_OCML(logb)
HIP_OCML(rint)
HIP_OCML(round)
HIP_OCML(rsqrt)
HIP_OCML(sin)
HIP_OCML(sinh)
HIP_OCML(sqrt)
HIP_OCML(tan)
HIP_OCML(tanh)
HIP_OCML(tgamma)
HIP_OCML(trunc)
HIP_OCML_2(atan2)
HIP_OCML_2(copysign)
HIP_OCML_2(fmax)
HIP_OCML_2(fmin)
HIP_OCML_2(fmod)
HIP_OCML_2(hypot)
HIP_OCML_2(nextafter)
HIP_OCML_2(pow)
HIP_OCML_2(remainder)
#undef HIP_OCML
#undef HIP_OCML_2

HIP_DEVICE float __ocml_fma_f32(float x, float y, float z) { return fmaf(x, y, z); }
HIP_DEVICE double __ocml_fma_f64(double x, double y, double z) { return fma(x, y, z); }
HIP_DEVICE float __ocml_native_exp2_f32(float x) { return __builtin_amdgcn_exp2f(x); }
HIP_DEVICE float __ocml_native_exp_f32(float x) { return __expf(x); }
HIP_DEVICE float __ocml_native_log2_f32(float x) { return __builtin_amdgcn_logf(x); }
HIP_DEVICE float __ocml_native_log_f32(float x) { return __logf(x); }
HIP_DEVICE float __ocml_native_recip_f32(float x) { return __builtin_amdgcn_rcpf(x); }
HIP_DEVICE float __ocml_native_rsqrt_f32(float x) { return __builtin_amdgcn_rsqf(x); }
HIP_DEVICE float __ocml_native_sqrt_f32(float x) { return __builtin_amdgcn_sqrtf(x); }
