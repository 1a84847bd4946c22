// Device-side printf. A call writes one record, its format and its arguments, into a buffer that
// the emulated device reads when the launch ends; `device_printf.py` formats it.
//
//     buffer   used, capacity, then records
//     record   bytes, arguments, the format as a string, then the arguments
//     value    kind (0 signed, 1 unsigned, 2 double, 3 string), bits; or a string's length and text
// All are 64-bit words; text is padded with zeros. Each lane writes its own record: the lanes of a
// wave print in order.
#pragma once

#include <device/keywords.h>

namespace cupygemm_printf {
using word = unsigned long long;

struct buffer {
    word used, capacity;
    word records[1];
};

// The loader sets it in programs that have it, which are those that call printf.
template <typename T> struct loaded {
    static __device__ buffer *place;
};
template <typename T> __device__ buffer *loaded<T>::place;

enum : word { is_signed, is_unsigned, is_double, is_string };

HIP_DEVICE word length(const char *text) {
    word n = 0;
    if (text != nullptr)
        while (text[n] != 0)
            n++;
    return n;
}

HIP_DEVICE word words(const char *text) { return 2 + (length(text) + 7) / 8; }
HIP_DEVICE word words(char *text) { return words(static_cast<const char *>(text)); }
template <typename T> HIP_DEVICE word words(T) { return 2; }

HIP_DEVICE word *put(word *to, word kind, word bits) {
    to[0] = kind;
    to[1] = bits;
    return to + 2;
}

HIP_DEVICE word *put(word *to, const char *text) {
    const word n = length(text);
    to = put(to, is_string, text == nullptr ? ~word{0} : n);
    for (word i = 0; i < (n + 7) / 8; i++) {
        word bits = 0;
        for (word j = 8 * i; j < n && j < 8 * i + 8; j++)
            bits |= word{static_cast<unsigned char>(text[j])} << 8 * (j % 8);
        *to++ = bits;
    }
    return to;
}
HIP_DEVICE word *put(word *to, char *text) { return put(to, static_cast<const char *>(text)); }

template <typename T> HIP_DEVICE word *put(word *to, T *pointer) {
    return put(to, is_unsigned, reinterpret_cast<word>(pointer));
}

HIP_DEVICE word *put(word *to, bool value) { return put(to, is_unsigned, value); }

// Other values than pointers become a double or an integer, like arguments of variadic functions.
template <typename T> HIP_DEVICE word *put(word *to, T value) {
    if (static_cast<T>(0.5) != static_cast<T>(0))
        return put(to, is_double, __builtin_bit_cast(word, static_cast<double>(value)));
    const bool sign = static_cast<T>(-1) < static_cast<T>(0);
    return put(to, sign ? is_signed : is_unsigned, static_cast<word>(value));
}
} // namespace cupygemm_printf

// Return the number of arguments, or -1 if the buffer is full.
template <typename... Args>
__attribute__((noinline)) __device__ int cupygemm_print(const char *format, Args... args) {
    using namespace cupygemm_printf;
    word size = 2 + words(format);
    const word of_args[] = {word{0}, words(args)...};
    for (word n : of_args)
        size += n;
    buffer *to = loaded<void>::place;
    const word first =
        __hip_atomic_fetch_add(&to->used, size, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    if (first + size > to->capacity)
        return -1;
    word *at = to->records + first;
    at = put(at, size, sizeof...(args));
    at = put(at, format);
    const int done[] = {0, (at = put(at, args), 0)...};
    (void)done;
    return sizeof...(args);
}

template <typename... Args>
__host__ __device__ __forceinline__ int printf(const char *format, Args... args) {
#ifdef __HIP_DEVICE_COMPILE__
    return cupygemm_print(format, args...);
#else
    return __builtin_printf(format, args...); // the C library's
#endif
}

// Without arguments, the C library's function would match too, and be preferred to a template.
HIP_DEVICE int printf(const char *format) { return cupygemm_print(format); }
