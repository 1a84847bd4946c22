"""Measuring configurations ahead of time, and compiling kernels ahead of time."""
