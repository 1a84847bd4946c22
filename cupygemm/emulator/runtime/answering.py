"""Convert Python's exceptions to C's result codes: only a number can pass through C.

What a signal handler raises is left to calls.h, which raises it again in Python.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

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
        From an exception to its code and message; None where it is no failure that it knows.
    internal : tuple of int and str
        The code of every other exception, and what its message begins with.
    set_message : callable
        Called with the code and the message of a call that fails, just before it returns.
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


def raised_by_a_handler(err: BaseException) -> BaseException | None:
    """Return the exception that a signal handler raised and that led to `err`, if there is one."""
    seen: BaseException | None = err
    while seen is not None:
        if any(map(_is_handler, _frames(seen))):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


def _frames(err: BaseException) -> Iterator[FrameType]:
    """Yield the frames that an exception has passed through, the outermost first."""
    place = err.__traceback__
    while place is not None:
        yield place.tb_frame
        place = place.tb_next


def _is_handler(frame: FrameType) -> bool:
    """Tell whether a frame is of a signal handler: its arguments hold the frame it interrupted."""
    interrupted = frame.f_back
    if interrupted is None:
        return False
    for value in frame.f_locals.values():
        # By identity: an array in a tuple would compare element by element.
        values = value if type(value) is tuple else (value,)
        if any(each is interrupted for each in values):
            return True
    return False
