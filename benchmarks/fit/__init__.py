"""Measure kernels on the GPU at hand and refit the constants of the cost models.

``python -m benchmarks.fit sweep`` measures, ``hopper`` and ``cdna`` refit; see
docs/developer/fit_the_cost_model.rst.
"""
