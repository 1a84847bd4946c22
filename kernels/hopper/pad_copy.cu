// Copies an operand that TMA cannot read to rows that begin at multiples of 16 bytes.
//
// A thread writes one vector of 16 bytes. Its source bytes lie in at most two aligned vectors; both
// are read, and shifted into place, so every access is 16 bytes wide however the rows are aligned.
// An aligned vector is read only if it holds a byte of the row. What follows a row's elements in
// the destination is not read by anyone. Bound by memory bandwidth.
#include "common/numeric.hpp"
#include "hopper/dependent_launch.cuh"

namespace cupygemm {

struct PadArgs {
    u64 source, destination; // destination is a multiple of 16
    i64 pitch;               // of the source, bytes
    i64 stride[3];           // of the source along the batch axes, bytes, batch0 outermost
    i32 batch0, batch1, batch2;
    u32 rows, row_bytes;
    u32 row_vectors; // of the destination; its matrices follow one another
};

static_assert(sizeof(PadArgs) == 72, "PadArgs must match the dtype that the launcher packs");

struct Vector {
    u64 low, high;
};

CUPYGEMM_INLINE Vector load_vector(u64 address) {
    Vector v;
    asm volatile("ld.global.nc.v2.u64 {%0, %1}, [%2];" : "=l"(v.low), "=l"(v.high) : "l"(address));
    return v;
}

// The 16 bytes from byte `shift` of the 32 of (x, y) on.
CUPYGEMM_INLINE Vector shifted(Vector x, Vector y, u32 shift) {
    const bool half = shift & 8;
    const u64 q0 = half ? x.high : x.low, q1 = half ? y.low : x.high, q2 = half ? y.high : y.low;
    const u32 bits = (shift & 7) * 8;
    if (bits == 0)
        return {q0, q1};
    return {q0 >> bits | q1 << (64 - bits), q1 >> bits | q2 << (64 - bits)};
}

} // namespace cupygemm

extern "C" __global__ void __launch_bounds__(256) cupygemm_pad_copy(const cupygemm::PadArgs args) {
    using namespace cupygemm;
    let_next_kernel_start();
    wait_for_work_before();
    const u32 index = blockIdx.x * 256 + threadIdx.x;
    const u32 row = index / args.row_vectors;
    if (row >= args.rows)
        return;
    const u32 offset = (index - row * args.row_vectors) * 16;
    const u32 batches = args.batch0 * args.batch1 * args.batch2;
    for (u32 batch = blockIdx.y; batch < batches; batch += gridDim.y) {
        const u32 index2 = batch % args.batch2, outer = batch / args.batch2;
        const u64 line = args.source + index2 * args.stride[2] +
                         outer % args.batch1 * args.stride[1] +
                         outer / args.batch1 * args.stride[0] + row * args.pitch;
        const u64 first = line + offset, end = line + args.row_bytes;
        const u64 aligned = first & ~u64(15);
        Vector x{0, 0}, y{0, 0};
        if (first < end)
            x = load_vector(aligned);
        if (aligned != first && aligned + 16 < end)
            y = load_vector(aligned + 16);
        const u64 matrix = static_cast<u64>(args.rows) * args.row_vectors * 16;
        const Vector v = shifted(x, y, static_cast<u32>(first - aligned));
        auto *to =
            reinterpret_cast<u64 *>(args.destination + batch * matrix +
                                    (static_cast<u64>(row) * args.row_vectors * 16) + offset);
        asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(v.low), "l"(v.high)
                     : "memory");
    }
}
