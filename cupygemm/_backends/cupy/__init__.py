"""The fallback: `cupy.matmul`, for products that no kernel of this library computes."""
