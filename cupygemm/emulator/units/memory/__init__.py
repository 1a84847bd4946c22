"""SMEM, FLAT, GLOBAL, SCRATCH and buffer instructions, and what finds errors in their use."""
