// Constants of the CDNA instruction sets that decide layouts.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

constexpr int wave_size = 64;

#if defined(__gfx950__)
constexpr int lds_banks = 64;         // of 4 bytes
constexpr u32 direct_load_bytes = 16; // of a lane, in a load that goes straight to LDS
constexpr bool has_transposing_reads = true;
#else
constexpr int lds_banks = 32;
constexpr u32 direct_load_bytes = 4;
constexpr bool has_transposing_reads = false;
#endif

} // namespace cupygemm
