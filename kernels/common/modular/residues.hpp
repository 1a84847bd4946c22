// Scales vectors by powers of two, rounds them to integers, and stores their residues.
//
// A tile passes through shared memory, because elements are adjacent in memory along k or across
// vectors, while residues are always adjacent along k, the best layout for both operands of int8
// products:
//
//   load, scale, round -> shared memory | 4 elements along k -> one word for each modulus
#include "common/modular/moduli.hpp"
#include "config.hpp"

namespace cupygemm {

struct ResiduesArgs {
    u64 x;                           // element 0 of the first vector of the first matrix
    i64 vector_stride, along, batch; // elements between vectors, along k, and between matrices
    u64 exponents;                   // i32, (matrix, vector)
    u64 residues;                    // i8, (matrix, modulus, vector, pitch)
    i32 vectors, k, pitch;           // the elements from k up to the pitch become zero
    i32 unused;
};
static_assert(sizeof(ResiduesArgs) == 64, "ResiduesArgs must match what the launcher packs");

constexpr u32 threads = Config::threads, count = Config::moduli;
constexpr u32 tile_vectors = 32, tile_k = 128;
constexpr u32 per_word = 4;
static_assert(tile_vectors * tile_k % (threads * per_word) == 0,
              "a tile must divide into words for all threads");

// An integer below 2^63 as digits of 22 bits, whose products with residues fit into 32 bits.
struct Digits {
    static constexpr u32 bits = 22, mask = (1u << bits) - 1;

    i32 low, middle, high; // the sign is that of the highest

    CUPYGEMM_INLINE void set(i64 x) {
        low = static_cast<i32>(x & mask);
        middle = static_cast<i32>(x >> bits & mask);
        high = static_cast<i32>(x >> (2 * bits));
    }
    template <class Modulus> CUPYGEMM_INLINE i32 residue(Modulus) const {
        constexpr i32 of_middle = power_residue(bits, Modulus::value);
        constexpr i32 of_high = power_residue(2 * bits, Modulus::value);
        return Modulus::residue(low + middle * of_middle + high * of_high);
    }
};

// Stores the residues of four integers that are adjacent along k, as one word.
struct StoreWord {
    const Digits (&digits)[per_word];
    i8 *target; // of the first modulus
    i64 plane;  // bytes between moduli

    template <class Modulus> CUPYGEMM_INLINE void operator()(Modulus modulus) const {
        u32 word = 0;
#pragma unroll
        for (u32 e = 0; e < per_word; ++e)
            word |= static_cast<u32>(digits[e].residue(modulus) & 255) << (8 * e);
        *reinterpret_cast<u32 *>(target + Modulus::index * plane) = word;
    }
};

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads) cupygemm_residues(const cupygemm::ResiduesArgs args) {
    using namespace cupygemm;
    __shared__ double tile[tile_vectors][tile_k + 1];
    const u32 thread = local_thread();
    const u32 tiles_k = (static_cast<u32>(args.pitch) + tile_k - 1) / tile_k;
    const u32 first_k = group_index_x() % tiles_k * tile_k;
    const u32 first_vector = group_index_x() / tiles_k * tile_vectors;
    const i64 matrix = group_index_y();
    const Config::Scalar *x =
        reinterpret_cast<const Config::Scalar *>(args.x) + matrix * args.batch;
    const i32 *exponents = reinterpret_cast<const i32 *>(args.exponents) + matrix * args.vectors;

#pragma unroll 4
    for (u32 at = thread; at < tile_vectors * tile_k; at += threads) {
        const u32 member = Config::along_k ? at / tile_k : at % tile_vectors;
        const u32 place = Config::along_k ? at % tile_k : at / tile_vectors;
        const i32 vector = static_cast<i32>(first_vector + member);
        const i32 i = static_cast<i32>(first_k + place);
        double value = 0;
        if (vector < args.vectors && i < args.k) {
            const i32 exponent = exponents[vector];
            value = static_cast<double>(x[vector * args.vector_stride + i * args.along]);
            value = nearest_integer(times_power_of_two(value, exponent));
            value = exponent == not_finite ? 0 : value;
        }
        tile[member][place] = value;
    }
    workgroup_barrier(); // the integers are in shared memory

    constexpr u32 words = tile_k / per_word;
    const i64 plane = static_cast<i64>(args.vectors) * args.pitch;
    i8 *const stack = reinterpret_cast<i8 *>(args.residues) + matrix * count * plane;
#pragma unroll 1
    for (u32 at = thread; at < tile_vectors * words; at += threads) {
        const u32 member = at / words, place = at % words * per_word;
        const i32 vector = static_cast<i32>(first_vector + member);
        const i32 i = static_cast<i32>(first_k + place);
        if (vector >= args.vectors || i >= args.pitch)
            continue;
        Digits digits[per_word];
#pragma unroll
        for (u32 e = 0; e < per_word; ++e)
            digits[e].set(static_cast<i64>(tile[member][place + e]));
        i8 *const target = stack + static_cast<i64>(vector) * args.pitch + i;
        for_moduli<count>(StoreWord{digits, target, plane});
    }
}
