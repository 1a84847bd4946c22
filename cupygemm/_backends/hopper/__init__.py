"""The backend for NVIDIA Hopper: CUDA kernels with wgmma and TMA.

There is one module for each step of a call::

    backend     a request → a plan: one of the choices below, compiled and ready to be launched
    requests    which types and arrays the kernels take
    plan        a layout → the kernels of one product, with the copies of operands they need
    product     the launches of one product; launch, enqueue and tensormap are its parts

How `plan` chooses a configuration for a product, from left to right::

    orientation   tile_shapes   check        admissible       cost, cost_fixed   correction
    as C or as    what is       what can     what is worth    cycles of each,    a network, for
    transpose     built         run at all   while            by the model       the best of them
    └───────────────────── select: all kernels at once, in columns ─────────────────────┘

`admissible` keeps its answers for each kind of product, that is, for types and memory orders. Only
what depends on the extents is computed for each product. `cost_shapes` has the columns. `by_sm` and
`early_start` say how the chosen kernel is launched. `fp64` and `tf32x3` say where cuBLAS is faster.

Other products have a choice of their own: `grouped` (of different shapes, in one launch),
`row_groups` (groups of rows, whose sizes are on the device), `block_scales` (scales along k),
`triangle` (symmetric ones), and `small` (batches of small matrices).

`source` generates the text of a kernel, `compile` and `nvrtc` compile it, and `driver` binds what
CuPy does not.
"""
