"""Decide whether launches are checked for errors that a GPU does not report.

A checked launch reports uses of registers and memory that were never written, missing waits, and
races in LDS and in device memory. An unchecked launch gives the same results faster. Bounds,
alignment and barriers are checked in both.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Iterator

VARIABLE = "CUPYGEMM_EMULATE_CHECKS"
_NAMES = {"": True, "1": True, "0": False}
_alignment: contextvars.ContextVar[bool] = contextvars.ContextVar("alignment", default=False)
_chosen: contextvars.ContextVar[bool | None] = contextvars.ContextVar("checks", default=None)


def checking() -> bool:
    """Tell whether launches are checked, as they are by default.

    Raises
    ------
    ValueError
        The variable's value is neither 0 nor 1.
    """
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    value = os.environ.get(VARIABLE, "")
    if value not in _NAMES:
        raise ValueError(f"{VARIABLE} must be 0 or 1 (got {value!r})")
    return _NAMES[value]


def strict_alignment() -> bool:
    """Tell whether plain accesses must be aligned to their size."""
    return _alignment.get()


@contextlib.contextmanager
def checks(enabled: bool = True, *, alignment: bool = False) -> Iterator[None]:
    """Switch the checks of this thread's launches on or off inside a ``with`` statement.

    Parameters
    ----------
    enabled : bool
        Whether to report missing waits, uses of values that were never written, and races.
    alignment : bool
        Whether to report plain loads and stores that are not aligned to their size. Accesses of
        12 bytes must be aligned to 4 bytes in device memory and to 16 in LDS. Unaligned accesses
        are legal but slower on these targets; other devices refuse them.

    Examples
    --------
    >>> from cupygemm import emulator
    >>> with emulator.checks(False):
    ...     c = a @ b  # doctest: +SKIP
    >>> with emulator.checks(alignment=True):
    ...     c = a @ b  # doctest: +SKIP
    """
    tokens = _chosen.set(bool(enabled)), _alignment.set(bool(alignment))
    try:
        yield
    finally:
        _chosen.reset(tokens[0])
        _alignment.reset(tokens[1])
