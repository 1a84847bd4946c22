// A word in memory of the device by which a launch tells later ones what to do.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

// Whether there is a flag at an address, which may be 0, and it is set.
CUPYGEMM_INLINE bool is_set(u64 flag) {
    return flag != 0 && *reinterpret_cast<const u32 *>(flag) != 0;
}

} // namespace cupygemm
