// Constants of the CDNA instruction sets that decide layouts.
#pragma once

namespace cupygemm {

constexpr int wave_size = 64;

#if defined(__gfx950__)
constexpr int lds_banks = 64; // of 4 bytes
#else
constexpr int lds_banks = 32;
#endif

} // namespace cupygemm
