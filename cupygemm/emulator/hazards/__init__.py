"""Waits that a program must have: for loads in flight, and wait states between instructions."""
