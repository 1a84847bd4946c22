"""`ProductStreams`: products of ranges of rows, alternately on two streams.

If the tiles of a product do not fill all compute units, the next product starts on the others
without waiting for its end:

.. code-block:: text

    caller's stream   own rows       | rows of step 2       |
    second stream     | rows of step 1       | rows of step 3       | join
"""

from __future__ import annotations

import contextlib
from typing import Any


class ProductStreams:
    """The current stream and a second one, used alternately.

    Parameters
    ----------
    second : cupy.cuda.Stream or None
        Its work follows all work of the current stream so far. With None, all turns are the current
        stream's.
    """

    def __init__(self, second: Any) -> None:
        from cupy.cuda import get_current_stream

        self._first, self._second = get_current_stream(), second
        if second is not None:
            second.wait_event(self._first.record())

    def turn(self, number: int) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which the stream of turn `number`, from 0, is the current one."""
        if number % 2 and self._second is not None:
            return self._second  # type: ignore[no-any-return]
        return contextlib.nullcontext(self._first)

    def join(self) -> None:
        """Make the first stream wait for the second one."""
        if self._second is not None:
            self._first.wait_event(self._second.record())
