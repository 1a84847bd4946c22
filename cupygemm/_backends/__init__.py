"""Backends: the peers that compute products, each behind the same protocol."""
