"""Print the lines of a benchmark as they come, to a terminal or to a file that is followed."""

import sys


def print_line(line: str) -> None:
    """Write a line and flush it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
