"""Kernels and headers of the solvers in CUDA, which only some backends compile."""

from __future__ import annotations

from cupygemm._backends.kernel_kind import KernelKind

TEAM_OF_CLUSTER = "hopper/team.cuh"
"""The header for a team of workgroups that is a thread-block cluster."""
ROWS_PRODUCT = "hopper/rows_product.cuh"
"""The header for products with the rows of an LU block in fp64, for such teams."""
GRAM_SUMS = "hopper/gram_sums.cuh"
"""The header for the products of the columns of a QR block in fp64, for such teams."""
UPDATE_BLOCK = KernelKind("update_block", "=QQQqqqqqqqiiii", "hopper/{}.cu")
"""A product inside a panel."""
PANEL_PRODUCT = KernelKind("panel_product", "=QQQqqqqqqqiiii", "hopper/{}.cu")
"""A product of float32 blocks inside a panel, nearly as accurate as float32."""
HOLD_UNITS = KernelKind("hold_units", "=QQ", "hopper/{}.cu")
"""The kernel that reserves some SMs for the factorisation of a panel."""
STORE_WORDS = KernelKind("store_words", "=Qqii", "hopper/{}.cu")
"""The kernel that stores a number to adjacent words."""
FACTOR_TILE = KernelKind("factor_tile", "=QqqQqqQii", "hopper/{}.cu")
"""A Cholesky factorisation of each matrix of a stack, which has at most 128 rows."""
SOLVE_TILES = KernelKind("solve_tiles", "=QqqqQqqqQqqqQQQiiii", "hopper/{}.cu")
"""A Cholesky factorisation, or a triangular system with many right-hand sides, in one launch."""
