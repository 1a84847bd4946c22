// dim3 and the short vectors: char2 to double4, their make_ functions and componentwise operators.
//
// Alignment follows HIP's documentation: a vector is aligned to its size, at most 16 bytes; a
// vector of three components is aligned to one component.
#pragma once

#include <device/keywords.h>

template <typename T, int n> struct hip_vector;

template <typename T> struct hip_vector<T, 1> {
    typedef T value_type;
    static constexpr int size = 1;
    T x;
    __device__ T &operator[](int) { return x; }
    __device__ const T &operator[](int) const { return x; }
};

template <typename T> struct alignas(2 * sizeof(T)) hip_vector<T, 2> {
    typedef T value_type;
    static constexpr int size = 2;
    T x, y;
    __device__ T &operator[](int i) { return i == 0 ? x : y; }
    __device__ const T &operator[](int i) const { return i == 0 ? x : y; }
};

template <typename T> struct hip_vector<T, 3> {
    typedef T value_type;
    static constexpr int size = 3;
    T x, y, z;
    __device__ T &operator[](int i) { return i == 0 ? x : i == 1 ? y : z; }
    __device__ const T &operator[](int i) const { return i == 0 ? x : i == 1 ? y : z; }
};

template <typename T> struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) hip_vector<T, 4> {
    typedef T value_type;
    static constexpr int size = 4;
    T x, y, z, w;
    __device__ T &operator[](int i) { return i < 2 ? (i == 0 ? x : y) : (i == 2 ? z : w); }
    __device__ const T &operator[](int i) const {
        return i < 2 ? (i == 0 ? x : y) : (i == 2 ? z : w);
    }
};

#define HIP_VECTOR_TYPES(name, type)                                                               \
    typedef hip_vector<type, 1> name##1;                                                           \
    typedef hip_vector<type, 2> name##2;                                                           \
    typedef hip_vector<type, 3> name##3;                                                           \
    typedef hip_vector<type, 4> name##4;                                                           \
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

#define HIP_VECTOR_OPERATOR(op)                                                                    \
    template <typename T, int n>                                                                   \
    HIP_DEVICE hip_vector<T, n> operator op(hip_vector<T, n> a, hip_vector<T, n> b) {              \
        for (int i = 0; i < n; i++) {                                                              \
            a[i] = a[i] op b[i];                                                                   \
        }                                                                                          \
        return a;                                                                                  \
    }                                                                                              \
    template <typename T, int n>                                                                   \
    HIP_DEVICE hip_vector<T, n> operator op(hip_vector<T, n> a, T b) {                             \
        for (int i = 0; i < n; i++) {                                                              \
            a[i] = a[i] op b;                                                                      \
        }                                                                                          \
        return a;                                                                                  \
    }                                                                                              \
    template <typename T, int n>                                                                   \
    HIP_DEVICE hip_vector<T, n> operator op(T a, hip_vector<T, n> b) {                             \
        for (int i = 0; i < n; i++) {                                                              \
            b[i] = a op b[i];                                                                      \
        }                                                                                          \
        return b;                                                                                  \
    }                                                                                              \
    template <typename T, int n, typename B> HIP_DEVICE hip_vector<T, n> &operator op## =          \
        (hip_vector<T, n> & a, const B &b) {                                                       \
        return a = a op b;                                                                         \
    }
HIP_VECTOR_OPERATOR(+)
HIP_VECTOR_OPERATOR(-)
HIP_VECTOR_OPERATOR(*)
HIP_VECTOR_OPERATOR(/)
#undef HIP_VECTOR_OPERATOR

template <typename T, int n> HIP_DEVICE hip_vector<T, n> operator-(hip_vector<T, n> a) {
    for (int i = 0; i < n; i++) {
        a[i] = -a[i];
    }
    return a;
}

template <typename T, int n> HIP_DEVICE bool operator==(hip_vector<T, n> a, hip_vector<T, n> b) {
    bool equal = true;
    for (int i = 0; i < n; i++) {
        equal &= a[i] == b[i];
    }
    return equal;
}

template <typename T, int n> HIP_DEVICE bool operator!=(hip_vector<T, n> a, hip_vector<T, n> b) {
    return !(a == b);
}

struct dim3 {
    unsigned int x, y, z;
    __host__ __device__ constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1)
        : x(x), y(y), z(z) {}
    __host__ __device__ constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    __host__ __device__ constexpr operator uint3() const { return {x, y, z}; }
};
