"""What the checks are called and where they are stated, and what becomes of their findings."""
