// __hip_bfloat16 and __hip_bfloat162 on top of clang's __bf16. Arithmetic is done in single
// precision and rounded once.
#pragma once

#include <device/atomic.h>
#include <device/math.h>
#include <device/vector_types.h>

struct __hip_bfloat16_raw {
    unsigned short x;
};
struct alignas(4) __hip_bfloat162_raw {
    unsigned short x, y;
};

// Rounds so that rounding the result once more gives what one rounding of `x` would have given.
HIP_BOTH constexpr float hip_rounded_to_odd(double x) {
    float nearest = (float)x;
    unsigned int bits = __builtin_bit_cast(unsigned int, nearest);
    if ((double)nearest != x) {
        bits -= (x > 0 && nearest > x) || (x < 0 && nearest < x);
        bits |= 1;
    }
    return __builtin_bit_cast(float, bits);
}

struct __hip_bfloat16 {
    __bf16 value;

    __hip_bfloat16() = default;
    __host__ __device__ constexpr __hip_bfloat16(__bf16 v) : value(v) {}
    __host__ __device__ constexpr __hip_bfloat16(float v) : value((__bf16)v) {}
    __host__ __device__ constexpr __hip_bfloat16(double v) : value((__bf16)hip_rounded_to_odd(v)) {}
    template <typename T, typename = hip_if_integer<T>>
    __host__ __device__ constexpr __hip_bfloat16(T v) : __hip_bfloat16((double)v) {}
    __host__ __device__ constexpr __hip_bfloat16(__hip_bfloat16_raw v)
        : value(__builtin_bit_cast(__bf16, v.x)) {}

    __host__ __device__ constexpr operator float() const { return (float)value; }
    __host__ __device__ constexpr operator __hip_bfloat16_raw() const {
        return {__builtin_bit_cast(unsigned short, value)};
    }
    __device__ constexpr __hip_bfloat16 operator-() const { return __hip_bfloat16(-(float)value); }
    __host__ __device__ constexpr __hip_bfloat16 operator+() const { return *this; }
    __host__ __device__ __hip_bfloat16 &operator++() {
        return *this = __hip_bfloat16((float)value + 1);
    }
    __host__ __device__ __hip_bfloat16 &operator--() {
        return *this = __hip_bfloat16((float)value - 1);
    }
    __host__ __device__ __hip_bfloat16 operator++(int) {
        __hip_bfloat16 before = *this;
        ++*this;
        return before;
    }
    __host__ __device__ __hip_bfloat16 operator--(int) {
        __hip_bfloat16 before = *this;
        --*this;
        return before;
    }
};

struct alignas(4) __hip_bfloat162 {
    __hip_bfloat16 x, y;
    __hip_bfloat162() = default;
    __host__ __device__ constexpr __hip_bfloat162(__hip_bfloat16 x, __hip_bfloat16 y)
        : x(x), y(y) {}
    __host__ __device__ constexpr __hip_bfloat162(__hip_bfloat162_raw v)
        : x(__hip_bfloat16_raw{v.x}), y(__hip_bfloat16_raw{v.y}) {}
    __host__ __device__ constexpr operator __hip_bfloat162_raw() const {
        return {__hip_bfloat16_raw(x).x, __hip_bfloat16_raw(y).x};
    }
    __host__ __device__ constexpr operator float2() const { return {(float)x, (float)y}; }
};

#define HIP_BF16_OPERATOR(op, name)                                                                \
    HIP_BOTH constexpr __hip_bfloat16 operator op(__hip_bfloat16 a, __hip_bfloat16 b) {            \
        return __hip_bfloat16((float)a op(float) b);                                               \
    }                                                                                              \
    HIP_BOTH __hip_bfloat16 &operator op## = (__hip_bfloat16 & a, __hip_bfloat16 b) {              \
        return a = a op b;                                                                         \
    }                                                                                              \
    HIP_BOTH constexpr __hip_bfloat16 name(__hip_bfloat16 a, __hip_bfloat16 b) { return a op b; }  \
    HIP_BOTH constexpr __hip_bfloat162 name##2(__hip_bfloat162 a, __hip_bfloat162 b) {             \
        return __hip_bfloat162(a.x op b.x, a.y op b.y);                                            \
    }
