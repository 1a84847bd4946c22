// dim3 and the short vectors: char2 to double4, their make_ functions and componentwise operators.
//
// Alignment follows HIP's documentation: a vector is aligned to its size, at most 16 bytes; a
// vector of three components is aligned to one component.
#pragma once

#include <device/keywords.h>

// The components of a vector, also as clang's own vector `data`. The struct comes first, so that
// braces initialise the components.
template <typename T, unsigned int n> struct HIP_vector_base;

template <typename T> struct HIP_vector_base<T, 1> {
    typedef T value_type;
    typedef T Native_vec_ __attribute__((ext_vector_type(1)));
    static constexpr int size = 1;
    union {
        struct {
            T x;
        };
        Native_vec_ data;
    };
    HIP_vector_base() = default;
    template <typename X, typename = decltype((T)X())>
    __host__ __device__ constexpr HIP_vector_base(X x) : x((T)x) {}
    __host__ __device__ T &operator[](int) { return x; }
    __host__ __device__ const T &operator[](int) const { return x; }
};

template <typename T> struct alignas(2 * sizeof(T)) HIP_vector_base<T, 2> {
    typedef T value_type;
    static constexpr int size = 2;
    typedef T wide __attribute__((ext_vector_type(2)));
    typedef wide Native_vec_ __attribute__((aligned(2 * sizeof(T))));
    union {
        struct {
            T x, y;
        };
        Native_vec_ data;
    };
    HIP_vector_base() = default;
    template <typename X, typename Y> __host__ __device__ constexpr HIP_vector_base(X x, Y y)
        : x((T)x), y((T)y) {}
    template <typename X, typename = decltype((T)X())>
    __host__ __device__ constexpr explicit HIP_vector_base(X value) : x((T)value), y((T)value) {}
    __host__ __device__ T &operator[](int i) { return i == 0 ? x : y; }
    __host__ __device__ const T &operator[](int i) const { return i == 0 ? x : y; }
};

template <typename T> struct HIP_vector_base<T, 3> {
    typedef T value_type;
    typedef T Native_vec_[3];
    static constexpr int size = 3;
    union {
        struct {
            T x, y, z;
        };
        Native_vec_ data;
    };
    HIP_vector_base() = default;
    template <typename X, typename Y, typename Z>
    __host__ __device__ constexpr HIP_vector_base(X x, Y y, Z z) : x((T)x), y((T)y), z((T)z) {}
    template <typename X, typename = decltype((T)X())>
    __host__ __device__ constexpr explicit HIP_vector_base(X value)
        : x((T)value), y((T)value), z((T)value) {}
    __host__ __device__ T &operator[](int i) { return i == 0 ? x : i == 1 ? y : z; }
    __host__ __device__ const T &operator[](int i) const { return i == 0 ? x : i == 1 ? y : z; }
};

template <typename T> struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16)
    HIP_vector_base<T, 4> {
    typedef T value_type;
    static constexpr int size = 4;
    typedef T wide __attribute__((ext_vector_type(4)));
    typedef wide Native_vec_ __attribute__((aligned(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16)));
    union {
        struct {
            T x, y, z, w;
        };
        Native_vec_ data;
    };
    HIP_vector_base() = default;
    template <typename X, typename Y, typename Z, typename W>
    __host__ __device__ constexpr HIP_vector_base(X x, Y y, Z z, W w)
        : x((T)x), y((T)y), z((T)z), w((T)w) {}
    template <typename X, typename = decltype((T)X())>
    __host__ __device__ constexpr explicit HIP_vector_base(X value)
        : x((T)value), y((T)value), z((T)value), w((T)value) {}
    __host__ __device__ T &operator[](int i) { return i < 2 ? (i == 0 ? x : y) : (i == 2 ? z : w); }
    __host__ __device__ const T &operator[](int i) const {
        return i < 2 ? (i == 0 ? x : y) : (i == 2 ? z : w);
    }
};

#ifdef __HIPCC_RTC__
#define HIP_STEP __device__
#else
#define HIP_STEP __host__ __device__
#endif

// Libraries specialise the base for other types and lengths, and the steps with these attributes.
template <typename T, unsigned int n> struct HIP_vector_type : HIP_vector_base<T, n> {
    HIP_vector_type() = default;
    using HIP_vector_base<T, n>::HIP_vector_base;
    HIP_STEP HIP_vector_type &operator++() noexcept { return *this += (T)1; }
    HIP_STEP HIP_vector_type &operator--() noexcept { return *this -= (T)1; }
    HIP_STEP HIP_vector_type operator++(int) noexcept {
        HIP_vector_type old = *this;
        ++*this;
        return old;
    }
    HIP_STEP HIP_vector_type operator--(int) noexcept {
        HIP_vector_type old = *this;
        --*this;
        return old;
    }
};
#undef HIP_STEP

