"""Pause Python's garbage collector while many long-lived small objects are made."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused_collector() -> Iterator[None]:
    """Disable garbage collection inside a ``with`` statement.

    Importing modules and decoding instructions makes thousands of objects, none of them garbage,
    which Python would traverse again and again.
    """
    collecting = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if collecting:
            gc.enable()
