"""Cache a function's result for as long as its argument lives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

Key = TypeVar("Key")
Result = TypeVar("Result")


def weak_cache(function: Callable[[Key], Result]) -> Callable[[Key], Result]:
    """Return a version of a function that computes its result once per object, such as a kernel.

    `functools.cache` would keep the objects alive. So would a result that refers to its argument.
    """
    results: WeakKeyDictionary[Key, Result] = WeakKeyDictionary()

    @functools.wraps(function)
    def cached(key: Key) -> Result:
        try:
            return results[key]
        except KeyError:
            pass
        result = results[key] = function(key)
        return result

    return cached
