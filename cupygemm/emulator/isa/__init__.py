"""The instruction set: decode machine code, and print it."""