HIP_BF16_OPERATOR(+, __hadd)
HIP_BF16_OPERATOR(-, __hsub)
HIP_BF16_OPERATOR(*, __hmul)
HIP_BF16_OPERATOR(/, __hdiv)
#undef HIP_BF16_OPERATOR

// The pairs' functions: 1 or 0 for each component, and whether both are true; u means also for NaN.
#define HIP_BF16_COMPARISON(op, name)                                                              \
    HIP_BOTH constexpr bool operator op(__hip_bfloat16 a, __hip_bfloat16 b) {                      \
        return (float)a op(float) b;                                                               \
    }                                                                                              \
    HIP_BF16_COMPARED(__h##name, (float)a op(float) b)                                             \
    HIP_BF16_COMPARED(__h##name##u, a op b || __builtin_isunordered((float)a, (float)b))           \
    HIP_BOTH bool __hb##name##2(__hip_bfloat162 a, __hip_bfloat162 b) {                            \
        return __h##name(a.x, b.x) && __h##name(a.y, b.y);                                         \
    }                                                                                              \
    HIP_BOTH bool __hb##name##u2(__hip_bfloat162 a, __hip_bfloat162 b) {                           \
        return __h##name##u(a.x, b.x) && __h##name##u(a.y, b.y);                                   \
    }
#define HIP_BF16_COMPARED(name, result)                                                            \
    HIP_BOTH constexpr bool name(__hip_bfloat16 a, __hip_bfloat16 b) { return result; }            \
    HIP_BOTH constexpr __hip_bfloat162 name##2(__hip_bfloat162 a, __hip_bfloat162 b) {             \
        return __hip_bfloat162(__hip_bfloat16(name(a.x, b.x) ? 1.0f : 0.0f),                       \
                               __hip_bfloat16(name(a.y, b.y) ? 1.0f : 0.0f));                      \
    }
HIP_BF16_COMPARISON(!=, ne)
HIP_BF16_COMPARISON(<, lt)
HIP_BF16_COMPARISON(<=, le)
HIP_BF16_COMPARISON(>, gt)
HIP_BF16_COMPARISON(>=, ge)
HIP_BF16_COMPARISON(==, eq)
#undef HIP_BF16_COMPARISON
#undef HIP_BF16_COMPARED

HIP_BOTH __hip_bfloat16 __float2bfloat16(float x) { return __hip_bfloat16(x); }
HIP_BOTH __hip_bfloat16 __float2bfloat16_rn(float x) { return __hip_bfloat16(x); }
HIP_BOTH __hip_bfloat16 __double2bfloat16(double x) { return __hip_bfloat16(x); }
HIP_BOTH float __bfloat162float(__hip_bfloat16 x) { return (float)x; }
HIP_BOTH unsigned short __bfloat16_as_ushort(__hip_bfloat16 x) {
    return __builtin_bit_cast(unsigned short, x.value);
}
HIP_BOTH short __bfloat16_as_short(__hip_bfloat16 x) { return __builtin_bit_cast(short, x.value); }
HIP_BOTH __hip_bfloat16 __ushort_as_bfloat16(unsigned short x) {
    return __hip_bfloat16(__builtin_bit_cast(__bf16, x));
}
HIP_BOTH __hip_bfloat16 __short_as_bfloat16(short x) {
    return __hip_bfloat16(__builtin_bit_cast(__bf16, x));
}
HIP_BOTH __hip_bfloat162 __halves2bfloat162(__hip_bfloat16 x, __hip_bfloat16 y) {
    return __hip_bfloat162(x, y);
}
HIP_BOTH __hip_bfloat162 __float22bfloat162_rn(float2 v) {
    return __hip_bfloat162(__hip_bfloat16(v.x), __hip_bfloat16(v.y));
}
HIP_BOTH float2 __bfloat1622float2(__hip_bfloat162 v) { return {(float)v.x, (float)v.y}; }
HIP_BOTH __hip_bfloat162 __lows2bfloat162(__hip_bfloat162 a, __hip_bfloat162 b) {
    return __hip_bfloat162(a.x, b.x);
}
HIP_BOTH __hip_bfloat162 __highs2bfloat162(__hip_bfloat162 a, __hip_bfloat162 b) {
    return __hip_bfloat162(a.y, b.y);
}
HIP_BOTH __hip_bfloat16 __low2bfloat16(__hip_bfloat162 v) { return v.x; }
HIP_BOTH __hip_bfloat16 __high2bfloat16(__hip_bfloat162 v) { return v.y; }

