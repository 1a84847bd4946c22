"""The kernels for NVIDIA Hopper: their configurations, sources, compilation, plans and launches.

One module for each step of a call, as in `cupygemm` itself for AMD GPUs; `plan` is what the rest of
the library calls.
"""
