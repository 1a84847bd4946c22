"""The stand-in HIP run-time compiler: the functions of libhiprtc, on `cupygemm._build.toolchain`.

A program is compiled with this package's headers and, if needed, libc++'s, but none of the
system's. So the result depends only on the program, its options and the compiler. The cache's key
is the preprocessed text, which contains every included header. The methods have the names of
hiprtc's functions, and the C arguments of hiprtc.def.
"""
# ruff: noqa: D102, N802

from __future__ import annotations

import ctypes
import enum
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from cupygemm._build.source_text import bytes_of
from cupygemm._build.toolchain import CompileError, ToolchainError
from cupygemm.emulator.runtime.answering import answering
from cupygemm.emulator.runtime.compile import Compiled, InvalidOption, compile_program
from cupygemm.emulator.runtime.status import store_int, store_size, text_at

VERSION = (7, 0)


class Result(enum.IntEnum):
    """The values of hiprtcResult that the compiler returns."""

    SUCCESS = 0
    INVALID_INPUT = 3
    INVALID_PROGRAM = 4
    INVALID_OPTION = 5
    COMPILATION = 6
    NO_NAME_EXPRESSIONS_AFTER_COMPILATION = 8
    NO_LOWERED_NAMES_BEFORE_COMPILATION = 9
    NAME_EXPRESSION_NOT_VALID = 10
    INTERNAL_ERROR = 11


_INTERNAL = (Result.INTERNAL_ERROR, "internal error of the emulated compiler")


class HiprtcError(Exception):
    """An error that ends a hiprtc call with a result code and a message."""

    def __init__(self, result: Result, message: str) -> None:
        super().__init__(message)
        self.result = result


@dataclass(eq=False)
class _Program:
    """A program between its creation and its destruction."""

    source: str
    name: str
    headers: dict[str, str]
    expressions: list[str] = field(default_factory=list)
    compiled: Compiled | None = None
    log: str = ""
    lowered: dict[str, ctypes.Array[ctypes.c_char]] = field(default_factory=dict)


class HiprtcRuntime:
    """The hiprtc functions, compiling for one target.

    Parameters
    ----------
    target_name : str
    """

    def __init__(self, target_name: str) -> None:
        self.target_name = target_name
        self._programs: dict[int, _Program] = {}
        self._handles = itertools.count(0x1000, 0x10)

    def hiprtcVersion(self, major: int, minor: int) -> None:
        store_int(major, VERSION[0])
        store_int(minor, VERSION[1])

    def hiprtcCreateProgram(
        self, program: int, source: int, name: int, count: int, headers: int, names: int
    ) -> None:
        if not source:
            raise HiprtcError(Result.INVALID_INPUT, "the source is a null pointer")
        texts, titles = _strings(headers, count), _strings(names, count)
        handle = next(self._handles)
        self._programs[handle] = _Program(
            text_at(source),
            (text_at(name) if name else "") or "program.hip",
            dict(zip(titles, texts, strict=True)),
        )
        store_size(program, handle)

    def hiprtcDestroyProgram(self, program: int) -> None:
        handle = ctypes.c_size_t.from_address(program)
        self._program(handle.value)
        del self._programs[handle.value]
        handle.value = 0

    def hiprtcAddNameExpression(self, program: int, expression: int) -> None:
        known = self._program(program)
        if known.compiled is not None:
            raise HiprtcError(
                Result.NO_NAME_EXPRESSIONS_AFTER_COMPILATION, "the program is compiled already"
            )
        known.expressions.append(text_at(expression))

    def hiprtcCompileProgram(self, program: int, count: int, options: int) -> None:
        known = self._program(program)
        try:
            known.compiled = compile_program(
                known.source,
                known.name,
                target_name=self.target_name,
                options=_strings(options, count),
                headers=known.headers,
                expressions=known.expressions,
            )
        except InvalidOption as err:
            known.log = str(err)
            raise HiprtcError(Result.INVALID_OPTION, str(err)) from err
        except CompileError as err:
            known.log = err.log
            raise HiprtcError(Result.COMPILATION, str(err)) from err
        except ToolchainError as err:
            known.log = str(err)
            raise HiprtcError(Result.INTERNAL_ERROR, str(err)) from err
        known.log = known.compiled.log
        known.lowered = {
            expression: ctypes.create_string_buffer(name.encode())
            for expression, name in known.compiled.lowered.items()
        }

    def hiprtcGetLoweredName(self, program: int, expression: int, lowered: int) -> None:
        known = self._compiled(program, Result.NO_LOWERED_NAMES_BEFORE_COMPILATION)
        wanted = text_at(expression)
        if wanted not in known.lowered:
            raise HiprtcError(
                Result.NAME_EXPRESSION_NOT_VALID,
                f"{wanted!r} was not added with hiprtcAddNameExpression before compilation",
            )
        store_size(lowered, ctypes.addressof(known.lowered[wanted]))

    def hiprtcGetProgramLogSize(self, program: int, size: int) -> None:
        store_size(size, len(bytes_of(self._program(program).log)) + 1)

    def hiprtcGetProgramLog(self, program: int, log: int) -> None:
        data = bytes_of(self._program(program).log) + b"\0"
        ctypes.memmove(log, data, len(data))

    # CuPy treats the code as text like PTX and drops its last byte, so a zero byte is appended.

    def hiprtcGetCodeSize(self, program: int, size: int) -> None:
        compiled = self._compiled(program, Result.INVALID_PROGRAM).compiled
        assert compiled is not None
        store_size(size, len(compiled.code) + 1)

    def hiprtcGetCode(self, program: int, code: int) -> None:
        compiled = self._compiled(program, Result.INVALID_PROGRAM).compiled
        assert compiled is not None
        data = compiled.code + b"\0"
        ctypes.memmove(code, data, len(data))

    def callbacks(
        self, set_message: Callable[[Result, str], None]
    ) -> dict[str, Callable[..., int]]:
        """Return the callbacks for `libraries.load_connected`, by hiprtc's names."""
        names = [name for name in dir(self) if name.startswith("hiprtc")]
        return {
            name: answering(getattr(self, name), _failure, _INTERNAL, set_message) for name in names
        }

    def _program(self, program: int) -> _Program:
        if program not in self._programs:
            raise HiprtcError(Result.INVALID_PROGRAM, f"no program 0x{program:x}")
        return self._programs[program]

    def _compiled(self, program: int, otherwise: Result) -> _Program:
        known = self._program(program)
        if known.compiled is None:
            raise HiprtcError(otherwise, "the program is not compiled")
        return known


def _strings(where: int, count: int) -> list[str]:
    """Return the strings of a C array of strings."""
    if not where or count == 0:
        return []
    return [text_at(pointer) for pointer in (ctypes.c_size_t * count).from_address(where)]


def _failure(err: Exception) -> tuple[Result, str] | None:
    return (err.result, str(err)) if isinstance(err, HiprtcError) else None
