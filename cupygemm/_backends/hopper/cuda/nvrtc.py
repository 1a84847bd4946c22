"""Compile CUDA C++ to a cubin by NVRTC, through CuPy's binding or with the library from PyPI.

CuPy's `RawModule` compiles for ``sm_90`` but never for ``sm_90a``, which wgmma needs. CuPy's
binding of NVRTC accepts any option. Without CuPy for CUDA, the library of the package
``nvidia-cuda-nvrtc`` is called by ctypes, so that kernels can be compiled without a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from cupygemm._build.toolchain import CompileError, ToolchainError


class Nvrtc(Protocol):
    """A way to call NVRTC."""

    version: str

    def compile(self, text: str, options: Sequence[str]) -> tuple[bytes, str]:
        """Return the cubin and the compiler's log, or raise CompileError."""
        ...


@functools.cache
def find_nvrtc() -> Nvrtc:
    """Return NVRTC.

    Raises
    ------
    ToolchainError
        NVRTC was not found.
    """
    try:
        import cupy
        from cupy_backends.cuda.libs import nvrtc

        if not cupy.cuda.runtime.is_hip:
            return _CupyNvrtc(nvrtc)
    except ImportError:
        pass
    library = find_library()
    if library is None:
        raise ToolchainError(
            "NVRTC, which compiles the kernels for Hopper, was not found: CuPy is not built for "
            "CUDA, and the package nvidia-cuda-nvrtc is not installed"
        )
    return _LibraryNvrtc(library)


def find_library() -> Path | None:
    """Return the NVRTC library of a package from PyPI, or None."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        found = sorted(Path(folder).glob("cu*/lib/libnvrtc.so.*"))
        if found:
            return found[-1]
    return None


class _CupyNvrtc:
    """NVRTC through ``cupy_backends``."""

    def __init__(self, binding: Any) -> None:
        self._binding = binding
        self.version = "{}.{}".format(*binding.getVersion())

    def compile(self, text: str, options: Sequence[str]) -> tuple[bytes, str]:
        nvrtc = self._binding
        program = nvrtc.createProgram(text, "cupygemm.cu", (), ())
        try:
            try:
                nvrtc.compileProgram(program, tuple(options))
            except nvrtc.NVRTCError as err:
                log = nvrtc.getProgramLog(program)
                raise CompileError(
                    "NVRTC cannot compile the kernel", log, ("nvrtc", *options)
                ) from err
            return bytes(nvrtc.getCUBIN(program)), str(nvrtc.getProgramLog(program))
        finally:
            nvrtc.destroyProgram(program)


class _LibraryNvrtc:
    """NVRTC through ctypes."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("Version", ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def compile(self, text: str, options: Sequence[str]) -> tuple[bytes, str]:
        program = ctypes.c_void_p()
        self._call(
            "CreateProgram",
            ctypes.byref(program),
            text.encode(),
            b"cupygemm.cu",
            0,  # no headers
            None,
            None,
        )
        try:
            arguments = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
            status = self._library.nvrtcCompileProgram(program, len(options), arguments)
            log = self._text(program, "ProgramLog").rstrip(b"\0").decode()
            if status:
                raise CompileError("NVRTC cannot compile the kernel", log, ("nvrtc", *options))
            return self._text(program, "CUBIN"), log
        finally:
            self._call("DestroyProgram", ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"Get{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", program, text)
        return text.raw

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, f"nvrtc{name}")(*arguments)
        if status:
            message = self._library.nvrtcGetErrorString(status).decode()
            raise RuntimeError(f"nvrtc{name}: {message}")
