"""Name the remedy when CuPy's ROCm build finds no ROCm, as on a machine without an AMD GPU.

``import cupy`` then raises an ImportError about libamdhip64, which does not mention the emulated
device. ``import cupygemm`` calls `install`, which adds a note to later failures of this kind. The
start-up file does not call it, since it must not slow down other programs of the environment.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

REMEDY = """\
cupygemm: This CuPy is built for AMD GPUs, and found no ROCm runtime (libamdhip64).
  To run it on an emulated GPU, set CUPYGEMM_EMULATE=gfx942 before Python starts,
  or call cupygemm.emulator.enable("gfx942") before CuPy is imported."""


def install() -> None:
    """Make the next import of CuPy add `REMEDY` to the error of a missing ROCm runtime."""
    if "cupy" not in sys.modules and not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds CuPy like `PathFinder`, and gives it a loader that adds the note."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "cupy":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(self, spec.loader)  # type: ignore[assignment]
        return spec


class _Loader:
    """Runs CuPy's own loader, and leaves no trace in a module that loads successfully."""

    def __init__(self, finder: _Finder, loader: Any) -> None:
        self._finder = finder
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        try:
            self._loader.exec_module(module)
        except ImportError as err:
            if "libamdhip64" in str(err):
                err.add_note(REMEDY)
            raise
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # for programs that only search for the package
