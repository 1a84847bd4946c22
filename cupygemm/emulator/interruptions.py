"""Distinguish exceptions that a signal handler raised from other failures."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType


def raised_by_a_handler(err: BaseException) -> BaseException | None:
    """Return the signal handler's exception that led to `err`, or None."""
    seen: BaseException | None = err
    while seen is not None:
        if any(map(_is_handler, _frames(seen))):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


def _frames(err: BaseException) -> Iterator[FrameType]:
    """Yield the frames that an exception has passed through, outermost first."""
    place = err.__traceback__
    while place is not None:
        yield place.tb_frame
        place = place.tb_next


def _is_handler(frame: FrameType) -> bool:
    """Tell whether a frame is a signal handler's: an argument is the frame that it interrupted."""
    interrupted = frame.f_back
    if interrupted is None:
        return False
    for value in frame.f_locals.values():
        # By identity: an array in a tuple would compare element by element.
        values = value if type(value) is tuple else (value,)
        if any(each is interrupted for each in values):
            return True
    return False
