// Puts the factors of the diagonal blocks into their places, and zeros above the diagonal.
#include "config.hpp"

namespace cupygemm {

struct FinishArgs {
    u64 a;
    i64 lda, stride; // elements between rows, and between matrices
    u64 blocks;      // (block, row, column) of each matrix, from cholesky_panel.hpp
    i64 blocks_stride;
    i32 n, unused;
};
static_assert(sizeof(FinishArgs) == 48, "FinishArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
constexpr u32 width = Config::width, threads = Config::threads;

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_cholesky_finish(const cupygemm::FinishArgs args) {
    using namespace cupygemm;
    const u32 row = group_index_x(), matrix = group_index_y(), n = args.n;
    S *const a = reinterpret_cast<S *>(args.a) + matrix * args.stride + row * args.lda;
    const u32 block = row / width;
    const S *const factor = reinterpret_cast<const S *>(args.blocks) + matrix * args.blocks_stride +
                            static_cast<i64>(block * width + row % width) * width;
    for (u32 column = block * width + local_thread(); column < n; column += threads)
        a[column] = column <= row ? factor[column - block * width] : S{};
}
