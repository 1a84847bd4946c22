// 6-bit floats, e2m3 and e3m2: each in the low bits of a byte, also in pairs and fours.
#pragma once

#include <device/narrow_float.h>

typedef unsigned char __hip_fp6_storage_t;
typedef unsigned short __hip_fp6x2_storage_t;
typedef unsigned int __hip_fp6x4_storage_t;
enum __hip_fp6_interpretation_t { __HIP_E3M2 = 0, __HIP_E2M3 = 1 };

HIP_BOTH constexpr unsigned int hip_fp6_encoded(float x, __hip_fp6_interpretation_t kind) {
    return kind == __HIP_E2M3 ? hip_narrow_format<2, 3>::encode(x)
                              : hip_narrow_format<3, 2>::encode(x);
}
HIP_BOTH constexpr float hip_fp6_decoded(unsigned int code, __hip_fp6_interpretation_t kind) {
    return kind == __HIP_E2M3 ? hip_narrow_format<2, 3>::decode(code)
                              : hip_narrow_format<3, 2>::decode(code);
}
HIP_NARROW_CONVERSIONS(fp6, 8)
HIP_NARROW_TYPES(fp6, e2m3, __HIP_E2M3, 8)
HIP_NARROW_TYPES(fp6, e3m2, __HIP_E3M2, 8)
