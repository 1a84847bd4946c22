// Copies an operand of 8-bit elements so that it is contiguous along k, as wgmma requires.
//
// A block transposes a tile of 128 x 128 bytes. A thread reads 16 bytes of each of four rows,
// transposes 4 x 4 bytes at a time in registers, and writes words to shared memory; from there
// eight threads store a line of the tile, 16 bytes each. Rows of the source may begin anywhere:
// their vectors are shifted into place, as in pad_copy.cu. Rows of the destination begin at
// multiples of 16 bytes. The kernel is bound by memory bandwidth.
#include "common/numeric.hpp"
#include "hopper/dependent_launch.cuh"
#include "hopper/vector.cuh"

namespace cupygemm {

struct TransposeArgs {
    u64 source, destination;
    i64 pitch;     // of the source, bytes
    i64 stride[3]; // of the source along the batch axes, bytes, batch0 outermost
    i32 batch0, batch1, batch2;
    u32 rows, columns; // of the source
    u32 out_pitch;     // of the destination, a multiple of 16; its matrices follow one another
};

static_assert(sizeof(TransposeArgs) == 72,
              "TransposeArgs must match the dtype that the launcher packs");

constexpr u32 tile = 128; // rows and columns of the source
constexpr u32 threads = 256;
constexpr u32 vectors = tile / Vector::bytes; // per line
static_assert(threads == tile / 4 * vectors,
              "a thread must transpose a vector of each of four rows");

// Byte j of row i becomes byte i of row j: first for pairs of rows, then for pairs of those pairs.
// A digit of a selector names the byte that goes there, 0 to 3 of the first word and 4 to 7 of the
// second; the last digit is the lowest byte.
CUPYGEMM_INLINE void turn(u32 (&rows)[4]) {
    const u32 a = __byte_perm(rows[0], rows[1], 0x5140), b = __byte_perm(rows[2], rows[3], 0x5140);
    const u32 c = __byte_perm(rows[0], rows[1], 0x7362), d = __byte_perm(rows[2], rows[3], 0x7362);
    rows[0] = __byte_perm(a, b, 0x5410);
    rows[1] = __byte_perm(a, b, 0x7632);
    rows[2] = __byte_perm(c, d, 0x5410);
    rows[3] = __byte_perm(c, d, 0x7632);
}

// Load a vector of each of four rows, from `column` on. Rows below the last are zeros. Bytes beyond
// the end of a row are arbitrary, and become lines that are not stored.
CUPYGEMM_INLINE void load_rows(const TransposeArgs &args, u64 source, u32 row, u32 column,
                               Vector (&rows)[4]) {
    Vector next[4];
    u32 shift[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        const u64 line = source + static_cast<i64>(row + i) * args.pitch;
        const u64 first = line + column, end = line + args.columns;
        const u64 aligned = first & ~static_cast<u64>(Vector::bytes - 1);
        rows[i] = next[i] = {};
        if (row + i < args.rows && first < end)
            rows[i] = load_global_vector(aligned);
        if (row + i < args.rows && aligned != first && aligned + Vector::bytes < end)
            next[i] = load_global_vector(aligned + Vector::bytes);
        shift[i] = static_cast<u32>(first - aligned);
    }
    if ((shift[0] | shift[1] | shift[2] | shift[3]) == 0) // not before all loads are in flight
        return;
#pragma unroll
    for (u32 i = 0; i < 4; ++i)
        rows[i] = shifted(rows[i], next[i], shift[i]);
}

} // namespace cupygemm

extern "C" __global__ void __launch_bounds__(cupygemm::threads)
    cupygemm_transpose_copy(const __grid_constant__ cupygemm::TransposeArgs args) {
    using namespace cupygemm;
    // (column, four rows). Vector v of column c lies at v ^ c / 16, so that the words a warp
    // writes, and the vectors it reads, are in different banks.
    __shared__ __align__(16) u32 staged[tile][tile / 4];
    let_next_kernel_start();
    const u32 tiles_across = ceil_div(args.columns, tile);
    const u32 row0 = blockIdx.x / tiles_across * tile;
    const u32 column0 = blockIdx.x % tiles_across * tile;
    const u32 vector = threadIdx.x % vectors, four = threadIdx.x / vectors;
    const u32 batches = args.batch0 * args.batch1 * args.batch2;
    for (u32 batch = blockIdx.y; batch < batches; batch += gridDim.y) {
        const u32 index2 = batch % args.batch2, outer = batch / args.batch2;
        const u64 source = args.source + index2 * args.stride[2] +
                           outer % args.batch1 * args.stride[1] +
                           outer / args.batch1 * args.stride[0];
        const u64 destination =
            args.destination + static_cast<u64>(batch) * args.columns * args.out_pitch;
        wait_for_work_before(); // in the first iteration only, after the addresses are computed
        Vector rows[4];
        load_rows(args, source, row0 + 4 * four, column0 + vector * Vector::bytes, rows);
#pragma unroll
        for (u32 word = 0; word < 4; ++word) {
            u32 block[4] = {rows[0].words[word], rows[1].words[word], rows[2].words[word],
                            rows[3].words[word]};
            turn(block);
#pragma unroll
            for (u32 i = 0; i < 4; ++i)
                staged[vector * Vector::bytes + word * 4 + i][four ^ vector * 4] = block[i];
        }
        __syncthreads(); // the tile is in shared memory
#pragma unroll
        for (u32 i = 0; i < tile * vectors / threads; ++i) {
            const u32 line = i * (threads / vectors) + four;
            const u32 *words = &staged[line][(vector ^ line / Vector::bytes) * 4];
            const u32 row = row0 + vector * Vector::bytes;
            if (column0 + line < args.columns && row < args.out_pitch)
                store_global_vector(destination +
                                        static_cast<u64>(column0 + line) * args.out_pitch + row,
                                    Vector{{words[0], words[1], words[2], words[3]}});
        }
        __syncthreads(); // every word has been read: the tile may be overwritten
    }
}
