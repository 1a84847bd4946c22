"""Build and load the stand-in ROCm libraries, and connect their entry points to Python.

Each library is a C file and a ``.def`` file that lists its functions (see amdhip64.def). The latter
yields the linker's version script, the C entry points and, here, the argument formats of the
callbacks. The libraries are loaded with RTLD_GLOBAL before CuPy, under the names that CuPy's
extension modules request, so that the loader finds them already loaded.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cupygemm._build.cache import get_or_build
from cupygemm._build.host_compiler import host_compiler_version, host_shared_library

MakeCallbacks = Callable[[Callable[[int, str], None]], dict[str, Callable[..., int]]]

_HERE = Path(__file__).parent
# Entry points only call Python, so optimizing hundreds of them takes seconds and gains nothing.
_OPTIONS = ("-O0", "-Wall", "-Wextra", "-Werror", "-nostdlib", f"-I{_HERE}")


@dataclass(frozen=True)
class Function:
    """One line of a ``.def`` file.

    Attributes
    ----------
    node : str
        Symbol version, e.g. ``"hip_4.2"``.
    name : str
    parameters : tuple of str or None
        C declarations; None for a function defined in the C file.
    """

    node: str
    name: str
    parameters: tuple[str, ...] | None


@dataclass(frozen=True)
class Library:
    """One stand-in library: its C file's stem, and the name that CuPy's modules request."""

    stem: str
    soname: str


# In the order in which they are loaded.
HIP = Library("amdhip64", "libamdhip64.so.7")
HIPRTC = Library("hiprtc", "libhiprtc.so.7")
OTHERS = (
    Library("rocfft", "librocfft.so.0"),
    Library("roctracer64", "libroctracer64.so.4"),
    Library("roctx64", "libroctx64.so.4"),
)


class Dim3(ctypes.Structure):
    """HIP's dim3."""

    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


class _Callback(ctypes.Structure):
    """The ``struct callback`` of calls.h."""

    _fields_ = (("function", ctypes.c_void_p), ("format", ctypes.c_char_p))


# Callbacks that C refers to until the process ends.
_connected: list[Any] = []

# Py_BuildValue's letters for C types; every pointer, and the address of a struct, is a "K".
_FORMATS = {
    "int": "i",
    "unsigned": "I",
    "unsigned char": "B",
    "unsigned short": "H",
    "size_t": "K",
}


def functions(library: Library) -> list[Function]:
    """Return the functions of a library, in the order of its callback table."""
    listing = _HERE / f"{library.stem}.def"
    if not listing.exists():
        return []
    found = []
    for line in listing.read_text(encoding="utf-8").splitlines():
        match = re.match(r"(FUNCTION|NATIVE)\((\w+), (\w+)(?:, \((.*?)\), \()?", line)
        if match is None:
            continue
        kind, node, name, parameters = match.groups()
        declared = tuple(parameters.split(", ")) if kind == "FUNCTION" else None
        node = re.sub(r"_(?=\d+$)", ".", node)  # hip_4_2 is hip_4.2
        found.append(Function(node, name, declared if declared != ("void",) else ()))
    return found


def load(library: Library) -> ctypes.CDLL:
    """Build (or find in the cache) and load a library."""
    return ctypes.CDLL(str(build(library)), mode=ctypes.RTLD_GLOBAL)


def load_connected(library: Library, make_callbacks: MakeCallbacks) -> ctypes.CDLL:
    """Load a library and connect its entry points.

    Parameters
    ----------
    library : Library
    make_callbacks : callable
        Called with a function that sets the message of a failing call; returns the callbacks by
        function name. A callback receives the C arguments, with pointers as integers (0 for null)
        and structs by address, and returns a status. A function without a callback is not
        supported.

    Returns
    -------
    ctypes.CDLL
    """
    loaded = load(library)
    loaded.cupygemm_set_message.argtypes = (ctypes.c_int, ctypes.c_char_p)
    loaded.cupygemm_set_message.restype = None

    def set_message(status: int, message: str) -> None:
        loaded.cupygemm_set_message(status, message.encode(errors="replace"))

    callbacks = make_callbacks(set_message)
    listed = [function for function in functions(library) if function.parameters is not None]
    table = (_Callback * len(listed))()
    for position, function in enumerate(listed):
        if function.name in callbacks:
            callback = callbacks[function.name], _format(function)
            _connected.append(callback)
            table[position] = _Callback(id(callback[0]), callback[1])
    loaded.cupygemm_set_main_thread(ctypes.c_ulong(threading.main_thread().ident or 0))
    loaded.cupygemm_set_callbacks(table)
    return loaded


def build(library: Library) -> Path:
    """Build a library, or find it in the cache, and return its path."""
    source = _HERE / f"{library.stem}.c"
    key: list[str | bytes] = [host_compiler_version(), library.soname, *_OPTIONS[:-1]]
    # This file and the ``.def`` files determine the version script.
    for path in [source, Path(__file__), *sorted([*_HERE.glob("*.def"), *_HERE.glob("*.h")])]:
        key += [path.name, path.read_bytes()]

    def compile_library(output: Path) -> None:
        options = list(_OPTIONS)
        version_script = None
        script = "".join(_version_script(functions(library)))
        if script:
            version_script = output.with_name("versions.map")
            version_script.write_text(script, encoding="utf-8")
        host_shared_library(
            [source],
            output,
            soname=library.soname,
            version_script=version_script,
            options=options,
        )

    return get_or_build("runtime", key, ".so", compile_library)


def _version_script(listed: list[Function]) -> Iterator[str]:
    nodes = sorted({function.node for function in listed})
    for number, node in enumerate(nodes):
        names = "".join(f" {function.name};" for function in listed if function.node == node)
        local = " local: *;" if number == 0 else ""
        yield f"{node} {{ global:{names}{local} }};\n"


def _format(function: Function) -> bytes:
    """Return the types of a function's arguments, for Py_BuildValue."""
    assert function.parameters is not None
    letters = [
        "K" if "*" in declaration else _FORMATS.get(declaration.rpartition(" ")[0], "K")
        for declaration in function.parameters
    ]
    return f"({''.join(letters)})".encode()
