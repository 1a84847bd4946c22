"""Batches of small matrices, which have a separate kernel."""
