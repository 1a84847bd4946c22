"""The calls of HIP functions in a process of its own, counted by the emulated runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from cupygemm.emulator.runtime import hip_memory, hip_module, hip_stream

Seen = Callable[[str, tuple[Any, ...]], object]
WAITS = ("hipDeviceSynchronize", "hipStreamSynchronize", "hipEventSynchronize", "hipMemcpy")
"""Functions that wait for the device."""


def counted(*names: str, seen: Seen = lambda name, args: None) -> Counter[str]:
    """Count the program's calls of these functions from now on, and pass each to `seen`.

    Call this before the device is enabled. Calls by other functions of the runtime do not count.
    """
    counts: Counter[str] = Counter()
    inside: list[str] = []

    def counting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any) -> Any:
            if not inside and (name in names or name in WAITS):
                counts[name] += 1
                seen(name, args)
            inside.append(name)
            try:
                return method(self, *args)
            finally:
                inside.pop()

        return call

    for module in (hip_memory, hip_module, hip_stream):
        for owner in vars(module).values():
            for name in (*names, *WAITS, "hipMemcpyAsync"):  # which calls hipMemcpy here
                if isinstance(owner, type) and name in vars(owner):
                    setattr(owner, name, counting(name, vars(owner)[name]))
    return counts


def waits(counts: Counter[str]) -> dict[str, int]:
    """Return how often each function that waits was called."""
    return {name: counts[name] for name in WAITS if counts[name]}
