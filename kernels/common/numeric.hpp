// Element types as tags, with their sizes and the rounding from the accumulator.
//
// Kernels move operands as raw bits, so an element type is only a tag. The matrix instruction
// interprets the bits of an input, `Numeric<T>::round` produces the bits of an output, and
// `Numeric<T>::value` converts what an epilogue adds or multiplies by. Floats of up to 32 bits are
// summed in fp32, fp64 in fp64, and integers in i32.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

struct bf16 {};
struct f16 {};
struct f32 {};
struct tf32 {};   // f32 in memory, of which the instruction reads only the leading bits
struct f64 {};    // integers are their own tags
struct e4m3fn {}; // OCP 8-bit floats: 4 exponent and 3 fraction bits, or 5 and 2
struct e5m2 {};
struct e4m3fnuz {}; // FNUZ variants: the bias is larger by one, and the bits of -0 mean NaN
struct e5m2fnuz {};
struct e2m1x2 {}; // two OCP 4-bit floats, the first in the low half; k counts such pairs
struct c64 {};    // complex numbers of two f32 or two f64, the real part first
struct c128 {};

template <class Real> struct Complex {
    Real re, im;
};
struct u64_pair {
    u64 low, high;
};

template <class T> struct Numeric;

template <> struct Numeric<bf16> {
    using Bits = u16;
    static constexpr int bytes = 2;
    CUPYGEMM_INLINE static Bits round(float x) { return bf16_bits(x); }
    CUPYGEMM_INLINE static float value(Bits bits) {
        return float_of_bits(static_cast<u32>(bits) << 16);
    }
};

template <> struct Numeric<f16> {
    using Bits = u16;
    static constexpr int bytes = 2;
    CUPYGEMM_INLINE static Bits round(float x) { return f16_bits(x); }
    CUPYGEMM_INLINE static float value(Bits bits) { return float_of_f16_bits(bits); }
};

template <> struct Numeric<f32> {
    using Bits = u32;
    static constexpr int bytes = 4;
    CUPYGEMM_INLINE static Bits round(float x) { return f32_bits(x); }
    CUPYGEMM_INLINE static float value(Bits bits) { return float_of_bits(bits); }
};

template <> struct Numeric<tf32> {
    static constexpr int bytes = 4; // an operand type, never an output type
};

template <> struct Numeric<f64> {
    using Bits = u64;
    static constexpr int bytes = 8;
    CUPYGEMM_INLINE static Bits round(double x) { return f64_bits(x); }
    CUPYGEMM_INLINE static double value(Bits bits) { return double_of_bits(bits); }
};

// Sums wrap around, as NumPy's do. The low 8 bits of a product depend only on the low 8 bits of its
// factors, so products of unsigned bytes are computed as those of i8. `Unsigned` has the size of
// `Integer`.
template <class Integer, class Unsigned> struct IntegerNumeric {
    using Bits = Unsigned;
    static constexpr int bytes = sizeof(Integer);
    CUPYGEMM_INLINE static Bits round(i32 x) { return static_cast<Bits>(x); }
    CUPYGEMM_INLINE static i32 value(Bits bits) { return static_cast<Integer>(bits); }
};

template <> struct Numeric<i32> : IntegerNumeric<i32, u32> {};
template <> struct Numeric<i8> : IntegerNumeric<i8, u8> {};
template <> struct Numeric<u8> : IntegerNumeric<u8, u8> {}; // a result type of epilogues only

// Clamp to the largest finite value of an 8-bit float, infinities included; NaN stays NaN.
CUPYGEMM_INLINE float saturated(float x, float largest) {
    return x > largest ? largest : x < -largest ? -largest : x;
}

template <> struct Numeric<e4m3fn> {
    using Bits = u8;
    static constexpr int bytes = 1;
    CUPYGEMM_INLINE static Bits round(float x) { return e4m3_bits(saturated(x, 448)); }
};

template <> struct Numeric<e5m2> {
    using Bits = u8;
    static constexpr int bytes = 1;
    CUPYGEMM_INLINE static Bits round(float x) { return e5m2_bits(saturated(x, 57344)); }
};

template <> struct Numeric<e4m3fnuz> {
    using Bits = u8;
    static constexpr int bytes = 1;
    CUPYGEMM_INLINE static Bits round(float x) { return e4m3_bits(saturated(x, 240)); }
};

template <> struct Numeric<e5m2fnuz> {
    using Bits = u8;
    static constexpr int bytes = 1;
    CUPYGEMM_INLINE static Bits round(float x) { return e5m2_bits(saturated(x, 57344)); }
};

template <> struct Numeric<e2m1x2> {
    static constexpr int bytes = 1; // an operand type, never an output type
};

template <> struct Numeric<c64> {
    using Bits = u64;
    static constexpr int bytes = 8;
    template <class Real> CUPYGEMM_INLINE static Bits round(Complex<Real> x) {
        return static_cast<u64>(f32_bits(static_cast<float>(x.im))) << 32 |
               f32_bits(static_cast<float>(x.re));
    }
};

template <> struct Numeric<c128> {
    using Bits = u64_pair;
    static constexpr int bytes = 16;
    CUPYGEMM_INLINE static Bits round(Complex<double> x) {
        return {f64_bits(x.re), f64_bits(x.im)};
    }
};

template <class T, class U> struct IsSame {
    static constexpr bool value = false;
};
template <class T> struct IsSame<T, T> {
    static constexpr bool value = true;
};

// Tags of floats are structs.
template <class T> struct IsInteger {
    static constexpr bool value = !__is_class(T);
};

CUPYGEMM_INLINE constexpr bool is_power_of_two(int x) { return x > 0 && (x & (x - 1)) == 0; }

template <class T> CUPYGEMM_INLINE constexpr T ceil_div(T x, T y) { return (x + y - 1) / y; }

template <class T> CUPYGEMM_INLINE constexpr T minimum(T x, T y) { return x < y ? x : y; }

} // namespace cupygemm
