// The kernel's parameter, a __grid_constant__, because TMA reads its maps from parameter memory.
//
// HopperArgs must match cupygemm._backends.hopper.launch.HOPPER_ARGS, and GroupedArgs must match
// cupygemm._backends.hopper.grouped.grouped_args.
#pragma once

#include "common/epilogue.hpp"
#include "hopper/tma.cuh"

namespace cupygemm {

struct HopperArgs {
    TensorMap a, b, c; // c is unused where the epilogue stores without TMA
    u64 c_address;     // of element (0, 0) of the first matrix
    i64 ldc;           // elements
    i64 c_stride[3];   // elements, batch0 outermost
    i32 m, n, k;
    i32 batch0, batch1, batch2; // extents; 1 where absent
    i32 a_moves[3];             // per batch axis: 1 where A has the axis, 0 where it is broadcast
    i32 b_moves[3];
    i32 num_splits;  // parts of k, each summed to a matrix of its own
    u32 stage_bytes; // that land in a stage; fewer where the matrix has fewer rows than the tile
    u64 workspace;   // of stream-K, with the mark of sums that are ready; see fix_up.cuh
    u64 mark;
    u32 a_share, b_share; // rows of a box of a k-major operand
};

static_assert(sizeof(HopperArgs) == 512, "HopperArgs must match the dtype that the launcher packs");

// Adds the maps of narrower boxes, where the last boxes of a tile's columns are narrower.
template <bool has_narrow_boxes> struct MapArgs : HopperArgs {};
template <> struct MapArgs<true> : HopperArgs {
    TensorMap narrow_b, narrow_c; // each is unused if all its boxes have full width
};
static_assert(sizeof(MapArgs<true>) == 512 + 256,
              "the narrow maps must follow the arguments without padding");

// Adds the arguments of an epilogue, where there is one.
template <bool has_epilogue, bool has_narrow_boxes = false> struct KernelArgs
    : MapArgs<has_narrow_boxes> {};
template <bool has_narrow_boxes> struct KernelArgs<true, has_narrow_boxes>
    : MapArgs<has_narrow_boxes> {
    EpilogueArgs epilogue;
};

// Scales for blocks of k, in fp32: the addresses of each operand's first scale; the elements from
// one scale to the next, along the rows of A or the columns of B and along k; and the numbers of
// rows, columns and steps that share a scale. It must match
// cupygemm._backends.hopper.block_scales.SCALE_ARGS.
struct BlockScaleArgs {
    u64 a, b;
    i64 a_row, a_k, b_column, b_k;
    u32 a_rows, b_columns, steps, padding;
};
template <bool has_epilogue> struct ScaledArgs : KernelArgs<has_epilogue> {
    BlockScaleArgs scales;
};
static_assert(sizeof(BlockScaleArgs) == 64 && sizeof(ScaledArgs<false>) == 512 + 64 &&
                  sizeof(ScaledArgs<true>) == 512 + 320,
              "the scales must follow the arguments, or the epilogue's arguments, without padding");

// The arguments of several products in one launch.
template <u32 capacity> struct GroupedArgs {
    KernelArgs<false> products[capacity];
    u32 first_unit[capacity + 1]; // units of all previous products; the total after the last
};

// Kernel parameters on sm_90 may have 32764 bytes (CUDA C++ Programming Guide, from 12.1 on).
static_assert(sizeof(GroupedArgs<7>) == 3648 && sizeof(GroupedArgs<63>) == 32512,
              "GroupedArgs must match the dtype that the launcher packs");

template <class Config, u32 capacity = Config::group_capacity, bool scaled = Config::block_scaled>
struct ParameterOf {
    using Type = GroupedArgs<capacity>;
};
template <class Config> struct ParameterOf<Config, 0, false> {
    using Type = KernelArgs<Config::has_epilogue, Config::has_narrow_boxes>;
};
template <class Config> struct ParameterOf<Config, 0, true> {
    using Type = ScaledArgs<Config::has_epilogue>;
};
template <class Config> using Parameter = typename ParameterOf<Config>::Type;

} // namespace cupygemm
