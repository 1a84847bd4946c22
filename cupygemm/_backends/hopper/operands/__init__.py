"""Stacks of operands in memory, and copies of those that TMA or wgmma cannot read in place."""
