"""Device memory: addresses, allocations, which bytes are valid, and who accessed them last."""
