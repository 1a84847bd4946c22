"""Arrays of other libraries that hold CuPy arrays as chunks, and who multiplies them.

A product that meets an argument which is not a CuPy array asks `multiplier` before it refuses it.
The modules that multiply such arrays lie in packages above the products, so they are registered by
name, and imported when the first such array is met.
"""

from __future__ import annotations

import importlib
from typing import Any

from cupygemm._request.arrays import ARRAY_TYPES

_MODULES: dict[str, tuple[str, str]] = {}


def register(library: str, module: str, attribute: str = "chunks") -> None:
    """Let a module multiply the arrays of a library.

    Parameters
    ----------
    library : str
        The name of its top-level package.
    module : str
    attribute : str
        What distinguishes such arrays from the other objects of the library.
    """
    _MODULES[library] = module, attribute


def multiplier(*arrays: Any) -> Any:
    """Return the module that multiplies the arrays, or None if all of them are of one device.

    The module has a function for each product that takes such arrays, named as the product.
    """
    for array in arrays:
        kind = type(array)
        if kind not in ARRAY_TYPES:
            module, attribute = _MODULES.get(kind.__module__.partition(".")[0], (None, ""))
            if module is not None and hasattr(kind, attribute):
                return importlib.import_module(module)
    return None
