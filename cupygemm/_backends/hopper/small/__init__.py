"""Batches of small matrices, which have a kernel of their own."""
