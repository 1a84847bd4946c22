"""LU factorisation with partial pivoting."""
