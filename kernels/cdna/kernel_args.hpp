// The parameter of a kernel: GemmArgs, and after it what the kernel's configuration adds.
//
// The two kernels of a product whose tiles are shared, cupygemm_gemm and cupygemm_add_parts, take
// the same bytes. The twin is made by cupygemm._backends.cdna.launch.
#pragma once

#include "common/arguments.hpp"
#include "common/epilogue.hpp"

namespace cupygemm {

// How the products are dealt to workgroups (scheduler.hpp).
enum class Partition { tiles, split_k, stream_k };

struct PartArgs {
    u32 num_parts;    // split_k: of k; stream_k: workgroups
    u32 stream_tiles; // stream_k: how many tiles, the last, are shared
    u64 workspace;    // address of slots, each of a tile in the type of the sums
};

static_assert(sizeof(PartArgs) == 16, "PartArgs must match the dtype that the launcher packs");

template <bool present> struct PartArgsIf {};
template <> struct PartArgsIf<true> : PartArgs {};

template <bool present> struct EpilogueArgsIf {};
template <> struct EpilogueArgsIf<true> {
    EpilogueArgs epilogue;
};

// Addresses of the packed factors of A's rows and B's columns (block_scales.hpp).
struct BlockScaleArgs {
    u64 a, b;
};

template <bool present> struct BlockScaleArgsIf {};
template <> struct BlockScaleArgsIf<true> {
    BlockScaleArgs scales;
};

template <class Config> struct KernelArgs : GemmArgs,
                                            EpilogueArgsIf<Config::has_epilogue>,
                                            BlockScaleArgsIf<Config::block_scaled>,
                                            PartArgsIf<Config::partition != Partition::tiles> {};

} // namespace cupygemm
