"""The two C++ libraries for compiling HIP source.

The small one is part of this package and has the parts of the standard headers that kernels use
most. Parsing it takes a tenth of a second less than parsing the full one, and up to a second less
for programs that include many headers. The full one is LLVM's libc++ over musl's C headers, from
the package ziglang. So it has all standard headers, and is the same on every machine. As with
hipcc, device code can call only the library's ``constexpr`` functions.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_HERE = Path(__file__).resolve().parent.parent
# The macros that zig defines when it compiles C++, instead of libc++'s __config_site.
_CONFIGURATION = """
_LIBCPP_ABI_VERSION=1 _LIBCPP_ABI_NAMESPACE=__1 _LIBCPP_HAS_THREADS=1 _LIBCPP_HAS_MONOTONIC_CLOCK
_LIBCPP_HAS_TERMINAL _LIBCPP_DISABLE_VISIBILITY_ANNOTATIONS
_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS=0 _LIBCPP_HAS_FILESYSTEM=1 _LIBCPP_HAS_RANDOM_DEVICE
_LIBCPP_HAS_LOCALIZATION _LIBCPP_HAS_UNICODE _LIBCPP_HAS_WIDE_CHARACTERS
_LIBCPP_HAS_NO_STD_MODULES _LIBCPP_HAS_TIME_ZONE_DATABASE _LIBCPP_PSTL_BACKEND_SERIAL
_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_NONE
_LIBCPP_ASSERTION_SEMANTIC_DEFAULT=_LIBCPP_ASSERTION_SEMANTIC_IGNORE
"""
# Errors that this clang reports in this library, and the compilers of HIP programs do not.
_LENIENT = ("-Wno-invalid-specialization", "-Wno-missing-template-arg-list-after-template-kw")
CLibrary = Literal["musl", "gnu"]
_FOLDERS = ("libcxx/include", "include")
_C_FOLDERS: dict[CLibrary, tuple[str, ...]] = {
    "musl": ("libc/include/x86_64-linux-musl", "libc/include/generic-musl"),
    "gnu": (
        "libc/include/x86-linux-gnu",
        "libc/include/generic-glibc",
        "libc/include/x86-linux-any",
        "libc/include/any-linux-any",
    ),
}


@dataclass(frozen=True)
class CxxLibrary:
    """A C++ library.

    Attributes
    ----------
    first : tuple of pathlib.Path
        Folders of headers that come before HIP's.
    then : tuple of pathlib.Path
        Folders that come after them.
    options : tuple of str
        Options of the compiler.
    """

    first: tuple[Path, ...]
    then: tuple[Path, ...] = ()
    options: tuple[str, ...] = ()


SMALL = CxxLibrary((_HERE / "small_library",))
# The folders of headers whose text is this package's.
OWN_FOLDERS = (_HERE / "hip_headers", _HERE / "small_library", _HERE / "full_library")


@functools.cache
def full(c_library: CLibrary = "musl") -> CxxLibrary | None:
    """Return the full library over a C library; None if the package ziglang is not installed."""
    spec = importlib.util.find_spec("ziglang")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        names = (*_FOLDERS, *_C_FOLDERS[c_library])
        folders = tuple(Path(folder, "lib", each) for each in names)
        if all(each.is_dir() for each in folders):
            macros = [f"-D{each}" for each in _CONFIGURATION.split()]
            macros += ["-D_LIBCPP_HAS_MUSL_LIBC=1"] if c_library == "musl" else []
            return CxxLibrary(
                (_HERE / "full_library",),
                folders,
                (f"--target=x86_64-unknown-linux-{c_library}", *_LENIENT, *macros),
            )
    return None
