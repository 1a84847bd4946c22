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


@contextlib.contextmanager
def checks(enabled: bool) -> Iterator[None]:  # with checks(False): reads well
    """Check the launches of this thread, or do not, inside a ``with`` statement.

    Parameters
    ----------
    enabled : bool
        Whether to look for missing waits, reads of what nothing has written, and races.

    Examples
    --------
    >>> from cupygemm import emulator
    >>> with emulator.checks(False):
    ...     c = a @ b  # doctest: +SKIP
    """
    token = _chosen.set(bool(enabled))
    try:
        yield
    finally:
        _chosen.reset(token)
