"""The names and sources of the checks, and the handling of their findings."""
