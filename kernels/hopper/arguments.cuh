// The kernel's one parameter, a __grid_constant__: TMA reads its maps where they lie.
//
// HopperArgs is the twin of cupygemm._backends.hopper.launch.HOPPER_ARGS, GroupedArgs that of
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
    i32 batch0, batch1, batch2; // extents, 1 where absent
    i32 a_moves[3];             // per batch axis: 1 where A has the axis, 0 where it broadcasts
    i32 b_moves[3];
    i32 num_splits;  // parts of k, each summed to a matrix of its own
    u32 stage_bytes; // that land in a stage: boxes of a matrix lower than the tile are lower
    u64 workspace;   // of stream-K, and the mark of sums that lie there; see fix_up.cuh
    u64 mark;
    u32 a_share, b_share; // rows of a box of a k-major operand
};

static_assert(sizeof(HopperArgs) == 512, "HopperArgs must match the dtype that the launcher packs");

// With the maps of narrower boxes, where the last ones of a tile's columns are such.
template <bool has_narrow_boxes> struct MapArgs : HopperArgs {};
template <> struct MapArgs<true> : HopperArgs {
    TensorMap narrow_b, narrow_c; // each unused where its boxes are as wide as others
};
static_assert(sizeof(MapArgs<true>) == 512 + 256, "the maps follow the arguments at once");

// With what an epilogue adds, where there is one.
template <bool has_epilogue, bool has_narrow_boxes = false> struct KernelArgs
    : MapArgs<has_narrow_boxes> {};
template <bool has_narrow_boxes> struct KernelArgs<true, has_narrow_boxes>
    : MapArgs<has_narrow_boxes> {
    EpilogueArgs epilogue;
};

// Scales for blocks of k, fp32: where the first of each operand is, the elements from one to the
// next along the rows of A or the columns of B and along k, and how many rows, columns and steps
// share one. The twin of cupygemm._backends.hopper.block_scales.SCALE_ARGS.
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
              "the scales follow the arguments, or the epilogue's, at once");

// Of several products in one launch.
template <u32 capacity> struct GroupedArgs {
    KernelArgs<false> products[capacity];
    u32 first_unit[capacity + 1]; // units of the products before; of all from the last one's on
};

// sm_90 takes parameters of 32764 bytes (CUDA C++ Programming Guide, from 12.1 on).
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
