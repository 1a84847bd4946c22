"""What the factorisations share: matrices in place, kernels, products, block sizes and errors."""
