"""Common parts of the factorisations: matrices, kernels, products, block sizes and errors."""
