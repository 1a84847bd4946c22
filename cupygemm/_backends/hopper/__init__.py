"""The backend for NVIDIA Hopper: CUDA kernels with wgmma and TMA.

There is one module for each step of a call. `plan` chooses the kernels of a product, and `product`
launches them. `grouped`, `triangle` and `block_scales` are for products that share a launch, are
symmetric, or have scales along k.
"""
