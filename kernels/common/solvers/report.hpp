// What a kernel reports to the host: which matrices failed, and at which column.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

// Report that a matrix failed; `info` is the address of a word for each matrix, or 0 if nobody
// reads them. They may be in memory of the host, so words of other matrices are not written.
CUPYGEMM_INLINE void report(u64 info, i32 matrix, i32 failed) {
    if (failed != 0 && info != 0)
        reinterpret_cast<i32 *>(info)[matrix] = failed;
}

} // namespace cupygemm
