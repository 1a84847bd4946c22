// The kernel's parameter, a __grid_constant__, because TMA reads its maps from parameter memory.
//
// HopperArgs must match cupygemm._backends.hopper.launch.HOPPER_ARGS, and GroupedArgs must match
// cupygemm._backends.hopper.other_products.grouped.grouped_args.
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
    u32 stage_bytes; // that land in a stage; fewer if the matrix has fewer rows than the tile
    u64 workspace;   // of stream-K, with the mark of complete sums; see fix_up.cuh
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

// Adds the arguments of an epilogue, if present.
template <bool has_epilogue, bool has_narrow_boxes = false> struct KernelArgs
    : MapArgs<has_narrow_boxes> {};
template <bool has_narrow_boxes> struct KernelArgs<true, has_narrow_boxes>
    : MapArgs<has_narrow_boxes> {
    EpilogueArgs epilogue;
};

// Groups of rows: the address of each group's number of rows, or of its end row, as i32. It must
// match cupygemm._backends.hopper.other_products.row_groups.GROUP_ARGS.
struct RowGroupArgs {
    u64 sizes;
    u32 count, are_ends;
};
template <class Args> struct WithRowGroups : Args {
    RowGroupArgs groups;
};

// Scales for blocks of k, in fp32: the addresses of each operand's first scale; the elements from
// one scale to the next, along the rows of A or the columns of B, along k, and along the batch; the
// numbers of rows and columns that share a scale; and the inverse of the number of steps that do,
// see block_scales.cuh. It must match
// cupygemm._backends.hopper.other_products.block_scales.SCALE_ARGS.
struct BlockScaleArgs {
    u64 a, b;
    i64 a_batch, b_batch;
    i32 a_row, a_k, b_column, b_k;
    u32 a_rows, b_columns, inverse, padding;
};
template <class Args> struct WithScales : Args {
    BlockScaleArgs scales;
};
static_assert(sizeof(RowGroupArgs) == 16 && sizeof(BlockScaleArgs) == 64 &&
                  sizeof(EpilogueArgs) == 240 &&
                  sizeof(WithScales<WithRowGroups<KernelArgs<false>>>) == 512 + 128 &&
                  sizeof(WithScales<KernelArgs<true>>) == 512 + 320 &&
                  sizeof(WithScales<WithRowGroups<KernelArgs<true>>>) == 512 + 320,
              "groups and scales must follow the arguments, or the epilogue's, without padding");

// The arguments of several products in one launch.
template <u32 capacity> struct GroupedArgs {
    KernelArgs<false> products[capacity];
    u32 first_unit[capacity + 1]; // units of all previous products; the total after the last
};

// Kernel parameters on sm_90 may have 32764 bytes (CUDA C++ Programming Guide, from 12.1 on).
static_assert(sizeof(GroupedArgs<7>) == 3648 && sizeof(GroupedArgs<63>) == 32512,
              "GroupedArgs must match the dtype that the launcher packs");

// Adds the arguments of groups of rows, if present, and after them those of scales.
template <class Args, bool row_groups> struct AddRowGroups {
    using Type = Args;
};
template <class Args> struct AddRowGroups<Args, true> {
    using Type = WithRowGroups<Args>;
};
template <class Args, bool scaled> struct AddScales {
    using Type = Args;
};
template <class Args> struct AddScales<Args, true> {
    using Type = WithScales<Args>;
};

template <class Config, u32 capacity = Config::group_capacity> struct ParameterOf {
    using Type = GroupedArgs<capacity>;
};
template <class Config> struct ParameterOf<Config, 0> {
    using Product = KernelArgs<Config::has_epilogue, Config::has_narrow_boxes>;
    using Grouped = typename AddRowGroups<Product, Config::row_groups>::Type;
    using Type = typename AddScales<Grouped, Config::block_scaled>::Type;
};
template <class Config> using Parameter = typename ParameterOf<Config>::Type;

} // namespace cupygemm
