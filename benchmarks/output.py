"""Print the lines of a benchmark immediately, for a terminal or a file that is watched."""

import sys


def print_line(line: str) -> None:
    """Write a line and flush it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
