"""Backends: the components that compute products, all with the same interface."""
