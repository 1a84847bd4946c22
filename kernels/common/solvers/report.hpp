// Reports to the host which matrices failed, and at which column.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

// Report that a matrix failed; `info` is the address of one word per matrix, or 0 if no one reads
// them. The words may be in host memory, so those of matrices without a failure are not written.
// The first report of a matrix stays.
CUPYGEMM_INLINE void report(u64 info, i32 matrix, i32 failed) {
    if (failed == 0 || info == 0)
        return;
    i32 *const word = reinterpret_cast<i32 *>(info) + matrix;
    if (*word == 0)
        *word = failed;
}

} // namespace cupygemm
