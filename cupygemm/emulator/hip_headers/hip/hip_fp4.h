// 4-bit floats, e2m1: alone in the low bits of a byte, and in pairs and fours without gaps.
#pragma once

#include <device/narrow_float.h>

typedef unsigned char __hip_fp4_storage_t;
typedef unsigned char __hip_fp4x2_storage_t;
typedef unsigned short __hip_fp4x4_storage_t;
enum __hip_fp4_interpretation_t { __HIP_E2M1 = 0 };

HIP_BOTH constexpr unsigned int hip_fp4_encoded(float x, __hip_fp4_interpretation_t) {
    return hip_narrow_format<2, 1>::encode(x);
}
HIP_BOTH constexpr float hip_fp4_decoded(unsigned int code, __hip_fp4_interpretation_t) {
    return hip_narrow_format<2, 1>::decode(code);
}
HIP_NARROW_CONVERSIONS(fp4, 4)
HIP_NARROW_TYPES(fp4, e2m1, __HIP_E2M1, 4)
