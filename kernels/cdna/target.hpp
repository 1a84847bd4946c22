// Properties of the CDNA target that decide layouts and instructions.
//
// This is the only file that tests which target it is compiled for; the others use these names.
// Sources: the instruction set references of CDNA2 (gfx90a), CDNA3 (gfx942) and CDNA4 (gfx950).
#pragma once

#include "common/numeric.hpp"

namespace cupygemm {

constexpr int wave_size = 64;

#if defined(__gfx950__)
constexpr int lds_banks = 64;         // of 4 bytes
constexpr u32 direct_load_bytes = 16; // per lane, in a load straight to LDS
constexpr bool has_transposing_reads = true;
using fp8 = e4m3fn; // the 8-bit floats of the matrix instructions; CDNA2 has none
using bf8 = e5m2;
#else
constexpr int lds_banks = 32;
constexpr u32 direct_load_bytes = 4;
constexpr bool has_transposing_reads = false;
using fp8 = e4m3fnuz;
using bf8 = e5m2fnuz;
#endif

} // namespace cupygemm
