"""From source text to compiled kernels in the cache: compilers and the kernel cache."""
