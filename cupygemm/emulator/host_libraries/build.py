"""Build the stand-in libraries from their listings, load them and connect them to Python."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import Any

from cupygemm._build.cache import get_or_build
from cupygemm._build.host_compiler import host_compiler_version, host_shared_library
from cupygemm.emulator.host_libraries import listing
from cupygemm.emulator.host_libraries.library import HostLibrary
from cupygemm.emulator.runtime import libraries

_HERE = Path(__file__).parent
_RUNTIME = Path(libraries.__file__).parent
_OPTIONS = ("-O0", "-Wall", "-Wextra", "-Werror", "-nostdlib")  # as in `libraries`

# Functions that C refers to until the process ends.
_connected: list[Any] = []


def connect(library: HostLibrary) -> ctypes.CDLL:
    """Load a stand-in under the library's name, and connect its functions.

    Parameters
    ----------
    library : HostLibrary

    Returns
    -------
    ctypes.CDLL
    """
    loaded = ctypes.CDLL(str(build(library)), mode=ctypes.RTLD_GLOBAL)
    functions = library.functions()
    _connected.append(functions)
    table = (ctypes.c_void_p * len(functions))(*[id(function) for function in functions])
    loaded.cupygemm_connect(table, ctypes.c_ulong(threading.main_thread().ident or 0))
    return loaded


def build(library: HostLibrary) -> Path:
    """Build the library, or find it in the cache, and return its path."""
    failed = library.statuses["internal_error"]
    key: list[str | bytes] = [host_compiler_version(), library.soname, *_OPTIONS]
    key += [str(failed), library.extra_source]
    # The source depends only on these files; generating it takes longer than loading the library.
    made_of = Path(listing.__file__), listing.listing_of(library.stem)
    for path in (*made_of, _HERE / "entry.h", _RUNTIME / "calls.h"):
        key += [path.name, path.read_bytes()]

    def compile_library(output: Path) -> None:
        file = output.with_name(f"{library.stem}.c")
        source = listing.c_source(listing.read_listing(library.stem), failed)
        file.write_text(source + library.extra_source, encoding="utf-8")
        host_shared_library(
            [file],
            output,
            soname=library.soname,
            options=[*_OPTIONS, f"-I{_HERE}", f"-I{_RUNTIME}"],
        )

    return get_or_build("runtime", key, ".so", compile_library)
