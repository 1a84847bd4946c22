"""Compile the modelled GPU, and device code in the form that NVRTC takes, for the host.

Three things change in a kernel's text. Each asm statement becomes a call with the statement's text
and operands, so the machine interprets the PTX of the kernels' own wrappers. The declaration of
dynamic shared memory becomes a pointer to the memory of the running block. Each cast to a pointer
checks the alignment that the type requires. An index outside an array traps.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from cupygemm._build.cache import get_or_build
from cupygemm._build.host_compiler import host_compiler_version, host_shared_library
from cupygemm._build.toolchain import find_zig, run
from tests.kernels.host import WITHOUT_RUNTIME

MACHINE = Path(__file__).parent / "machine"
_COMMON = ("-std=c++17", "-g0", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics")
_MACHINE_OPTIONS = (*_COMMON, "-O2")
_KERNEL_OPTIONS = (
    *_COMMON,
    "-O0",  # most of the time is spent in the machine, which is optimized
    "-Wno-unknown-pragmas",
    "-fsanitize=bounds",
    "-fsanitize-trap=bounds",
)
_ASM = re.compile(r"\basm(?: volatile)?\s*\(")
_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKETS = re.compile(_LITERAL.pattern + r"|[][(){}:,]")
_OPERAND = re.compile(r'\s*("[^"]*")\s*\((.*)\)\s*', re.DOTALL)
_CAST = re.compile(r"reinterpret_cast<([^<>]+?) ?\*>\(")
_DYNAMIC = re.compile(r"extern __shared__ .*?(\w+) (\w+)\[\];")
_ENTRY = re.compile(
    r'extern "C" __global__ void(?:(?!extern).)*?\b(cupygemm_\w+)\(', re.DOTALL
)  # not the macro of common/threads.hpp


@functools.cache
def machine() -> ctypes.CDLL:
    """Compile and load the machine; kernels that are loaded later link to its functions."""
    sources = sorted(MACHINE.glob("*.cpp"))

    def build(output: Path) -> None:
        host_shared_library(sources, output, options=_MACHINE_OPTIONS, link_options=WITHOUT_RUNTIME)

    key = (*_texts("*.[ch]pp"), *_MACHINE_OPTIONS, host_compiler_version())
    path = get_or_build("test", key, ".so", build)
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    library.hopper_launch.restype = ctypes.c_char_p
    return library


@functools.cache
def _texts(pattern: str) -> tuple[str, ...]:
    return tuple(path.read_text() for path in sorted(MACHINE.glob(pattern)))


@functools.cache
def kernel(text: str, entry: str) -> ctypes.CDLL:
    """Compile a translation unit of device code for the host, and load it.

    The library exports ``hopper_entry``, which takes the address of the kernel's parameter;
    ``hopper_parameter``, the size of the parameter; and ``hopper_cluster`` and ``hopper_threads``,
    the blocks of a cluster and the threads of a block that the kernel's attributes state.
    """
    machine()
    whole = host_text(text, entry)

    def build(output: Path) -> None:
        source = output.with_suffix(".cpp")
        source.write_text(whole)
        _shared_library(source, output)

    key = (whole, *_texts("*.hpp"), *_KERNEL_OPTIONS, host_compiler_version())
    path = get_or_build("test", key, ".so", build)
    return ctypes.CDLL(str(path))


def _shared_library(source: Path, output: Path) -> None:
    """Compile a kernel, which includes no header of the system.

    ``zig cc`` finds out where those are, and keeps results in a cache of its own. Without it, and
    without a C library, which the machine brings, a kernel takes 0.10 instead of 0.14 s.
    """
    zig = find_zig()
    if zig is None:
        host_shared_library([source], output, options=_KERNEL_OPTIONS, link_options=WITHOUT_RUNTIME)
        return
    object_file = output.with_suffix(".o")
    options = ["--target=x86_64-linux-gnu", "-march=native", "-fPIC", *_KERNEL_OPTIONS]
    what = f"{source.name} does not compile for the host"
    run(what, [str(zig), "clang"], [*options, "-c", str(source), "-o", str(object_file)])
    run(what, [str(zig), "ld.lld"], ["-shared", str(object_file), "-o", str(output)])


def host_text(text: str, entry: str) -> str:
    """Return a kernel's text in the form that the host's compiler takes."""
    found = _ENTRY.search(text)
    assert found is not None
    assert found[1] == entry
    cluster = re.search(r"__cluster_dims__\((.*?), 1, 1\)", found[0])
    threads = re.search(r"__launch_bounds__\(([^,)]+)", found[0])
    assert threads is not None
    shared = r"\1 *\2 = static_cast<\1 *>(hopper_model::hopper_dynamic_shared());"
    exports = f"""
extern "C" void hopper_entry(const void *arguments) {{
    hopper_model::call({entry}, arguments);
}}
extern "C" const unsigned hopper_parameter = hopper_model::parameter_bytes({entry});
extern "C" const unsigned hopper_cluster = {cluster[1] if cluster else "1"};
extern "C" const unsigned hopper_threads = {threads[1]};
"""
    return (
        f'#include "{MACHINE / "cuda.hpp"}"\n'
        + _CAST.sub(r"hopper_model::aligned<\1>(", _DYNAMIC.sub(shared, "".join(_with_calls(text))))
        + exports
    )


def _with_calls(text: str) -> Iterator[str]:
    """Yield the parts of a text, with its asm statements replaced by calls."""
    at = 0
    for found in _ASM.finditer(text):
        end = _closing(text, found.end())
        yield text[at : found.start()]
        yield _call(text[found.end() : end])
        at = end + 1
    yield text[at:]


@functools.cache
def _call(statement: str) -> str:
    """Return the call that replaces an asm statement. Most statements occur in many kernels."""
    template, *sections = _split(statement, ":")
    values = ["site"]
    for section in sections[:2]:  # outputs and inputs; the clobbers do not matter here
        for operand in filter(str.strip, _split(section, ",")):
            found = _OPERAND.fullmatch(operand)
            assert found is not None
            values.append(f"hopper_model::operand({found[1]}, {found[2]})")
    return (
        f"do {{ static hopper_model::Site site = {{{template.strip()}, __func__, nullptr}}; "
        f"hopper_model::execute({', '.join(values)}); }} while (0)"
    )


def _tokens(text: str, start: int) -> Iterator[tuple[int, str]]:
    """Yield the brackets, colons and commas outside string literals, with their places."""
    for found in _BRACKETS.finditer(text, start):
        if found[0][0] != '"':
            yield found.start(), found[0]


def _closing(text: str, start: int) -> int:
    depth = 1
    for at, character in _tokens(text, start):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0:
            return at
    raise ValueError("an asm statement does not end")


def _split(text: str, separator: str) -> list[str]:
    """Split at the separators that are outside literals and brackets."""
    parts, depth, begin = [], 0, 0
    for at, character in _tokens(text, 0):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0 and character == separator:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]
