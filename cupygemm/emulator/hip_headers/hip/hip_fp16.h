// half and half2 (IEEE binary16) on top of clang's _Float16. Each operation is rounded once, unless
// the compiler contracts it into a fused operation (HIP's default, which --fmad=false disables).
#pragma once

#include <device/atomic.h>
#include <device/math.h>
#include <device/vector_types.h>

typedef _Float16 _Float16_2 __attribute__((ext_vector_type(2)));
// `data` comes first, so that braces initialise it with a number.
struct __half_raw {
    union {
        _Float16 data;
        unsigned short x;
    };
};
struct __half2_raw {
    union {
        struct {
            __half_raw x, y;
        };
        _Float16_2 data;
    };
};

struct __half {
    _Float16 value;

    __half() = default;
    __host__ __device__ constexpr __half(_Float16 v) : value(v) {}
    __host__ __device__ constexpr __half(float v) : value((_Float16)v) {}
    __host__ __device__ constexpr __half(double v) : value((_Float16)v) {}
    template <typename T, typename = hip_if_integer<T>> __host__ __device__ constexpr __half(T v)
        : value((_Float16)v) {}
    __host__ __device__ constexpr __half(__half_raw v) : value(v.data) {}

    __host__ __device__ constexpr operator float() const { return (float)value; }
    __host__ __device__ constexpr operator __half_raw() const { return {{value}}; }
    template <typename T, typename = hip_if_integer<T>>
    __host__ __device__ explicit constexpr operator T() const {
        return (T)value;
    }
    __host__ __device__ explicit constexpr operator double() const { return (double)value; }

    __host__ __device__ constexpr __half operator-() const { return __half((_Float16)-value); }
    __host__ __device__ constexpr __half operator+() const { return *this; }
    __host__ __device__ __half &operator++() {
        return *this = __half((_Float16)(value + (_Float16)1));
    }
    __host__ __device__ __half &operator--() {
        return *this = __half((_Float16)(value - (_Float16)1));
    }
    __host__ __device__ __half operator++(int) {
        __half before = *this;
        ++*this;
        return before;
    }
    __host__ __device__ __half operator--(int) {
        __half before = *this;
        --*this;
        return before;
    }
};
typedef __half half;

struct alignas(4) __half2 {
    union {
        struct {
            __half x, y;
        };
        _Float16_2 data;
    };
    __half2() = default;
    __host__ __device__ constexpr __half2(_Float16_2 v) : data(v) {}
    __host__ __device__ constexpr __half2(__half2_raw v) : data(v.data) {}
    __host__ __device__ constexpr operator _Float16_2() const {
        return _Float16_2{x.value, y.value};
    }
    __host__ __device__ operator __half2_raw() const {
        __half2_raw raw;
        raw.data = *this;
        return raw;
    }
    __host__ __device__ constexpr __half2(__half x, __half y) : x(x), y(y) {}
    __host__ __device__ constexpr explicit __half2(__half v) : x(v), y(v) {}
};
typedef __half2 half2;

#define HIP_HALF_OPERATOR(op, name)                                                                \
    HIP_BOTH constexpr __half operator op(__half a, __half b) {                                    \
        return __half((_Float16)(a.value op b.value));                                             \
    }                                                                                              \
    HIP_BOTH __half &operator op## = (__half & a, __half b) { return a = a op b; }                 \
    HIP_BOTH constexpr __half name(__half a, __half b) { return a op b; }                          \
    HIP_BOTH constexpr __half2 operator op(__half2 a, __half2 b) {                                 \
        return __half2(a.x op b.x, a.y op b.y);                                                    \
    }                                                                                              \
    HIP_BOTH __half2 &operator op## = (__half2 & a, __half2 b) { return a = a op b; }              \
    HIP_BOTH constexpr __half2 name##2(__half2 a, __half2 b) { return a op b; }
HIP_HALF_OPERATOR(+, __hadd)
HIP_HALF_OPERATOR(-, __hsub)
HIP_HALF_OPERATOR(*, __hmul)
HIP_HALF_OPERATOR(/, __hdiv)
#undef HIP_HALF_OPERATOR
HIP_BOTH constexpr __half2 operator-(__half2 a) {
    return __half2(__half((_Float16)-a.x.value), __half((_Float16)-a.y.value));
}

