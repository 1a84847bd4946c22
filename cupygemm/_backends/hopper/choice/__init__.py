"""The choice of a configuration: what is built, what can run, and what is fastest.

The steps of `select`, from left to right::

    orientation   configurations   check        admissible       cost.model      cost.correction
    as C or as    what is built    what can     what is worth    cycles of       a network, for the
    transpose     (tile_shapes)    run at all   while            each kernel     best of them
    └────────────────────── all kernels together, in columns (cost.shapes) ────────────────────┘

`admissible` caches its answers for each kind of product, that is, for types and memory orders. Only
terms that depend on the extents are computed for each product. `by_sm` and `early_start` decide how
the chosen kernel is launched. `fp64` and `tf32x3` decide where cuBLAS is faster.
"""
