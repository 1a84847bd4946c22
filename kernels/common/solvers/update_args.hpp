// The arguments of kernels that update a panel, C -= A B or C = A B.
#pragma once

#include "config.hpp"

namespace cupygemm {

struct UpdateArgs {
    u64 a, b, c;                      // element (0, 0) of the first matrix
    i64 a_row, a_column;              // elements between rows and between columns
    i64 ldb, ldc;                     // elements between rows
    i64 a_stride, b_stride, c_stride; // elements between matrices
    i32 m, n, k;
    i32 lower; // skip tiles above the diagonal, where the kernel can
};
static_assert(sizeof(UpdateArgs) == 96, "UpdateArgs must match the dtype that the launcher packs");

} // namespace cupygemm
