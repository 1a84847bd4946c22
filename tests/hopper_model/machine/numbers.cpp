// Number formats, and the instructions that convert and approximate numbers.
//
// ex2.approx and rcp.approx have the largest error that is allowed, 2 and 1 units in the last
// place. A hash of the argument chooses its sign. Powers of two are exact, and denormals are
// flushed.
// Sources: PTX ISA 9.0, "cvt" and "Fundamental Types: alternate floating-point data formats"; CUDA
// Programming Guide, "Mathematical Functions", for exp2f and for 1/x with -prec-div=false.
#include "numbers.hpp"
#include "ptx.hpp"

#include <math.h>

namespace hopper_model {

namespace {

float of_bits(u32 bits) { return __builtin_bit_cast(float, bits); }
u32 to_bits(float x) { return __builtin_bit_cast(u32, x); }

float half(u32 bits) { return __builtin_bit_cast(_Float16, static_cast<u16>(bits)); }
float brain(u32 bits) { return of_bits(bits << 16); }
float tf32(u32 bits) { return of_bits(bits & ~0x1fffu); } // wgmma reads the first 19 bits
float signed_byte(u32 bits) { return static_cast<signed char>(bits); }

// An 8-bit float of the OCP formats.
float small(u32 bits, u32 fraction_bits, i32 bias) {
    const u32 fraction = bits & ((1u << fraction_bits) - 1);
    const i32 exponent =
        static_cast<i32>(bits >> fraction_bits & ((1u << (7 - fraction_bits)) - 1));
    const float sign = bits & 0x80 ? -1.0f : 1.0f;
    const float unit =
        ldexpf(1, (exponent ? exponent : 1) - bias - static_cast<i32>(fraction_bits));
    return sign * unit * static_cast<float>(fraction + (exponent ? 1u << fraction_bits : 0));
}

struct Bytes {
    float value[256];
};
Bytes e4m3_values() {
    Bytes table;
    for (u32 bits = 0; bits < 256; ++bits)
        table.value[bits] = (bits & 0x7f) == 0x7f ? NAN : small(bits, 3, 7);
    return table;
}
Bytes e5m2_values() {
    Bytes table;
    for (u32 bits = 0; bits < 256; ++bits) {
        table.value[bits] = small(bits, 2, 15);
        if ((bits & 0x7c) == 0x7c)
            table.value[bits] = bits & 3 ? NAN : bits & 0x80 ? -INFINITY : INFINITY;
    }
    return table;
}
float e4m3(u32 bits) {
    static const Bytes table = e4m3_values();
    return table.value[bits];
}
float e5m2(u32 bits) {
    static const Bytes table = e5m2_values();
    return table.value[bits];
}

struct Format {
    const char *name;
    Decoder decoder;
    u32 bytes;
};
const Format formats[] = {{"f16", half, 2},       {"bf16", brain, 2}, {"tf32", tf32, 4},
                          {"s8", signed_byte, 1}, {"e4m3", e4m3, 1},  {"e5m2", e5m2, 1}};

const Format &format_of(const char *name) {
    for (const Format &format : formats)
        if (strcmp(format.name, name) == 0)
            return format;
    fail("the model has no numbers of %s", name);
}

// -- Instructions ---------------------------------------------------------------------------------

u32 brain_bits(float x) {
    if (x != x)
        return 0x7fff;
    const u32 bits = to_bits(x);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
u32 half_bits(float x) {
    return x != x ? 0x7fff : __builtin_bit_cast(u16, static_cast<_Float16>(x));
}
// The code of an 8-bit float: rounded to nearest, ties to even, and saturated. The codes of numbers
// that are not negative ascend with the numbers.
u32 byte_bits(float x, Decoder decoder, u32 largest) {
    if (x != x)
        return 0x7f;
    const float size = fabsf(x);
    u32 code = largest;
    while (decoder(code) > size)
        --code;
    if (code < largest) {
        const float middle = (decoder(code) + decoder(code + 1)) / 2;
        code += size > middle || (size == middle && code % 2);
    }
    return code | (signbit(x) ? 0x80 : 0);
}
u32 e4m3_bits(float x) { return byte_bits(x, e4m3, 0x7e); }
u32 e5m2_bits(float x) { return byte_bits(x, e5m2, 0x7b); }
float flushed(float x) { return fabsf(x) < 1.17549435e-38f ? copysignf(0, x) : x; }

void to_brain(Arguments &args) { args.set(0, brain_bits(args.real(1))); }
void to_half(Arguments &args) { args.set(0, half_bits(args.real(1))); }
void to_brain_pair(Arguments &args) { // the first source goes to the upper half
    args.set(0, brain_bits(args.real(1)) << 16 | brain_bits(args.real(2)));
}
void to_half_pair(Arguments &args) {
    args.set(0, half_bits(args.real(1)) << 16 | half_bits(args.real(2)));
}
void to_e4m3_pair(Arguments &args) {
    args.set(0, e4m3_bits(args.real(1)) << 8 | e4m3_bits(args.real(2)));
}
void to_e5m2_pair(Arguments &args) {
    args.set(0, e5m2_bits(args.real(1)) << 8 | e5m2_bits(args.real(2)));
}
void to_nearest_integer(Arguments &args) {
    const float x = args.real(1), nearest = rintf(x);
    const i32 n = nearest >= 2147483648.0f   ? 2147483647
                  : nearest < -2147483648.0f ? -2147483647 - 1
                  : x != x                   ? 0
                                             : static_cast<i32>(nearest);
    args.set(0, static_cast<u32>(n));
}
// The second source goes to the lowest byte, and the lower half of the third one above both.
void pack_saturated(Arguments &args) {
    const i32 low = args.has(".u8") ? 0 : -128, high = args.has(".u8") ? 255 : 127;
    u32 bits = static_cast<u32>(args.value(3)) << 16;
    for (u32 i = 0; i < 2; ++i) {
        const i32 n = static_cast<i32>(args.value(2 - i));
        bits |= (static_cast<u32>(n < low ? low : n > high ? high : n) & 0xff) << 8 * i;
    }
    args.set(0, bits);
}
// Each hexadecimal digit of the last operand selects a byte of the first two operands.
void permute(Arguments &args) {
    const u64 bytes = args.value(2) << 32 | static_cast<u32>(args.value(1));
    u32 bits = 0;
    for (u32 i = 0; i < 4; ++i)
        bits |= static_cast<u32>(bytes >> (args.value(3) >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    args.set(0, bits);
}
// The upper 20 bits of the fraction are right, and the others are zeros.
void approximate_inverse(Arguments &args) {
    const u64 bits = __builtin_bit_cast(u64, 1 / __builtin_bit_cast(double, args.value(1)));
    args.set(0, bits >> 32 << 32);
}
void approximate_inverse_root(Arguments &args) {
    const double root = __builtin_sqrt(__builtin_bit_cast(double, args.value(1)));
    args.set(0, __builtin_bit_cast(u64, 1 / root) >> 32 << 32);
}
void from_half(Arguments &args) { args.set_real(0, half(static_cast<u32>(args.value(1)))); }
void to_tf32(Arguments &args) { // ties away from zero
    const u32 bits = to_bits(args.real(1));
    args.set(0, args.real(1) != args.real(1) ? 0x7fffffff : (bits + 0x1000) & ~0x1fffu);
}
// The nearest float, moved by some units; a hash of the argument chooses the direction.
float off(double exact, float argument, double units) {
    const float nearest = static_cast<float>(exact);
    if (isinf(nearest))
        return nearest;
    const double unit = static_cast<double>(nextafterf(nearest, INFINITY)) - nearest;
    const bool is_down = to_bits(argument) * 2654435761u >> 31;
    return flushed(static_cast<float>(exact + (is_down ? -units : units) * unit));
}

void maximum_or_nan(Arguments &args) {
    const float x = args.real(1), y = args.real(2);
    args.set_real(0, isnan(x) || isnan(y) ? NAN : x > y || (x == y && !signbit(x)) ? x : y);
}

void exponential(Arguments &args) {
    const float x = flushed(args.real(1));
    args.set_real(0, x == rintf(x) ? flushed(exp2f(x)) : off(exp2(x), x, 1.5));
}
void reciprocal(Arguments &args) {
    const float x = flushed(args.real(1));
    const bool is_power = !(to_bits(x) & 0x7fffff);
    args.set_real(0, is_power ? flushed(1 / x) : off(1.0 / static_cast<double>(x), x, 0.5));
}

} // namespace

Decoder decoder_of(const char *ptx_type) { return format_of(ptx_type).decoder; }
u32 decoded_bytes(const char *ptx_type) { return format_of(ptx_type).bytes; }

const Opcode conversion_opcodes[] = {
    {"cvt.rn.bf16.f32", to_brain},
    {"cvt.rn.f16.f32", to_half},
    {"cvt.rn.bf16x2.f32", to_brain_pair},
    {"cvt.rn.f16x2.f32", to_half_pair},
    {"cvt.rn.satfinite.e4m3x2.f32", to_e4m3_pair},
    {"cvt.rn.satfinite.e5m2x2.f32", to_e5m2_pair},
    {"cvt.f32.f16", from_half},
    {"cvt.rna.tf32.f32", to_tf32},
    {"cvt.rni.s32.f32", to_nearest_integer},
    {"cvt.pack.sat.s8.s32.b32", pack_saturated},
    {"cvt.pack.sat.u8.s32.b32", pack_saturated},
    {"rcp.approx.ftz.f64", approximate_inverse},
    {"rsqrt.approx.ftz.f64", approximate_inverse_root},
    {"prmt.b32", permute},
    {"max.NaN.f32", maximum_or_nan},
    {"ex2.approx.ftz.f32", exponential},
    {"rcp.approx.ftz.f32", reciprocal},
    {nullptr, nullptr},
};

} // namespace hopper_model
