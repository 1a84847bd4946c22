"""Enable the emulated device before CuPy is imported, whatever else a program imports first.

Python executes cupygemm_startup.pth, which is installed next to this package, whenever it starts.
If ``CUPYGEMM_EMULATE`` is set, that line calls `install`, and the first import of CuPy enables the
device as ``import cupygemm`` does. Otherwise the line reads one environment variable.

This package is outside cupygemm because importing any module of cupygemm imports NumPy.

This package contains cupygemm's pytest plugin, and pytest would warn that it cannot rewrite the
assertions of a package that is already imported. This word prevents that: PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_PACKAGES = ("cupy", "cupyx", "cupy_backends")


def install() -> None:
    """Make the first import of one of CuPy's packages enable the emulated device."""
    sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds CuPy's packages like `PathFinder`, and gives them a loader that enables the device.

    Finding a package does not enable the device, because programs also look for CuPy without
    importing it.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _PACKAGES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(self, spec.loader)  # type: ignore[assignment]
        return spec


class _Loader:
    """Enables the device, then loads the module with CuPy's usual loader."""

    def __init__(self, finder: _Finder, loader: Any) -> None:
        self._finder = finder
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        import cupygemm  # noqa: F401  # enables the device, or raises an error that says why not

        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        found = _find(spec.name)
        assert found.loader is not None
        spec.loader = self._loader = found.loader
        return spec.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # for programs that only search for the package


def _find(name: str) -> ModuleSpec:
    """Return the spec that the other finders find."""
    for finder in sys.meta_path:
        spec = None if isinstance(finder, _Finder) else finder.find_spec(name, None, None)
        if spec is not None:
            return spec
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
