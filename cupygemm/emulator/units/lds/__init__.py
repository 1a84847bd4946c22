"""DS instructions: LDS, its bank conflicts, and what finds errors in the use of it."""
