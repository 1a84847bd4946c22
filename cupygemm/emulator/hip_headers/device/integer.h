// Integer functions, and casts that preserve the bits.
#pragma once

#include <device/keywords.h>

HIP_DEVICE int __popc(unsigned int x) { return __builtin_popcount(x); }
HIP_DEVICE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
HIP_DEVICE int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned int)x); }
HIP_DEVICE int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
HIP_DEVICE int __ffs(unsigned int x) { return __builtin_ffs((int)x); }
HIP_DEVICE int __ffs(int x) { return __builtin_ffs(x); }
HIP_DEVICE int __ffsll(unsigned long long x) { return __builtin_ffsll((long long)x); }
HIP_DEVICE int __ffsll(long long x) { return __builtin_ffsll(x); }
HIP_DEVICE int __ffsll(unsigned long x) { return __builtin_ffsll((long long)x); }
HIP_DEVICE unsigned int __brev(unsigned int x) { return __builtin_bitreverse32(x); }
HIP_DEVICE unsigned long long __brevll(unsigned long long x) { return __builtin_bitreverse64(x); }
HIP_DEVICE int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
HIP_DEVICE unsigned int __umulhi(unsigned int a, unsigned int b) {
    return (unsigned int)((unsigned long long)a * b >> 32);
}
HIP_DEVICE long long __mul64hi(long long a, long long b) {
    return (long long)((__int128)a * b >> 64);
}
HIP_DEVICE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
HIP_DEVICE int __mul24(int a, int b) { return ((a << 8) >> 8) * ((b << 8) >> 8); }
HIP_DEVICE int __umul24(unsigned int a, unsigned int b) {
    return (int)((a & 0xffffff) * (b & 0xffffff));
}
HIP_DEVICE int __hadd(int a, int b) { return (int)(((long long)a + b) >> 1); }
HIP_DEVICE int __rhadd(int a, int b) { return (int)(((long long)a + b + 1) >> 1); }
HIP_DEVICE unsigned int __uhadd(unsigned int a, unsigned int b) {
    return (unsigned int)(((unsigned long long)a + b) >> 1);
}
HIP_DEVICE unsigned int __urhadd(unsigned int a, unsigned int b) {
    return (unsigned int)(((unsigned long long)a + b + 1) >> 1);
}
HIP_DEVICE unsigned int __sad(int a, int b, unsigned int c) {
    return c + (a > b ? (unsigned int)a - (unsigned int)b : (unsigned int)b - (unsigned int)a);
}
HIP_DEVICE unsigned int __usad(unsigned int a, unsigned int b, unsigned int c) {
    return c + (a > b ? a - b : b - a);
}
HIP_DEVICE unsigned int __byte_perm(unsigned int a, unsigned int b, unsigned int selector) {
    unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned int result = 0;
    for (int i = 0; i < 4; i++) {
        unsigned int which = selector >> (4 * i) & 7;
        result |= (unsigned int)(bytes >> (8 * which) & 0xff) << (8 * i);
    }
    return result;
}
HIP_DEVICE unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int shift) {
    return (unsigned int)(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}
HIP_DEVICE unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int shift) {
    return (unsigned int)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
HIP_DEVICE unsigned int __funnelshift_lc(unsigned int low, unsigned int high, unsigned int shift) {
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
HIP_DEVICE unsigned int __funnelshift_rc(unsigned int low, unsigned int high, unsigned int shift) {
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
HIP_DEVICE unsigned int __lastbit_u32_u32(unsigned int x) {
    return x == 0 ? ~0u : (unsigned int)__builtin_ctz(x);
}
HIP_DEVICE unsigned int __lastbit_u32_u64(unsigned long x) {
    return x == 0 ? ~0u : (unsigned int)__builtin_ctzl(x);
}
// The position of the offset-th set bit from `base` upwards, or downwards if `offset` is negative.
// For 0, `base` if its bit is set. -1 if there is none.
HIP_DEVICE int __fns64(unsigned long mask, unsigned int base, int offset) {
    unsigned long allowed = offset > 0   ? ~0ul << base
                            : offset < 0 ? ~0ul >> (63 - base)
                                         : 1ul << base;
    mask &= allowed;
    for (int left = offset > 0 ? offset : -offset; left > 1; left--)
        mask &= offset > 0 ? mask - 1 : ~(1ul << (63 - __builtin_clzg(mask, 64) & 63));
    if (mask == 0)
        return -1;
    return offset < 0 ? 63 - __builtin_clzl(mask) : __builtin_ctzl(mask);
}
HIP_DEVICE int __fns32(unsigned int mask, unsigned int base, int offset) {
    return __fns64(mask, base, offset);
}
HIP_DEVICE int __fns(unsigned int mask, unsigned int base, int offset) {
    return __fns64(mask, base, offset);
}

// Minimum, maximum and absolute value for the types for which HIP overloads them,
// on the host as well.
#define HIP_MIN_MAX(type)                                                                          \
    HIP_BOTH constexpr type min(type a, type b) { return a < b ? a : b; }                          \
    HIP_BOTH constexpr type max(type a, type b) { return a < b ? b : a; }
HIP_MIN_MAX(int)
HIP_MIN_MAX(unsigned int)
HIP_MIN_MAX(long)
HIP_MIN_MAX(unsigned long)
HIP_MIN_MAX(long long)
HIP_MIN_MAX(unsigned long long)
#undef HIP_MIN_MAX

// Narrower types are compared as they are if both are the same, and as int if not.
template <typename T> struct hip_narrow {};
template <> struct hip_narrow<char> {
    using type = char;
};
template <> struct hip_narrow<signed char> {
    using type = signed char;
};
template <> struct hip_narrow<unsigned char> {
    using type = unsigned char;
};
template <> struct hip_narrow<short> {
    using type = short;
};
template <> struct hip_narrow<unsigned short> {
    using type = unsigned short;
};
template <typename T> HIP_BOTH constexpr typename hip_narrow<T>::type min(T a, T b) {
    return a < b ? a : b;
}
template <typename T> HIP_BOTH constexpr typename hip_narrow<T>::type max(T a, T b) {
    return a < b ? b : a;
}

// Without these, mixed widths and signs would be ambiguous; they apply the usual arithmetic
// conversions.
#define HIP_MIN_MAX_MIXED(a_type, b_type)                                                          \
    HIP_BOTH constexpr auto min(a_type a, b_type b) -> decltype(a + b) {                           \
        return (decltype(a + b))a < (decltype(a + b))b ? a : b;                                    \
    }                                                                                              \
    HIP_BOTH constexpr auto max(a_type a, b_type b) -> decltype(a + b) {                           \
        return (decltype(a + b))a < (decltype(a + b))b ? b : a;                                    \
    }                                                                                              \
    HIP_BOTH constexpr auto min(b_type b, a_type a) -> decltype(a + b) { return min(a, b); }       \
    HIP_BOTH constexpr auto max(b_type b, a_type a) -> decltype(a + b) { return max(a, b); }
HIP_MIN_MAX_MIXED(int, unsigned int)
HIP_MIN_MAX_MIXED(int, long)
HIP_MIN_MAX_MIXED(int, unsigned long)
HIP_MIN_MAX_MIXED(int, long long)
HIP_MIN_MAX_MIXED(int, unsigned long long)
HIP_MIN_MAX_MIXED(unsigned int, long)
HIP_MIN_MAX_MIXED(unsigned int, unsigned long)
HIP_MIN_MAX_MIXED(unsigned int, long long)
HIP_MIN_MAX_MIXED(unsigned int, unsigned long long)
HIP_MIN_MAX_MIXED(long, unsigned long)
HIP_MIN_MAX_MIXED(long, long long)
HIP_MIN_MAX_MIXED(long, unsigned long long)
HIP_MIN_MAX_MIXED(unsigned long, long long)
HIP_MIN_MAX_MIXED(unsigned long, unsigned long long)
HIP_MIN_MAX_MIXED(long long, unsigned long long)
#undef HIP_MIN_MAX_MIXED

HIP_DEVICE constexpr int abs(int x) { return x < 0 ? -x : x; }
HIP_DEVICE constexpr long abs(long x) { return x < 0 ? -x : x; }
HIP_DEVICE constexpr long long abs(long long x) { return x < 0 ? -x : x; }
HIP_DEVICE constexpr long labs(long x) { return abs(x); }
HIP_DEVICE constexpr long long llabs(long long x) { return abs(x); }
HIP_DEVICE constexpr unsigned int umin(unsigned int a, unsigned int b) { return min(a, b); }
HIP_DEVICE constexpr unsigned int umax(unsigned int a, unsigned int b) { return max(a, b); }
HIP_DEVICE constexpr long long llmin(long long a, long long b) { return min(a, b); }
HIP_DEVICE constexpr long long llmax(long long a, long long b) { return max(a, b); }
HIP_DEVICE constexpr unsigned long long ullmin(unsigned long long a, unsigned long long b) {
    return min(a, b);
}
HIP_DEVICE constexpr unsigned long long ullmax(unsigned long long a, unsigned long long b) {
    return max(a, b);
}

HIP_DEVICE int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
HIP_DEVICE unsigned int __float_as_uint(float x) { return __builtin_bit_cast(unsigned int, x); }
HIP_DEVICE float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
HIP_DEVICE float __uint_as_float(unsigned int x) { return __builtin_bit_cast(float, x); }
HIP_DEVICE long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
HIP_DEVICE double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
HIP_DEVICE int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
HIP_DEVICE int __double2loint(double x) { return (int)__double_as_longlong(x); }
HIP_DEVICE double __hiloint2double(int high, int low) {
    return __longlong_as_double((long long)high << 32 | (unsigned int)low);
}

// Bits `offset` to `offset + width` of a number, and a number with these bits of another one.
HIP_DEVICE unsigned int __bitextract_u32(unsigned int x, unsigned int offset, unsigned int width) {
    offset &= 31, width &= 31;
    return x >> offset & ((1u << width) - 1);
}
HIP_DEVICE unsigned long long __bitextract_u64(unsigned long long x, unsigned int offset,
                                               unsigned int width) {
    offset &= 63, width &= 63;
    return x >> offset & ((1ull << width) - 1);
}
HIP_DEVICE unsigned int __bitinsert_u32(unsigned int x, unsigned int y, unsigned int offset,
                                        unsigned int width) {
    offset &= 31, width &= 31;
    unsigned int mask = (1u << width) - 1;
    return (x & ~(mask << offset)) | (y & mask) << offset;
}
HIP_DEVICE unsigned long long __bitinsert_u64(unsigned long long x, unsigned long long y,
                                              unsigned int offset, unsigned int width) {
    offset &= 63, width &= 63;
    unsigned long long mask = (1ull << width) - 1;
    return (x & ~(mask << offset)) | (y & mask) << offset;
}
