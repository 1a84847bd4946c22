"""Which configuration computes a product: what is built, what can run, and what is fastest.

How `select` finds it, from left to right::

    orientation   tile_shapes   check        admissible       cost.model      cost.correction
    as C or as    what is       what can     what is worth    cycles of       a network, for the
    transpose     built         run at all   while            each kernel     best of them
    └────────────────────── all kernels at once, in columns (cost.shapes) ──────────────────┘

`admissible` keeps its answers for each kind of product, that is, for types and memory orders. Only
what depends on the extents is computed for each product. `by_sm` and `early_start` say how the
chosen kernel is launched. `fp64` and `tf32x3` say where cuBLAS is faster.
"""
