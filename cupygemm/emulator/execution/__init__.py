"""Execute batches of workgroups: the run loop in C and in Python, and its scheduler."""
