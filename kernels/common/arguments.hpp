// GemmArgs: the arguments that change between calls of one compiled kernel.
//
// Dtypes, majors, alignment and tile shapes are compile-time constants of the generated Config. The
// struct must match cupygemm._backends.cdna.launch.GEMM_ARGS, a NumPy structured dtype; both are
// naturally aligned.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

struct GemmArgs {
    u64 a, b, c;                // device addresses of element (0, 0) of the batch's first matrix
    i32 m, n, k;                // extents, at least 1
    i32 batch0, batch1, batch2; // extents of the batch axes, batch2 innermost; 1 where absent
    i64 lda, ldb, ldc;          // elements between neighbours on the non-contiguous axis
    i64 a_stride[3];            // elements between matrices along each batch axis; 0 broadcasts
    i64 b_stride[3];
    i64 c_stride[3];
};

static_assert(sizeof(GemmArgs) == 144, "GemmArgs must match the dtype that the launcher packs");

} // namespace cupygemm
