// A flag in device memory, by which a launch controls later launches.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

// Whether the flag at an address is set; false if the address is 0.
CUPYGEMM_INLINE bool is_set(u64 flag) {
    return flag != 0 && *reinterpret_cast<const u32 *>(flag) != 0;
}

} // namespace cupygemm
