"""Cholesky factorisation and triangular systems, in blocks."""
