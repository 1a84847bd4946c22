"""From the sources of a kernel to a cubin in the cache."""