// The pairs' functions: 1 or 0 for each component, and whether both are true; u means also for NaN.
#define HIP_HALF_COMPARED(name, result)                                                            \
    HIP_BOTH constexpr bool name(__half a, __half b) { return result; }                            \
    HIP_BOTH constexpr __half2 name##2(__half2 a, __half2 b) {                                     \
        return __half2(__half(name(a.x, b.x) ? 1.0f : 0.0f),                                       \
                       __half(name(a.y, b.y) ? 1.0f : 0.0f));                                      \
    }
#define HIP_HALF_COMPARISON(op, name)                                                              \
    HIP_BOTH constexpr bool operator op(__half a, __half b) { return a.value op b.value; }         \
    HIP_HALF_COMPARED(__h##name, a.value op b.value)                                               \
    HIP_HALF_COMPARED(__h##name##u, a op b || a.value != a.value || b.value != b.value)            \
    HIP_BOTH bool __hb##name##2(__half2 a, __half2 b) { return a.x op b.x && a.y op b.y; }         \
    HIP_BOTH bool __hb##name##u2(__half2 a, __half2 b) {                                           \
        return __h##name##u(a.x, b.x) && __h##name##u(a.y, b.y);                                   \
    }
HIP_HALF_COMPARISON(==, eq)
HIP_HALF_COMPARISON(!=, ne)
HIP_HALF_COMPARISON(<, lt)
HIP_HALF_COMPARISON(<=, le)
HIP_HALF_COMPARISON(>, gt)
HIP_HALF_COMPARISON(>=, ge)
#undef HIP_HALF_COMPARISON
#undef HIP_HALF_COMPARED

// Mixed operands: a half is converted to the other floating-point type, an integer to half.
#define HIP_HALF_MIXED(op)                                                                         \
    HIP_BOTH constexpr float operator op(__half a, float b) { return (float)a op b; }              \
    HIP_BOTH constexpr float operator op(float a, __half b) { return a op(float) b; }              \
    HIP_BOTH constexpr double operator op(__half a, double b) { return (double)a op b; }           \
    HIP_BOTH constexpr double operator op(double a, __half b) { return a op(double) b; }           \
    template <typename T, typename = hip_if_integer<T>>                                            \
    HIP_BOTH constexpr __half operator op(__half a, T b) {                                         \
        return a op __half(b);                                                                     \
    }                                                                                              \
    template <typename T, typename = hip_if_integer<T>>                                            \
    HIP_BOTH constexpr __half operator op(T a, __half b) {                                         \
        return __half(a) op b;                                                                     \
    }
HIP_HALF_MIXED(+)
HIP_HALF_MIXED(-)
HIP_HALF_MIXED(*)
HIP_HALF_MIXED(/)
#undef HIP_HALF_MIXED
#define HIP_HALF_MIXED(op)                                                                         \
    template <typename T, typename = typename hip_enable_if<hip_is_arithmetic<T>::value, T>::type> \
    HIP_BOTH constexpr bool operator op(__half a, T b) {                                           \
        return (double)a op(double) b;                                                             \
    }                                                                                              \
    template <typename T, typename = typename hip_enable_if<hip_is_arithmetic<T>::value, T>::type> \
    HIP_BOTH constexpr bool operator op(T a, __half b) {                                           \
        return (double)a op(double) b;                                                             \
    }
HIP_HALF_MIXED(==)
HIP_HALF_MIXED(!=)
HIP_HALF_MIXED(<)
HIP_HALF_MIXED(<=)
HIP_HALF_MIXED(>)
HIP_HALF_MIXED(>=)
#undef HIP_HALF_MIXED

// Conversions
HIP_BOTH __half __float2half(float x) { return __half(x); }
HIP_BOTH __half __float2half_rn(float x) { return __half(x); }
// Rounded towards zero, up or down: one step back if the nearest number is beyond.
HIP_BOTH __half hip_half_step(__half x, int step) {
    return __half(__builtin_bit_cast(
        _Float16, (unsigned short)(__builtin_bit_cast(unsigned short, x) + step)));
}
HIP_BOTH __half hip_half_rz(double x) {
    __half nearest(x);
    return fabs((double)nearest) > fabs(x) ? hip_half_step(nearest, -1) : nearest;
}
HIP_BOTH __half hip_half_ru(double x) {
    __half towards_zero = hip_half_rz(x);
    return (double)towards_zero < x ? hip_half_step(towards_zero, 1) : towards_zero;
}
HIP_BOTH __half hip_half_rd(double x) { return -hip_half_ru(-x); }
HIP_BOTH __half __float2half_rz(float x) { return hip_half_rz(x); }
HIP_BOTH __half __float2half_rd(float x) { return hip_half_rd(x); }
HIP_BOTH __half __float2half_ru(float x) { return hip_half_ru(x); }
HIP_BOTH __half __double2half(double x) { return __half(x); }
HIP_BOTH float __half2float(__half x) { return (float)x; }
HIP_BOTH unsigned short __half_as_ushort(__half x) {
    return __builtin_bit_cast(unsigned short, x.value);
}
HIP_BOTH short __half_as_short(__half x) { return __builtin_bit_cast(short, x.value); }
HIP_BOTH __half __ushort_as_half(unsigned short x) {
    return __half(__builtin_bit_cast(_Float16, x));
}
HIP_BOTH __half __short_as_half(short x) { return __half(__builtin_bit_cast(_Float16, x)); }
#define HIP_HALF_INTEGER(type, name)                                                               \
    HIP_BOTH type __half2##name##_rn(__half x) { return (type)rintf((float)x); }                   \
    HIP_BOTH type __half2##name##_rz(__half x) { return (type)(float)x; }                          \
    HIP_BOTH type __half2##name##_rd(__half x) { return (type)floorf((float)x); }                  \
    HIP_BOTH type __half2##name##_ru(__half x) { return (type)ceilf((float)x); }                   \
    HIP_BOTH __half __##name##2half_rn(type x) { return __half((_Float16)x); }                     \
    HIP_BOTH __half __##name##2half_rz(type x) { return hip_half_rz((double)x); }                  \
    HIP_BOTH __half __##name##2half_rd(type x) { return hip_half_rd((double)x); }                  \
    HIP_BOTH __half __##name##2half_ru(type x) { return hip_half_ru((double)x); }
HIP_HALF_INTEGER(int, int)
HIP_HALF_INTEGER(unsigned int, uint)
HIP_HALF_INTEGER(short, short)
HIP_HALF_INTEGER(unsigned short, ushort)
HIP_HALF_INTEGER(long long, ll)
HIP_HALF_INTEGER(unsigned long long, ull)
#undef HIP_HALF_INTEGER

// Pairs
HIP_BOTH __half2 __halves2half2(__half x, __half y) { return __half2(x, y); }
HIP_BOTH __half2 make_half2(__half x, __half y) { return __half2(x, y); }
HIP_BOTH __half2 __half2half2(__half x) { return __half2(x, x); }
HIP_BOTH __half2 __float2half2_rn(float x) { return __half2(__half(x)); }
HIP_BOTH __half2 __floats2half2_rn(float x, float y) { return __half2(__half(x), __half(y)); }
HIP_BOTH __half2 __float22half2_rn(float2 v) { return __half2(__half(v.x), __half(v.y)); }
HIP_BOTH float2 __half22float2(__half2 v) { return {(float)v.x, (float)v.y}; }
HIP_BOTH __half __low2half(__half2 v) { return v.x; }
HIP_BOTH __half __high2half(__half2 v) { return v.y; }
HIP_BOTH float __low2float(__half2 v) { return (float)v.x; }
HIP_BOTH float __high2float(__half2 v) { return (float)v.y; }

// Arithmetic and math functions
HIP_BOTH __half __hfma(__half a, __half b, __half c) {
    return __half((_Float16)__builtin_fmaf16(a.value, b.value, c.value));
}
HIP_BOTH __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    return __half2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}
HIP_BOTH __half __hneg(__half a) { return -a; }
HIP_BOTH __half2 __hneg2(__half2 a) { return __half2(-a.x, -a.y); }
HIP_BOTH __half __habs(__half a) { return __ushort_as_half(__half_as_ushort(a) & 0x7fff); }
HIP_BOTH bool __hisnan(__half a) { return a.value != a.value; }
HIP_BOTH __half2 __hisnan2(__half2 v) { return __hneu2(v, v); }
HIP_BOTH __half __hmax_nan(__half a, __half b) {
    return __hisnan(a) ? a : __hisnan(b) || b > a ? b : a;
}
HIP_BOTH __half __hmin_nan(__half a, __half b) {
    return __hisnan(a) ? a : __hisnan(b) || b < a ? b : a;
}
HIP_BOTH int __hisinf(__half a) {
    unsigned short bits = __half_as_ushort(a);
    return (bits & 0x7fff) != 0x7c00 ? 0 : bits & 0x8000 ? -1 : 1;
}
HIP_BOTH __half2 __hisinf2(__half2 v) {
    return __half2(__half(__hisinf(v.x)), __half(__hisinf(v.y)));
}
HIP_BOTH __half __hmax(__half a, __half b) { return __half(fmaxf((float)a, (float)b)); }
HIP_BOTH __half __hmin(__half a, __half b) { return __half(fminf((float)a, (float)b)); }
HIP_BOTH __half2 __habs2(__half2 v) { return __half2(__habs(v.x), __habs(v.y)); }
HIP_BOTH __half2 __h2div(__half2 a, __half2 b) { return __half2(a.x / b.x, a.y / b.y); }
HIP_BOTH __half2 __hmax2(__half2 a, __half2 b) {
    return __half2(__hmax(a.x, b.x), __hmax(a.y, b.y));
}
HIP_BOTH __half2 __hmin2(__half2 a, __half2 b) {
    return __half2(__hmin(a.x, b.x), __hmin(a.y, b.y));
}
#define HIP_HALF_MATH(name, function)                                                              \
    HIP_BOTH __half name(__half x) { return __half(function((float)x)); }                          \
    HIP_BOTH __half2 h2##function(__half2 v) { return __half2(name(v.x), name(v.y)); }
