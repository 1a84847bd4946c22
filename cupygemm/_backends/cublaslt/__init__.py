"""The backend for cuBLASLt: products of fp32, fp64 and complex numbers on NVIDIA GPUs.

`library` binds the C API, `product` describes a product to it, `algorithm` converts its algorithms
to configurations, and `select` orders them by the time of `model`.
"""
