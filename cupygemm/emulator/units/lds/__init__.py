"""DS instructions: LDS, its bank conflicts, and the detection of errors in its use."""
