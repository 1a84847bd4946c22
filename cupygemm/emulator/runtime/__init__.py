"""The stand-in ROCm runtime under which CuPy's unmodified ROCm build runs with no GPU."""
