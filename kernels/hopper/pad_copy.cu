// Copies one or two operands that TMA cannot read to rows aligned to 16 bytes.
//
// A thread writes vectors of 16 bytes. The source bytes of a vector lie in at most two aligned
// vectors, which are loaded and shifted into place, so every access is 16 bytes wide whatever the
// alignment of the rows. A vector is loaded only if it holds a byte of the row. A thread issues all
// its loads before its first store, since memory bandwidth requires about 30 KB in flight per SM.
// Bytes after a row's elements in the destination are never read.
#include "hopper/dependent_launch.cuh"
#include "hopper/vector.cuh"

namespace cupygemm {

struct PadOperand {
    u64 source, destination; // destination is a multiple of 16
    i64 pitch;               // of the source, bytes
    i64 stride[3];           // of the source along the batch axes, bytes, batch0 outermost
    i32 batch0, batch1, batch2;
    u32 rows, row_bytes;
    u32 row_vectors; // of the destination; its matrices follow one another
};

struct PadArgs {
    PadOperand operands[2];
    u32 first_blocks; // grid blocks along x for the first operand; the others copy the second
};

static_assert(sizeof(PadArgs) == 152, "PadArgs must match the dtype that the launcher packs");

constexpr u32 threads = 256;
constexpr u32 vectors = 4; // per thread, `threads` apart in the destination

// Offset in bytes from the first matrix of a batch to matrix `batch`.
CUPYGEMM_INLINE u64 matrix_at(const PadOperand &operand, u32 batch) {
    const u32 outer = batch / operand.batch2;
    return batch % operand.batch2 * operand.stride[2] + outer % operand.batch1 * operand.stride[1] +
           outer / operand.batch1 * operand.stride[0];
}

} // namespace cupygemm

extern "C" __global__ void __launch_bounds__(cupygemm::threads)
    cupygemm_pad_copy(const __grid_constant__ cupygemm::PadArgs args) {
    using namespace cupygemm;
    let_next_kernel_start();
    const bool second = blockIdx.x >= args.first_blocks;
    const PadOperand &operand = args.operands[second];
    const u32 block = blockIdx.x - (second ? args.first_blocks : 0);
    const u32 batches = operand.batch0 * operand.batch1 * operand.batch2;
    const u32 matrix = operand.rows * operand.row_vectors;
    const u32 index = block * threads * vectors + threadIdx.x;
    const u32 row0 = index / operand.row_vectors, column0 = index - row0 * operand.row_vectors;
    const u32 rows_on = threads / operand.row_vectors; // to the thread's next vector
    const u32 columns_on = threads - rows_on * operand.row_vectors;
    for (u32 batch = blockIdx.y; batch < batches; batch += gridDim.y) {
        const u64 source = operand.source + (batches > 1 ? matrix_at(operand, batch) : 0);
        u64 from[vectors];
        u32 shift[vectors], left[vectors]; // `left` counts the row's remaining bytes
        u32 row = row0, column = column0, known = 0;
#pragma unroll
        for (u32 i = 0; i < vectors; ++i) {
            const u32 at = column * Vector::bytes;
            const u64 first = source + row * operand.pitch + at;
            from[i] = first & ~static_cast<u64>(Vector::bytes - 1);
            shift[i] = static_cast<u32>(first) % Vector::bytes;
            left[i] = row < operand.rows && at < operand.row_bytes ? operand.row_bytes - at : 0;
            known += static_cast<u32>(from[i]) + left[i];
            column += columns_on;
            const bool next = column >= operand.row_vectors;
            column -= next ? operand.row_vectors : 0;
            row += rows_on + (next ? 1 : 0);
        }
        wait_for_work_before(known);
        Vector x[vectors], y[vectors];
#pragma unroll
        for (u32 i = 0; i < vectors; ++i) {
            x[i] = y[i] = {};
            if (left[i] > 0)
                x[i] = load_global_vector(from[i]);
            if (shift[i] > 0 && left[i] > Vector::bytes - shift[i])
                y[i] = load_global_vector(from[i] + Vector::bytes);
        }
        const u64 to = operand.destination + static_cast<u64>(batch) * matrix * Vector::bytes;
#pragma unroll
        for (u32 i = 0; i < vectors; ++i)
            if (index + i * threads < matrix)
                store_global_vector(to + static_cast<u64>(index + i * threads) * Vector::bytes,
                                    shifted(x[i], y[i], shift[i]));
    }
}
