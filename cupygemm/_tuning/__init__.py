"""Measure configurations and compile kernels ahead of time."""
