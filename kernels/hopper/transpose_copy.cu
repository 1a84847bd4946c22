// Copies an operand of 8-bit elements so that those along k are adjacent: wgmma reads no others.
//
// A block turns a tile of 64 x 64 bytes in shared memory: it reads bytes, neighbours in neighbouring
// lanes, for the rows of the source may begin anywhere, and writes words. Rows of the destination
// begin at multiples of 16 bytes. Bound by memory bandwidth.
#include "common/numeric.hpp"

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

constexpr u32 tile = 64;
constexpr u32 threads = 256;

} // namespace cupygemm

extern "C" __global__ void __launch_bounds__(256)
    cupygemm_transpose_copy(const cupygemm::TransposeArgs args) {
    using namespace cupygemm;
    __shared__ u8 staged[tile][tile + 4]; // (row, column); a row more shifts the bank by one
    const u32 tiles_across = ceil_div(args.columns, tile);
    const u32 row0 = blockIdx.x / tiles_across * tile, column0 = blockIdx.x % tiles_across * tile;
    const u32 batches = args.batch0 * args.batch1 * args.batch2;
    for (u32 batch = blockIdx.y; batch < batches; batch += gridDim.y) {
        const u32 index2 = batch % args.batch2, outer = batch / args.batch2;
        const u64 source = args.source + index2 * args.stride[2] +
                           outer % args.batch1 * args.stride[1] +
                           outer / args.batch1 * args.stride[0];
        const u64 destination =
            args.destination + static_cast<u64>(batch) * args.columns * args.out_pitch;
        const u32 column = threadIdx.x % tile;
#pragma unroll
        for (u32 row = threadIdx.x / tile; row < tile; row += threads / tile) {
            const bool inside = row0 + row < args.rows && column0 + column < args.columns;
            const u64 from = source + static_cast<i64>(row0 + row) * args.pitch + column0 + column;
            staged[row][column] = inside ? *reinterpret_cast<const u8 *>(from) : u8(0);
        }
        __syncthreads(); // the tile is in shared memory
        const u32 word = threadIdx.x % 16 * 4;
#pragma unroll
        for (u32 line = threadIdx.x / 16; line < tile; line += threads / 16) {
            u32 bits = 0;
            for (u32 i = 0; i < 4; ++i)
                bits |= static_cast<u32>(staged[word + i][line]) << 8 * i;
            if (column0 + line < args.columns && row0 + word < args.out_pitch)
                *reinterpret_cast<u32 *>(
                    destination + static_cast<u64>(column0 + line) * args.out_pitch + row0 + word) =
                    bits;
        }
        __syncthreads(); // and may be overwritten
    }
}
