"""Checks of kernels in source before they run: misread arguments and warp idioms."""
