// The kernel's parameter: GemmArgs, followed by the arguments that its configuration adds.
//
// Both kernels of a product that splits tiles, cupygemm_gemm and cupygemm_add_parts, take the same
// bytes. cupygemm._backends.cdna.launch builds the matching dtype.
#pragma once

#include "common/arguments.hpp"
#include "common/epilogue.hpp"

namespace cupygemm {

// How tiles are assigned to workgroups (scheduler.hpp).
enum class Partition { tiles, split_k, stream_k };

struct PartArgs {
    u32 num_parts;    // split_k: parts of k; stream_k: workgroups
    u32 stream_tiles; // stream_k: how many tiles, the last ones, are shared
    u64 workspace;    // address of slots, each holding one tile in the type of the sums
};

static_assert(sizeof(PartArgs) == 16, "PartArgs must match the dtype that the launcher packs");

template <bool present> struct PartArgsIf {};
template <> struct PartArgsIf<true> : PartArgs {};

template <bool present> struct EpilogueArgsIf {};
template <> struct EpilogueArgsIf<true> {
    EpilogueArgs epilogue;
};

// Addresses of the packed factors of A's rows and of B's columns (block_scales.hpp).
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
