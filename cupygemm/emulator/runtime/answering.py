"""Convert Python's exceptions to C's result codes: only a number can pass through C.

Exceptions of signal handlers are left to calls.h, which raises them again in Python.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from cupygemm.emulator.interruptions import raised_by_a_handler

Code = TypeVar("Code", bound=int)


def answering(
    function: Callable[..., None],
    failure: Callable[[Exception], tuple[Code, str] | None],
    internal: tuple[Code, str],
    set_message: Callable[[Code, str], None],
) -> Callable[..., int]:
    """Wrap a function that raises into one that returns a result code, 0 for success.

    Parameters
    ----------
    function : callable
    failure : callable
        Returns the code and the message of an exception, or None for an unknown one.
    internal : tuple of int and str
        The code of every other exception, and the prefix of its message.
    set_message : callable
        Called with the code and the message of a failing call, just before it returns.
    """

    def call(*arguments: Any) -> int:
        try:
            function(*arguments)
        except Exception as err:  # noqa: BLE001  # nothing else may pass through C
            raised = raised_by_a_handler(err)
            code, what = internal
            code, message = failure(err) or (code, f"{what}\n{traceback.format_exc()}")
        else:
            return 0
        if raised is not None:
            raise raised
        set_message(code, message)
        return code

    return call