#define HIP_VECTOR_TYPES(name, type)                                                               \
    typedef HIP_vector_type<type, 1> name##1;                                                      \
    typedef HIP_vector_type<type, 2> name##2;                                                      \
    typedef HIP_vector_type<type, 3> name##3;                                                      \
    typedef HIP_vector_type<type, 4> name##4;                                                      \
    __host__ __device__ static inline constexpr name##1 make_##name##1(type x) { return {x}; }     \
    __host__ __device__ static inline constexpr name##2 make_##name##2(type x, type y) {           \
        return {x, y};                                                                             \
    }                                                                                              \
    __host__ __device__ static inline constexpr name##3 make_##name##3(type x, type y, type z) {   \
        return {x, y, z};                                                                          \
    }                                                                                              \
    __host__ __device__ static inline constexpr name##4 make_##name##4(type x, type y, type z,     \
                                                                       type w) {                   \
        return {x, y, z, w};                                                                       \
    }
HIP_VECTOR_TYPES(char, signed char)
HIP_VECTOR_TYPES(uchar, unsigned char)
HIP_VECTOR_TYPES(short, short)
HIP_VECTOR_TYPES(ushort, unsigned short)
HIP_VECTOR_TYPES(int, int)
HIP_VECTOR_TYPES(uint, unsigned int)
HIP_VECTOR_TYPES(long, long)
HIP_VECTOR_TYPES(ulong, unsigned long)
HIP_VECTOR_TYPES(longlong, long long)
HIP_VECTOR_TYPES(ulonglong, unsigned long long)
HIP_VECTOR_TYPES(float, float)
HIP_VECTOR_TYPES(double, double)
#undef HIP_VECTOR_TYPES

// Applies to each component, and converts a number to a vector.
#define HIP_VECTOR_OPERATOR(op)                                                                    \
    template <typename T, unsigned int n> HIP_BOTH HIP_vector_type<T, n> operator op(              \
        HIP_vector_type<T, n> a, const HIP_vector_type<T, n> &b) {                                 \
        for (int i = 0; i < (int)n; i++) {                                                         \
            a.data[i] = a.data[i] op b.data[i];                                                    \
        }                                                                                          \
        return a;                                                                                  \
    }                                                                                              \
    template <typename T, unsigned int n, typename B, typename = decltype((T)B())>                 \
    HIP_BOTH HIP_vector_type<T, n> operator op(HIP_vector_type<T, n> a, B b) {                     \
        for (int i = 0; i < (int)n; i++) {                                                         \
            a.data[i] = a.data[i] op(T) b;                                                         \
        }                                                                                          \
        return a;                                                                                  \
    }                                                                                              \
    template <typename T, unsigned int n, typename A, typename = decltype((T)A())>                 \
    HIP_BOTH HIP_vector_type<T, n> operator op(A a, HIP_vector_type<T, n> b) {                     \
        for (int i = 0; i < (int)n; i++) {                                                         \
            b.data[i] = (T)a op b.data[i];                                                         \
        }                                                                                          \
        return b;                                                                                  \
    }                                                                                              \
    template <typename T, unsigned int n, typename B>                                              \
    HIP_BOTH HIP_vector_type<T, n> &operator op## = (HIP_vector_type<T, n> & a, const B &b) {      \
        return a = a op b;                                                                         \
    }
HIP_VECTOR_OPERATOR(+)
HIP_VECTOR_OPERATOR(-)
HIP_VECTOR_OPERATOR(*)
HIP_VECTOR_OPERATOR(/)
HIP_VECTOR_OPERATOR(%)
HIP_VECTOR_OPERATOR(&)
HIP_VECTOR_OPERATOR(|)
HIP_VECTOR_OPERATOR(^)
HIP_VECTOR_OPERATOR(<<)
HIP_VECTOR_OPERATOR(>>)
#undef HIP_VECTOR_OPERATOR

#define HIP_VECTOR_OPERATOR(op)                                                                    \
    template <typename T, unsigned int n>                                                          \
    HIP_BOTH HIP_vector_type<T, n> operator op(HIP_vector_type<T, n> a) {                          \
        for (int i = 0; i < (int)n; i++) {                                                         \
            a.data[i] = op a.data[i];                                                              \
        }                                                                                          \
        return a;                                                                                  \
    }
HIP_VECTOR_OPERATOR(-)
HIP_VECTOR_OPERATOR(~)
#undef HIP_VECTOR_OPERATOR

template <typename T, unsigned int n>
HIP_BOTH bool operator==(const HIP_vector_type<T, n> &a, const HIP_vector_type<T, n> &b) {
    bool equal = true;
    for (int i = 0; i < (int)n; i++) {
        equal &= a.data[i] == b.data[i];
    }
    return equal;
}

template <typename T, unsigned int n>
HIP_BOTH bool operator!=(const HIP_vector_type<T, n> &a, const HIP_vector_type<T, n> &b) {
    return !(a == b);
}

struct dim3 {
    unsigned int x, y, z;
    __host__ __device__ constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1)
        : x(x), y(y), z(z) {}
    __host__ __device__ constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    __host__ __device__ constexpr operator uint3() const { return {x, y, z}; }
};
