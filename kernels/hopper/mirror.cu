// Copies the lower triangle of a square matrix to the upper one.
//
// A block reads a 64 x 64 tile on or below the diagonal to shared memory, and stores its transpose
// to the mirrored place. A thread moves vectors of up to 16 bytes where rows begin at multiples of
// them. `config.cuh` defines the element as an unsigned integer of its size.
#include "config.cuh"
#include "hopper/dependent_launch.cuh"

namespace cupygemm {

struct MirrorArgs {
    u64 c;
    i64 ldc; // elements
    u32 n, padding;
};

static_assert(sizeof(MirrorArgs) == 24, "MirrorArgs must match the dtype that the launcher packs");

using Element = Config::Element;
constexpr u32 edge = 64, threads = 256;
constexpr u32 count = Config::vectors ? 16 / sizeof(Element) : 1; // elements per vector
constexpr u32 across = edge / count;
// The pitch is an odd number of words, so that the elements of a column lie in different banks.
constexpr u32 pitch = edge + (sizeof(Element) < 4 ? 4 / sizeof(Element) : 1);

struct alignas(count * sizeof(Element)) Vector {
    Element elements[count];
};

CUPYGEMM_INLINE Element *element(const MirrorArgs &args, u32 row, u32 column) {
    return reinterpret_cast<Element *>(args.c) + row * args.ldc + column;
}

} // namespace cupygemm

extern "C" __global__ void __launch_bounds__(256) cupygemm_mirror(const cupygemm::MirrorArgs args) {
    using namespace cupygemm;
    __shared__ Element staged[edge][pitch]; // (row, column) below the diagonal
    let_next_kernel_start();
    if (blockIdx.y > blockIdx.x)
        return;
    wait_for_work_before();
    const u32 row0 = blockIdx.x * edge, column0 = blockIdx.y * edge;
#pragma unroll 4
    for (u32 at = threadIdx.x; at < edge * across; at += threads) {
        const u32 row = at / across, column = at % across * count;
        if (row0 + row >= args.n)
            continue;
        if (column0 + column + count <= args.n) {
            const Vector vector =
                *reinterpret_cast<const Vector *>(element(args, row0 + row, column0 + column));
#pragma unroll
            for (u32 i = 0; i < count; ++i)
                staged[row][column + i] = vector.elements[i];
        } else {
#pragma unroll 1
            for (u32 i = 0; column0 + column + i < args.n; ++i)
                staged[row][column + i] = *element(args, row0 + row, column0 + column + i);
        }
    }
    __syncthreads(); // the tile is in shared memory
#pragma unroll 4
    for (u32 at = threadIdx.x; at < edge * across; at += threads) {
        const u32 row = at / across, column = at % across * count; // of the transpose
        if (column0 + row >= args.n)
            continue;
        if (blockIdx.x > blockIdx.y && row0 + column + count <= args.n) {
            Vector vector;
#pragma unroll
            for (u32 i = 0; i < count; ++i)
                vector.elements[i] = staged[column + i][row];
            *reinterpret_cast<Vector *>(element(args, column0 + row, row0 + column)) = vector;
        } else {
#pragma unroll 1
            for (u32 i = 0; i < count && row0 + column + i < args.n; ++i)
                if (row0 + column + i > column0 + row)
                    *element(args, column0 + row, row0 + column + i) = staged[column + i][row];
        }
    }
}
