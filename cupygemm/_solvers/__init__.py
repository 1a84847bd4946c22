"""Factorisations and solutions of linear systems, made of panel kernels and matrix products."""
