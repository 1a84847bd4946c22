"""SMEM, FLAT, GLOBAL, SCRATCH and buffer instructions, and the detection of errors in their use."""
