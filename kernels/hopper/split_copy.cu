// Copies an fp32 operand to the form that the tf32 kernel reads: adjacent along k, and split into
// parts if the product must be as accurate as fp32.
//
// wgmma reads 32-bit operands only along k, so a source with rows along k is transposed. An fp32
// product takes three parts: x = high + low, each a tf32 number, up to 2^-24 |x|. Along k, the copy
// of A is (low, finite high, high) and the copy of B is (finite high, low, high). One tf32 product
// over three times k then sums low high + high low + high high, the small terms first. Infinities
// and NaN appear only in the last parts, because elsewhere they would be multiplied by zeros or
// added with opposite signs. A block transposes 64 rows by 32 columns, or copies four elements per
// thread. `config.cuh` defines `Config::transposes`, `num_parts` (1 or 3) and `low_part`.
#include "common/numeric.hpp"
#include "config.cuh"
#include "hopper/dependent_launch.cuh"

namespace cupygemm {

struct SplitArgs {
    u64 source, destination; // destination is a multiple of 16
    i64 pitch;               // of the source, elements
    i64 stride[3];           // of the source along the batch axes, elements, batch0 outermost
    i32 batch0, batch1, batch2;
    u32 rows, columns; // of the source
    u32 part;          // elements along k of a part, a multiple of 4; padded with zeros
};

static_assert(sizeof(SplitArgs) == 72, "SplitArgs must match the dtype that the launcher packs");

constexpr u32 threads = 256;
constexpr u32 tile_rows = 64, tile_columns = 32; // of a source that is transposed
constexpr u32 vectors = tile_rows / 4;           // per line of the destination in a tile

struct alignas(16) Four {
    float value[4];
};

CUPYGEMM_INLINE u32 tf32_bits(float x) {
    u32 bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

CUPYGEMM_INLINE bool is_finite(u32 bits) { return (bits & 0x7f800000) != 0x7f800000; }

// The tf32 number nearest to a finite x. The largest fp32 numbers round to the largest tf32 number.
CUPYGEMM_INLINE float high_part(float x) {
    const u32 bits = tf32_bits(x);
    return __uint_as_float(is_finite(bits) ? bits & ~0x1fffu : f32_bits(x) & ~0x1fffu);
}

CUPYGEMM_INLINE float low_part(float x, float high) {
    return __uint_as_float(tf32_bits(x - high) & ~0x1fffu);
}

// Write four elements along k in all parts; `to` points to the first part.
CUPYGEMM_INLINE void store_parts(float *to, u32 part, const Four &source) {
    auto at = [&](u32 index) -> Four & { return *reinterpret_cast<Four *>(to + index * part); };
    if constexpr (Config::num_parts == 1) {
        at(0) = source;
    } else {
        Four high, finite, low;
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            const float x = source.value[i];
            const bool is_number = is_finite(f32_bits(x));
            high.value[i] = is_number ? high_part(x) : x;
            finite.value[i] = is_number ? high.value[i] : 0;
            low.value[i] = is_number ? low_part(x, high.value[i]) : 0;
        }
        at(Config::low_part) = low;
        at(1 - Config::low_part) = finite;
        at(2) = high;
    }
}

// Load four elements of a row, of which the first `count` exist.
CUPYGEMM_INLINE Four load_four(const float *from, i32 count) {
    Four four{};
    if (count >= 4 && reinterpret_cast<u64>(from) % 16 == 0)
        return *reinterpret_cast<const Four *>(from);
#pragma unroll
    for (i32 i = 0; i < 4; ++i)
        if (i < count)
            four.value[i] = from[i];
    return four;
}

CUPYGEMM_INLINE void copy(const SplitArgs &args, const float *source, float *destination) {
    const u32 row_vectors = args.part / 4;
    const u32 index = blockIdx.x * threads + threadIdx.x;
    const u32 row = index / row_vectors, column = (index - row * row_vectors) * 4;
    if (row >= args.rows)
        return;
    const Four four =
        load_four(source + row * args.pitch + column, static_cast<i32>(args.columns - column));
    store_parts(destination + static_cast<u64>(row) * Config::num_parts * args.part + column,
                args.part, four);
}

CUPYGEMM_INLINE void turn(const SplitArgs &args, const float *source, float *destination,
                          float (&staged)[tile_columns][tile_rows + 1]) {
    const u32 tiles_across = ceil_div(args.columns, tile_columns);
    const u32 row0 = blockIdx.x / tiles_across * tile_rows;
    const u32 column0 = blockIdx.x % tiles_across * tile_columns;
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 row = threadIdx.x / 32; row < tile_rows; row += threads / 32) {
        const bool inside = row0 + row < args.rows && column0 + lane < args.columns;
        staged[lane][row] = inside ? source[(row0 + row) * args.pitch + column0 + lane] : 0;
    }
    __syncthreads(); // the tile is in shared memory
#pragma unroll
    for (u32 at = threadIdx.x; at < tile_columns * vectors; at += threads) {
        const u32 line = at / vectors, k = at % vectors * 4;
        const float *from = &staged[line][k];
        if (column0 + line < args.columns && row0 + k < args.part)
            store_parts(destination +
                            static_cast<u64>(column0 + line) * Config::num_parts * args.part +
                            row0 + k,
                        args.part, Four{{from[0], from[1], from[2], from[3]}});
    }
    __syncthreads(); // every element has been read: the tile may be overwritten
}

} // namespace cupygemm

extern "C" __global__ void __launch_bounds__(256)
    cupygemm_split_copy(const cupygemm::SplitArgs args) {
    using namespace cupygemm;
    let_next_kernel_start();
    wait_for_work_before();
    const u32 batches = args.batch0 * args.batch1 * args.batch2;
    const u64 lines = Config::transposes ? args.columns : args.rows;
    for (u32 batch = blockIdx.y; batch < batches; batch += gridDim.y) {
        const u32 index2 = batch % args.batch2, outer = batch / args.batch2;
        const i64 offset = index2 * args.stride[2] + outer % args.batch1 * args.stride[1] +
                           outer / args.batch1 * args.stride[0];
        const float *source = reinterpret_cast<const float *>(args.source) + offset;
        float *destination = reinterpret_cast<float *>(args.destination) +
                             batch * lines * Config::num_parts * args.part;
        if constexpr (Config::transposes) {
            __shared__ float staged[tile_columns][tile_rows + 1]; // (column, row)
            turn(args, source, destination, staged);
        } else {
            copy(args, source, destination);
        }
    }
}
