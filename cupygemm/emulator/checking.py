"""Whether launches are checked for what a GPU would get wrong silently.

Checked launches watch registers and LDS that nothing has written, loads that nothing has waited
for, and races in LDS and in device memory. Unchecked ones give the same results faster. Bounds,
alignment and barriers are looked at either way.
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
    """Tell whether launches are checked: by default, and unless the environment says 0.

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
    """Check the launches of this thread, or do not, inside a ``with`` statement.

    Parameters
    ----------
    enabled : bool
        Whether to look for missing waits, uses of what nothing has written, and races.
    alignment : bool
        Whether to report plain loads and stores that are not aligned to their size, too (to 4 bytes
        for 12 bytes of device memory, to 16 for 12 of LDS). They are legal on these targets, and
        slower; other devices refuse them.

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
