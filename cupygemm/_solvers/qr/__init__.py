"""QR factorisation by Householder reflections, and singular values from it."""