HIP_HALF_MATH(hceil, ceil)
HIP_HALF_MATH(hcos, cos)
HIP_HALF_MATH(hexp, exp)
HIP_HALF_MATH(hexp10, exp10)
HIP_HALF_MATH(hexp2, exp2)
HIP_HALF_MATH(hfloor, floor)
HIP_HALF_MATH(hlog, log)
HIP_HALF_MATH(hlog10, log10)
HIP_HALF_MATH(hlog2, log2)
HIP_HALF_MATH(hrint, rint)
HIP_HALF_MATH(hrsqrt, rsqrt)
HIP_HALF_MATH(hsin, sin)
HIP_HALF_MATH(hsqrt, sqrt)
HIP_HALF_MATH(htrunc, trunc)
#undef HIP_HALF_MATH
HIP_BOTH __half hrcp(__half x) { return __half(1 / (float)x); }
HIP_BOTH __half2 h2rcp(__half2 v) { return __half2(hrcp(v.x), hrcp(v.y)); }
HIP_BOTH __half __ldg(const __half *address) { return *address; }

// Parts of pairs, rearranged.
HIP_BOTH __half2 __lows2half2(__half2 a, __half2 b) { return __half2(a.x, b.x); }
HIP_BOTH __half2 __highs2half2(__half2 a, __half2 b) { return __half2(a.y, b.y); }
HIP_BOTH __half2 __lowhigh2highlow(__half2 v) { return __half2(v.y, v.x); }
HIP_BOTH __half2 __low2half2(__half2 v) { return __half2(v.x, v.x); }
HIP_BOTH __half2 __high2half2(__half2 v) { return __half2(v.y, v.y); }

