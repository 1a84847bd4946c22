"""Factorisations and solutions of linear systems, by panel kernels and matrix products."""
