"""Pause Python's garbage collector while many small objects are made that stay."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused_collector() -> Iterator[None]:
    """Do not look for garbage inside a ``with`` statement.

    Imports and decoded instructions are thousands of objects of which none is garbage, and Python
    would walk them all again and again.
    """
    collecting = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if collecting:
            gc.enable()