HIP_BOTH __hip_bfloat16 __hfma(__hip_bfloat16 a, __hip_bfloat16 b, __hip_bfloat16 c) {
    return __hip_bfloat16(fmaf((float)a, (float)b, (float)c));
}
HIP_BOTH __hip_bfloat16 __hneg(__hip_bfloat16 a) { return -a; }
HIP_BOTH __hip_bfloat16 __habs(__hip_bfloat16 a) {
    return __ushort_as_bfloat16(__bfloat16_as_ushort(a) & 0x7fff);
}
HIP_BOTH bool __hisnan(__hip_bfloat16 a) { return isnan((float)a); }
HIP_BOTH __hip_bfloat162 __hisnan2(__hip_bfloat162 v) { return __hneu2(v, v); }
HIP_BOTH bool __hisinf(__hip_bfloat16 a) { return isinf((float)a); }
HIP_BOTH __hip_bfloat16 __hmax(__hip_bfloat16 a, __hip_bfloat16 b) {
    return __hip_bfloat16(fmaxf((float)a, (float)b));
}
HIP_BOTH __hip_bfloat16 __hmin(__hip_bfloat16 a, __hip_bfloat16 b) {
    return __hip_bfloat16(fminf((float)a, (float)b));
}

// Pairs, and math functions in single precision.
typedef __hip_bfloat162 hip_bfloat162;
HIP_BOTH __hip_bfloat162 __bfloat162bfloat162(__hip_bfloat16 x) { return __hip_bfloat162(x, x); }
// ROCm lacks these two, and projects define them: a project's function is preferred to a template.
template <class = void> HIP_BOTH __hip_bfloat162 __float2bfloat162_rn(float x) {
    return __bfloat162bfloat162(__hip_bfloat16(x));
}
template <class = void> HIP_BOTH __hip_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return __hip_bfloat162(__hip_bfloat16(x), __hip_bfloat16(y));
}
HIP_BOTH __hip_bfloat162 make_bfloat162(__hip_bfloat16 x, __hip_bfloat16 y) {
    return __hip_bfloat162(x, y);
}
HIP_BOTH float __low2float(__hip_bfloat162 v) { return (float)v.x; }
HIP_BOTH float __high2float(__hip_bfloat162 v) { return (float)v.y; }
HIP_BOTH __hip_bfloat162 __low2bfloat162(__hip_bfloat162 v) { return __hip_bfloat162(v.x, v.x); }
HIP_BOTH __hip_bfloat162 __high2bfloat162(__hip_bfloat162 v) { return __hip_bfloat162(v.y, v.y); }
HIP_BOTH __hip_bfloat162 __lowhigh2highlow(__hip_bfloat162 v) { return __hip_bfloat162(v.y, v.x); }
HIP_BOTH __hip_bfloat162 __h2div(__hip_bfloat162 a, __hip_bfloat162 b) {
    return __hip_bfloat162(a.x / b.x, a.y / b.y);
}
HIP_BOTH __hip_bfloat162 __hfma2(__hip_bfloat162 a, __hip_bfloat162 b, __hip_bfloat162 c) {
    return __hip_bfloat162(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}
HIP_BOTH __hip_bfloat162 __hneg2(__hip_bfloat162 v) { return __hip_bfloat162(-v.x, -v.y); }
HIP_BOTH __hip_bfloat162 __habs2(__hip_bfloat162 v) {
    return __hip_bfloat162(__habs(v.x), __habs(v.y));
}
HIP_BOTH __hip_bfloat162 __hmax2(__hip_bfloat162 a, __hip_bfloat162 b) {
    return __hip_bfloat162(__hmax(a.x, b.x), __hmax(a.y, b.y));
}
HIP_BOTH __hip_bfloat162 __hmin2(__hip_bfloat162 a, __hip_bfloat162 b) {
    return __hip_bfloat162(__hmin(a.x, b.x), __hmin(a.y, b.y));
}
#define HIP_BF16_PAIR(op)                                                                          \
    HIP_BOTH __hip_bfloat162 operator op(__hip_bfloat162 a, __hip_bfloat162 b) {                   \
        return __hip_bfloat162(a.x op b.x, a.y op b.y);                                            \
    }                                                                                              \
    HIP_BOTH __hip_bfloat162 &operator op## = (__hip_bfloat162 & a, __hip_bfloat162 b) {           \
        return a = a op b;                                                                         \
    }
