"""Kernels in source, before they run: arguments that they would misread, idioms of warps."""
