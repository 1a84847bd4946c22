// Properties of the CDNA target that decide layouts and instructions.
//
// This is the only file that tests which target it is compiled for. Other code uses these names.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

constexpr int wave_size = 64;

#if defined(__gfx950__)
constexpr int lds_banks = 64;         // of 4 bytes
constexpr u32 direct_load_bytes = 16; // per lane, in a load straight to LDS
constexpr bool has_transposing_reads = true;
#else
constexpr int lds_banks = 32;
constexpr u32 direct_load_bytes = 4;
constexpr bool has_transposing_reads = false;
#endif

} // namespace cupygemm
