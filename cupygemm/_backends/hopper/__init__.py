"""The kernels for NVIDIA Hopper: their configurations, sources, compilation, plans and launches.

One module for each step of a call, as in `cupygemm` itself for AMD GPUs. The rest of the library
calls `plan`, which chooses, and `product`, which launches; and `grouped`, `triangle` and
`block_scales` for products that share a launch, are symmetric, or have scales along k.
"""
