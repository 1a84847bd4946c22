"""`shortcut`: launch a recorded call directly when it is repeated with the same arrays.

The usual way checks the arguments, looks up how the rows are sent, and finds the recording. All of
it follows from the addresses, shapes and types of the arrays and from the keywords, which are the
key of a table here. Only the agreement of the ranks and the launch remain.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from cupygemm._plan.table import PlanTable

_TABLE_SIZE = 512
Function = TypeVar("Function", bound=Callable[..., Any])
Met = tuple[int, tuple[int, ...]]
"""The digest of this rank's call, and those of all ranks."""


class Shortcut:
    """A call, and its recordings by the memory that they use.

    Parameters
    ----------
    function : str
        Its name.
    met : Met
        The digests by which the ranks have agreed on the call.
    """

    def __init__(self, function: str, met: Met) -> None:
        self.function, self.met = function, met
        self.recordings: dict[Hashable, Any] = {}

    def launch(self, group: Any) -> bool:
        """Launch the call if this rank has recorded it and all ranks make it; return whether so."""
        recording = self.recordings.get(group.recordings.next_place)
        if recording is None or not group.meets_again(self.function, self.met):
            return False
        try:
            group.recordings.launch(recording)
        except BaseException:
            with group.guarded():
                raise
        group.raise_if_faulty()
        return True


class Shortcuts:
    """The shortcuts of a rank."""

    def __init__(self) -> None:
        self._table = PlanTable(_TABLE_SIZE)
        self.get: Callable[[Any], Shortcut | None] = self._table.get

    def keep(self, key: Any, function: str, met: Met | None, place: Hashable, found: Any) -> None:
        """Keep the recording of a call, in place of those on which ranks have not agreed."""
        known = self._table.get(key)
        if met is None:  # the ranks are on several hosts
            return
        if known is None or known.met != met:
            known = Shortcut(function, met)
            self._table.keep(key, known)
        known.recordings[place] = found


def shortcut(function: Function) -> Function:
    """Decorate a product of a group to launch recorded calls directly; see the module docstring."""
    name = function.__name__

    @functools.wraps(function)
    def call(a: Any, b: Any, out: Any = None, **keywords: Any) -> Any:
        recordings = getattr(keywords.get("group"), "recordings", None)
        if recordings is None or out is None or "stream" in keywords:
            return function(a, b, out, **keywords)
        try:
            key = (name, _current_device(), *map(_layout, (a, b, out)), *keywords.items())
            known = recordings.shortcuts.get(key)
        except (AttributeError, TypeError):  # no arrays, or a keyword that cannot be a key
            return function(a, b, out, **keywords)
        group = keywords["group"]
        if known is not None and known.launch(group):
            return out
        recordings.launched = None
        result = function(a, b, out, **keywords)
        if recordings.launched is not None:
            recordings.shortcuts.keep(key, name, group.met, *recordings.launched)
        return result

    return call  # type: ignore[return-value]


def _layout(array: Any) -> tuple[Any, ...]:
    return array.data.ptr, array.shape, array.strides, array.dtype.num


def _current_device() -> int:
    from cupy.cuda import runtime

    return int(runtime.getDevice())