// Results clamped to [0, 1]; NaN becomes 0.
HIP_BOTH __half hip_saturated(__half x) {
    return x.value > (_Float16)0 ? (x.value < (_Float16)1 ? x : __half(1.0f)) : __half(0.0f);
}
HIP_BOTH __half2 hip_saturated(__half2 v) {
    return __half2(hip_saturated(v.x), hip_saturated(v.y));
}
#define HIP_HALF_SATURATED(name)                                                                   \
    HIP_BOTH __half name##_sat(__half a, __half b) { return hip_saturated(name(a, b)); }           \
    HIP_BOTH __half2 name##2_sat(__half2 a, __half2 b) { return hip_saturated(name##2(a, b)); }
HIP_HALF_SATURATED(__hadd)
HIP_HALF_SATURATED(__hsub)
HIP_HALF_SATURATED(__hmul)
#undef HIP_HALF_SATURATED
HIP_BOTH __half __hfma_sat(__half a, __half b, __half c) { return hip_saturated(__hfma(a, b, c)); }
HIP_BOTH __half2 __hfma2_sat(__half2 a, __half2 b, __half2 c) {
    return hip_saturated(__hfma2(a, b, c));
}

HIP_DEVICE __half2 unsafeAtomicAdd(__half2 *address, __half2 value) {
#if defined(__gfx942__) || defined(__gfx950__)
    return __half2(
        __builtin_amdgcn_flat_atomic_fadd_v2f16((_Float16_2 *)address, (_Float16_2)value));
#else
    return hip_add_by_exchange(address, value);
#endif
}
HIP_DEVICE float amd_mixed_dot(__half2 a, __half2 b, float c, bool saturate) {
    float dot = __builtin_amdgcn_fdot2((_Float16_2)a, (_Float16_2)b, c, false);
    return saturate ? __saturatef(dot) : dot;
}
