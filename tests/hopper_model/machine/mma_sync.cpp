// mma.sync: the lanes of a warp contribute fragments, and each lane receives its sums.
//
// The instruction is synchronous: no lane continues before all lanes have arrived. Products are
// added one after another, and each sum is rounded; but sums of tf32 products are truncated.
// Sources: PTX ISA 9.0, "Matrix Fragments for mma.m16n8k8" and "Matrix Fragments for mma.m16n8k16";
// Khattak and Mikaitis, "Accurate models of NVIDIA tensor cores", 2025.
#include "numbers.hpp"
#include "ptx.hpp"

namespace hopper_model {

namespace {

double real(u64 bits) { return __builtin_bit_cast(double, bits); }

// Show a lane's registers of A, and then those of B, to the warp. Return those of all lanes.
auto &shared_fragments(Arguments &args, u32 of_a, u32 of_b) {
    WarpMeeting &warp = running->block->warps[running->index / warp_size];
    const u32 lane = running->index % warp_size;
    auto &value = warp.value[warp.generation & 1];
    for (u32 i = 0; i < of_a; ++i)
        value[lane][i] = args.value(1, i);
    for (u32 i = 0; i < of_b; ++i)
        value[lane][of_a + i] = args.value(2, i);
    meet();
    return value;
}

// Lane 4 g + t has rows g and g + 8 of A in turn, and column g of B, at k = t and t + 4.
void multiply(Arguments &args) {
    constexpr u32 depth = 8, of_a = 4, of_b = 2;
    const auto &value = shared_fragments(args, of_a, of_b);
    const u32 lane = running->index % warp_size;
    const u32 g = lane / 4, t = lane % 4;
    for (u32 i = 0; i < 4; ++i) {
        const u32 below = i / 2, column = 2 * t + i % 2;
        double sum = real(args.value(3, i));
        for (u32 k = 0; k < depth; ++k) {
            const double a = real(value[4 * g + k % 4][k / 4 * 2 + below]);
            const double b = real(value[4 * column + k % 4][of_a + k / 4]);
            sum = __builtin_fma(a, b, sum);
        }
        args.set(0, __builtin_bit_cast(u64, sum), i);
    }
}

// The sum of some numbers as tensor cores compute it: all are truncated to two bits below the last
// place of the largest, and so is their sum to fp32.
template <u32 count> float truncated_sum(const double (&terms)[count]) {
    double largest = 0, sum = 0;
    for (const double term : terms) {
        largest = __builtin_fmax(largest, __builtin_fabs(term));
        sum += term;
    }
    if (!(largest >= 0x1p-100 && largest < __builtin_inf())) // nothing is truncated
        return static_cast<float>(sum);
    const double unit = __builtin_ldexp(1, __builtin_ilogb(largest) - 25);
    sum = 0;
    for (const double term : terms)
        sum += __builtin_trunc(term / unit);
    constexpr u64 lost = (1ull << 29) - 1; // bits of fp64 that fp32 lacks
    return static_cast<float>(real(__builtin_bit_cast(u64, sum) & ~lost) * unit);
}

// tf32 numbers that lie alike, with sums in fp32. The low bits of the registers are not read.
void multiply_tf32(Arguments &args) {
    constexpr u32 depth = 8, of_a = 4, of_b = 2;
    const auto &value = shared_fragments(args, of_a, of_b);
    const u32 lane = running->index % warp_size;
    const auto number = [](u64 bits) {
        return __builtin_bit_cast(float, static_cast<u32>(bits) & ~0x1fffu);
    };
    const u32 g = lane / 4, t = lane % 4;
    for (u32 i = 0; i < 4; ++i) {
        const u32 below = i / 2, column = 2 * t + i % 2;
        double terms[depth + 1] = {args.real(3, i)};
        for (u32 k = 0; k < depth; ++k)
            terms[k + 1] = static_cast<double>(number(value[4 * g + k % 4][k / 4 * 2 + below])) *
                           number(value[4 * column + k % 4][of_a + k / 4]);
        args.set(0, __builtin_bit_cast(u32, truncated_sum(terms)), i);
    }
}

// 16-bit floats, two in a register, with sums in fp32. Lane 4 g + t has rows g and g + 8 of A in
// turn, and column g of B, at k = 2 t and 2 t + 1, and then at 8 more.
void multiply_halves(Arguments &args) {
    constexpr u32 depth = 16, of_a = 4, of_b = 2;
    const auto &value = shared_fragments(args, of_a, of_b);
    const u32 lane = running->index % warp_size;
    const Decoder decoded = decoder_of(args.has("bf16") ? "bf16" : "f16");
    const u32 g = lane / 4, t = lane % 4;
    for (u32 i = 0; i < 4; ++i) {
        const u32 below = i / 2, column = 2 * t + i % 2;
        float sum = args.real(3, i);
        for (u32 k = 0; k < depth; ++k) {
            const u32 owner = k % 8 / 2, shift = k % 2 * 16;
            const u64 a = value[4 * g + owner][k / 8 * 2 + below] >> shift;
            const u64 b = value[4 * column + owner][of_a + k / 8] >> shift;
            sum += decoded(a & 0xffff) * decoded(b & 0xffff);
        }
        args.set(0, __builtin_bit_cast(u32, sum), i);
    }
}

} // namespace

const Opcode mma_sync_opcodes[] = {
    {"mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64", multiply},
    {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", multiply_tf32},
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", multiply_halves},
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", multiply_halves},
    {nullptr, nullptr},
};

} // namespace hopper_model
