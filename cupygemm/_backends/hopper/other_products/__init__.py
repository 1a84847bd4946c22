"""Products that are not one GEMM: groups, scales along k, and symmetric products."""
