"""The table of plans: one for the whole library, with one kind of key and one size limit.

A key is a tuple that begins with the name of a function. The rest is everything on which the plan
of a call depends: shapes, strides, dtypes, alignment and device of its arrays, and its options
(`cupygemm._plan.keys`). Look-ups need no lock, since dictionary look-ups are atomic; changes do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

MAX_PLANS = 4096
"""Plans that the table keeps; the oldest go first."""

Key = tuple[Any, ...]


class PlanTable:
    """Plans by key.

    Attributes
    ----------
    get : callable
        ``get(key)`` returns the plan of a key, or None. The key None has no plan.
    """

    def __init__(self, size: int = MAX_PLANS) -> None:
        self.size = size
        self._plans: dict[Any, Any] = {}
        self._lock = threading.Lock()
        self.get: Callable[[Key | None], Any] = self._plans.get

    def __len__(self) -> int:
        return len(self._plans)

    def of(self, function: str) -> list[Any]:
        """Return the plans of a function, the oldest first."""
        with self._lock:
            return [plan for key, plan in self._plans.items() if key[0] == function]

    def keep(self, key: Key, plan: Any) -> None:
        """Store a plan; if the table is full, drop the oldest ones."""
        with self._lock:
            while len(self._plans) >= self.size and key not in self._plans:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = plan

    def clear(self) -> None:
        """Drop all plans, because the backends or the tuned configurations have changed."""
        with self._lock:
            self._plans.clear()


NO_PLAN = object()
"""Stands in the table for a call that a special way of computing it does not take."""
PLANS = PlanTable()
"""The table of this process."""
