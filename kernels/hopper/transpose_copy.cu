// Copies an operand of 8-bit elements so that those along k are adjacent: wgmma reads no others.
//
// A block turns a tile of 128 x 64 bytes. A thread reads a word of each of four rows, turns the
// 4 x 4 bytes in registers, and writes four words to shared memory; from there, threads store 16
// bytes each. Words that are not aligned, or reach over the edge, are read byte by byte. Rows of
// the destination begin at multiples of 16 bytes.
#include "common/numeric.hpp"
#include "hopper/dependent_launch.cuh"

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

constexpr u32 tile_rows = 128, tile_columns = 64; // of the source
constexpr u32 threads = 256;
constexpr u32 words_across = tile_columns / 4;
constexpr u32 pitch_words = tile_rows / 4 + 1; // odd, so that columns begin in different banks

// Four bytes of a row, of which the first `count` exist.
CUPYGEMM_INLINE u32 load_word(u64 address, i32 count) {
    if (count >= 4 && address % 4 == 0)
        return *reinterpret_cast<const u32 *>(address);
    u32 word = 0;
    for (i32 i = 0; i < 4; ++i)
        if (i < count)
            word |= static_cast<u32>(reinterpret_cast<const u8 *>(address)[i]) << 8 * i;
    return word;
}

// Byte j of row i becomes byte i of row j.
CUPYGEMM_INLINE void turn(u32 (&rows)[4]) {
    const u32 a = __byte_perm(rows[0], rows[1], 0x5140), b = __byte_perm(rows[2], rows[3], 0x5140);
    const u32 c = __byte_perm(rows[0], rows[1], 0x7362), d = __byte_perm(rows[2], rows[3], 0x7362);
    rows[0] = __byte_perm(a, b, 0x5410);
    rows[1] = __byte_perm(a, b, 0x7632);
    rows[2] = __byte_perm(c, d, 0x5410);
    rows[3] = __byte_perm(c, d, 0x7632);
}

struct alignas(16) Vector {
    u32 words[4];
};

} // namespace cupygemm

extern "C" __global__ void __launch_bounds__(256)
    cupygemm_transpose_copy(const cupygemm::TransposeArgs args) {
    using namespace cupygemm;
    __shared__ u32 staged[tile_columns][pitch_words]; // (column, four rows)
    let_next_kernel_start();
    wait_for_work_before();
    const u32 tiles_across = ceil_div(args.columns, tile_columns);
    const u32 row0 = blockIdx.x / tiles_across * tile_rows;
    const u32 column0 = blockIdx.x % tiles_across * tile_columns;
    const u32 batches = args.batch0 * args.batch1 * args.batch2;
    for (u32 batch = blockIdx.y; batch < batches; batch += gridDim.y) {
        const u32 index2 = batch % args.batch2, outer = batch / args.batch2;
        const u64 source = args.source + index2 * args.stride[2] +
                           outer % args.batch1 * args.stride[1] +
                           outer / args.batch1 * args.stride[0];
        const u64 destination =
            args.destination + static_cast<u64>(batch) * args.columns * args.out_pitch;

        const u32 column = threadIdx.x % words_across * 4;
        const i32 count = static_cast<i32>(args.columns) - static_cast<i32>(column0 + column);
#pragma unroll
        for (u32 four = threadIdx.x / words_across; four < tile_rows / 4;
             four += threads / words_across) {
            u32 rows[4];
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                const u32 row = row0 + 4 * four + i;
                const u64 from = source + static_cast<i64>(row) * args.pitch + column0 + column;
                rows[i] = row < args.rows ? load_word(from, count) : 0;
            }
            turn(rows);
#pragma unroll
            for (u32 i = 0; i < 4; ++i)
                staged[column + i][four] = rows[i];
        }
        __syncthreads();                        // the tile is in shared memory
        constexpr u32 vectors = tile_rows / 16; // of a line of the destination
#pragma unroll
        for (u32 at = threadIdx.x; at < tile_columns * vectors; at += threads) {
            const u32 line = at / vectors, vector = at % vectors;
            const u64 to = destination + static_cast<u64>(column0 + line) * args.out_pitch + row0 +
                           vector * 16;
            const u32 *words = &staged[line][vector * 4];
            if (column0 + line < args.columns && row0 + vector * 16 < args.out_pitch)
                *reinterpret_cast<Vector *>(to) = Vector{{words[0], words[1], words[2], words[3]}};
        }
        __syncthreads(); // and may be overwritten
    }
}
