"""Arrays of other libraries that hold CuPy arrays as chunks, and the modules that multiply them.

A product calls `multiplier` for an argument that is not a CuPy array before it refuses it. The
modules that multiply such arrays are in packages above the products, so they are registered by
name, and imported for the first such array.
"""

from __future__ import annotations

import importlib
from typing import Any

from cupygemm._request.arrays import ARRAY_TYPES

_MODULES: dict[str, tuple[str, str]] = {}


def register(library: str, module: str, attribute: str = "chunks") -> None:
    """Register the module that multiplies the arrays of a library.

    Parameters
    ----------
    library : str
        The name of its top-level package.
    module : str
    attribute : str
        An attribute that such arrays have, and other objects of the library lack.
    """
    _MODULES[library] = module, attribute


def multiplier(*arrays: Any) -> Any:
    """Return the module that multiplies the arrays; None for arrays of a single device.

    The module has a function for each product that accepts such arrays, with the product's name.
    """
    for array in arrays:
        kind = type(array)
        if kind not in ARRAY_TYPES:
            module, attribute = _MODULES.get(kind.__module__.partition(".")[0], (None, ""))
            if module is not None and hasattr(kind, attribute):
                return importlib.import_module(module)
    return None
