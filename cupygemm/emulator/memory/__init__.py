"""Device memory: addresses, allocations, valid bytes, and the last accesses."""