HIP_BF16_PAIR(+)
HIP_BF16_PAIR(-)
HIP_BF16_PAIR(*)
HIP_BF16_PAIR(/)
#undef HIP_BF16_PAIR
HIP_BOTH __hip_bfloat162 operator-(__hip_bfloat162 v) { return __hneg2(v); }
HIP_BOTH bool operator==(__hip_bfloat162 a, __hip_bfloat162 b) { return a.x == b.x && a.y == b.y; }
HIP_BOTH bool operator!=(__hip_bfloat162 a, __hip_bfloat162 b) { return !(a == b); }
#define HIP_BF16_MATH(name, function)                                                              \
    HIP_BOTH __hip_bfloat16 name(__hip_bfloat16 x) { return __hip_bfloat16(function((float)x)); }  \
    HIP_BOTH __hip_bfloat162 h2##function(__hip_bfloat162 v) {                                     \
        return __hip_bfloat162(name(v.x), name(v.y));                                              \
    }
HIP_BF16_MATH(hceil, ceil)
HIP_BF16_MATH(hcos, cos)
HIP_BF16_MATH(hexp, exp)
HIP_BF16_MATH(hexp10, exp10)
HIP_BF16_MATH(hexp2, exp2)
HIP_BF16_MATH(hfloor, floor)
HIP_BF16_MATH(hlog, log)
HIP_BF16_MATH(hlog10, log10)
HIP_BF16_MATH(hlog2, log2)
HIP_BF16_MATH(hrint, rint)
HIP_BF16_MATH(hrsqrt, rsqrt)
HIP_BF16_MATH(hsin, sin)
HIP_BF16_MATH(hsqrt, sqrt)
HIP_BF16_MATH(htrunc, trunc)
#undef HIP_BF16_MATH
HIP_BOTH __hip_bfloat16 hrcp(__hip_bfloat16 x) { return __hip_bfloat16(1 / (float)x); }
HIP_BOTH __hip_bfloat162 h2rcp(__hip_bfloat162 v) { return __hip_bfloat162(hrcp(v.x), hrcp(v.y)); }

HIP_DEVICE __hip_bfloat162 unsafeAtomicAdd(__hip_bfloat162 *address, __hip_bfloat162 value) {
#if defined(__gfx942__) || defined(__gfx950__)
    typedef short Pair __attribute__((ext_vector_type(2)));
    return __builtin_bit_cast(
        __hip_bfloat162,
        __builtin_amdgcn_flat_atomic_fadd_v2bf16((Pair *)address, __builtin_bit_cast(Pair, value)));
#else
    return hip_add_by_exchange(address, value);
#endif
}

#define HIPRT_ZERO_BF16 __ushort_as_bfloat16(0x0000)
#define HIPRT_NEG_ZERO_BF16 __ushort_as_bfloat16(0x8000)
#define HIPRT_ONE_BF16 __ushort_as_bfloat16(0x3f80)
#define HIPRT_INF_BF16 __ushort_as_bfloat16(0x7f80)
#define HIPRT_NAN_BF16 __ushort_as_bfloat16(0x7fff)
#define HIPRT_MAX_NORMAL_BF16 __ushort_as_bfloat16(0x7f7f)
#define HIPRT_MIN_DENORM_BF16 __ushort_as_bfloat16(0x0001)
