"""Compile HIP source as hiprtc does: with its implicit headers, options and name expressions.

For a name expression (``kernel<float>``), its symbol is returned. A device variable initialised
with the expression's address is added to the source, and its relocation names the symbol.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cupygemm._build.cache import get_or_build
from cupygemm._build.source_text import read_source, write_source
from cupygemm._build.toolchain import CompileError, Toolchain, find_toolchain
from cupygemm.emulator.code_object import kept_source
from cupygemm.emulator.code_object.elf import open_elf, pointed_to
from cupygemm.emulator.code_object.line_table import EMULATOR, OWN_FOLDER
from cupygemm.emulator.diagnostics import source_findings
from cupygemm.emulator.runtime import cxx_library, precompiled, unwritten, user_macros
from cupygemm.emulator.runtime.compiler_notes import with_notes
from cupygemm.emulator.runtime.cxx_library import CxxLibrary

HEADERS = EMULATOR / "hip_headers"

_NAME = "cupygemm_name_expression_"
_TOO_SMALL = b"needs the larger library"  # the cache's entry for such a program
KEEP_NAMES = "-fno-discard-value-names"  # of a kernel's arguments, for reports

# They do not change the code.
_LINES = ("-gline-tables-only", "-fdebug-compilation-dir=.", *unwritten.EXPLICIT_LINES)
_HASHED = re.compile(r"[0-9a-f]{32,}(?:\.hsaco)?\.cu")  # CuPy's name for a program without a file

# Options of hiprtc and NVRTC, and the equivalents for clang; None drops an option.
_SPELLINGS: dict[str, str | None] = {
    "--use_fast_math": "-ffast-math",
    "-use_fast_math": "-ffast-math",
    "--device-debug": "-g",
    "-G": "-g",
    "-lineinfo": "-gline-tables-only",
    "--generate-line-info": "-gline-tables-only",
    "--fmad=true": "-ffp-contract=fast",
    "-fmad=true": "-ffp-contract=fast",
    "--fmad=false": "-ffp-contract=off",
    "-fmad=false": "-ffp-contract=off",
    "-fcuda-flush-denormals-to-zero": "-fgpu-flush-denormals-to-zero",
    "--extra-device-vectorization": None,
    "-default-device": None,
    "--gpu-rdc": None,
    "-fgpu-rdc": None,
}
_SANITIZE = "-fsanitize="
_TRAPPING = ("array-bounds", "shift-base", "shift-exponent", "signed-integer-overflow",
             "integer-divide-by-zero")  # fmt: skip
_GROUPS = {"bounds": ["array-bounds"], "shift": ["shift-base", "shift-exponent"]}
_ARCHITECTURE = re.compile(r"(?:--gpu-architecture|-arch|--offload-arch|--amdgpu-target)=(\S+)")


class InvalidOption(ValueError):
    """An option that the compiler cannot apply to this device."""


@dataclass(frozen=True)
class Compiled:
    """A compiled program.

    Attributes
    ----------
    code : bytes
        The code object.
    log : str
        The compiler's warnings.
    lowered : dict of str to str
        The symbol of each name expression.
    """

    code: bytes
    log: str
    lowered: dict[str, str]


def compile_program(
    source: str,
    name: str,
    *,
    target_name: str,
    options: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    expressions: Sequence[str] = (),
    rtc: bool = True,
) -> Compiled:
    """Compile HIP source for the emulated device, or find it in the cache.

    The source is first compiled with the small C++ library, which is parsed in a fraction of the
    time. If that fails, it is compiled with the full library, whose errors are reported.

    Parameters
    ----------
    source : str
    name : str
        Its name in diagnostics.
    target_name : str
        LLVM's name of the processor.
    options : sequence of str, optional
        hiprtc's or clang's.
    headers : mapping of str to str, optional
        Text of headers, by the name in the source's include directives.
    expressions : sequence of str, optional
        Names whose symbols to return.
    rtc : bool, optional
        Whether to compile as hiprtc does, by default; otherwise, as hipcc does.

    Returns
    -------
    Compiled

    Raises
    ------
    CompileError
        With the compiler's log.
    InvalidOption
        An option names another processor.
    """
    toolchain = find_toolchain()
    with tempfile.TemporaryDirectory(prefix="cupygemm-hiprtc-") as folder:
        work = Path(folder)
        title = Path(name).name or "program.hip"
        file = work / ("kernel.cu" if _HASHED.fullmatch(title) else title)
        write_source(file, source + _references(expressions))
        for title, text in (headers or {}).items():
            header = work / "include" / title.lstrip("/")
            header.parent.mkdir(parents=True, exist_ok=True)
            write_source(header, text)
        program = _Program(toolchain, file, target_name, options, expressions, rtc)
        libraries = cxx_library.SMALL, cxx_library.full() if "#include" in source else None
        try:
            path = program.build(*libraries)
        except CompileError as err:
            log = with_notes(err.log.replace(f"{work}/", ""), source, name)
            raise CompileError(f"{name} does not compile", log, err.command) from err
        head, _, code = path.read_bytes().partition(b"\n")
        meaning = json.loads(head)
        return Compiled(code, meaning["log"].replace(f"{work}/", ""), meaning["lowered"])


def preprocess_program(
    source: str, name: str, *, target_name: str, options: Sequence[str] = ()
) -> str:
    """Return preprocessed HIP source; parameters and errors as for `compile_program`."""
    with tempfile.TemporaryDirectory(prefix="cupygemm-hiprtc-") as folder:
        work = Path(folder)
        file = work / (Path(name).name or "program.hip")
        write_source(file, source)
        program = _Program(find_toolchain(), file, target_name, options, (), rtc=False)
        try:
            return program.preprocess(_arguments(program, cxx_library.SMALL))
        except CompileError:
            if (full := cxx_library.full()) is None:
                raise
            return program.preprocess(_arguments(program, full))


@dataclass(frozen=True)
class _Program:
    """A file to compile, in its own folder.

    Attributes
    ----------
    toolchain : Toolchain
    file : pathlib.Path
    target_name : str
        LLVM's name of the processor.
    options : sequence of str
        hiprtc's or clang's.
    expressions : sequence of str
        Names whose symbols to return.
    rtc : bool
        Whether to compile as hiprtc does; otherwise, as hipcc does.
    """

    toolchain: Toolchain
    file: Path
    target_name: str
    options: Sequence[str]
    expressions: Sequence[str]
    rtc: bool

    def build(self, library: CxxLibrary, larger: CxxLibrary | None) -> Path:
        """Return the cached file with the code, compiled with the first C++ library that works."""
        try:
            arguments = _arguments(self, library)
            headers = self._headers(library, arguments)
            text = headers and precompiled.key_text(headers, self.file.name)
            if text is None:
                text = self.preprocess(arguments)
            # The digest is also in the code, since equal texts may include different headers.
            key = [self.toolchain.version, headers_digest(), KEEP_NAMES, self.target_name, text]
            if self.keeps_source:
                key += [*_LINES, OWN_FOLDER, read_source(self.file)]
            key += [*library.options, str(larger is None), *self.options, "\0", *self.expressions]

            def compile_it(output: Path) -> None:
                try:
                    self._compile(arguments, headers, output)
                except CompileError:
                    if larger is None:
                        raise
                    output.write_bytes(_TOO_SMALL)

            path = get_or_build("hiprtc", key, ".bin", compile_it)
        except CompileError:
            if larger is None:
                raise
        else:
            if larger is None or path.read_bytes() != _TOO_SMALL:
                return path
        return self.build(larger, None)

    @functools.cached_property
    def keeps_source(self) -> bool:
        """Tell whether reports quote its lines: it is a user's, compiled by hiprtc."""
        return self.rtc and not source_findings.is_generated(read_source(self.file))

    def preprocess(self, arguments: Sequence[str]) -> str:
        """Return the program's text with includes expanded."""
        return self.toolchain.preprocess(self.file, target=self.target_name, options=arguments)

    def _headers(self, library: CxxLibrary, arguments: Sequence[str]) -> precompiled.Headers | None:
        return precompiled.headers_of(
            self.toolchain,
            self.file,
            target_name=self.target_name,
            options=[*_options(self), *library.options],
            arguments=arguments,
            version=headers_digest(),
        )

    def _compile(
        self, arguments: Sequence[str], headers: precompiled.Headers | None, output: Path
    ) -> None:
        """Compile, and write a line of JSON followed by the code object."""
        file, toolchain = self.file, self.toolchain
        object_file, binary = file.with_name("kernel.o"), file.with_name("kernel.hsaco")
        log = precompiled.compile_to_object(
            toolchain,
            file,
            object_file,
            target_name=self.target_name,
            arguments=arguments,
            headers=headers,
        )
        lowered = _lowered(object_file, self.expressions)
        found = source_findings.comments(read_source(file), log.replace(f"{file.parent}/", ""))
        marked = file.with_name("marked.o")
        ways = precompiled.ways(headers, arguments)
        if self.keeps_source and unwritten.compile_marked(
            toolchain,
            file,
            marked,
            plain=object_file,
            target_name=self.target_name,
            ways=ways,
            numbers=source_findings.doubtful(log),
        ):
            object_file = marked
        objects = [object_file, self._comments(found)]
        log += toolchain.link(objects, binary, target=self.target_name)
        log = source_findings.without_shortened(log)
        head = json.dumps({"log": log.replace(f"{file.parent}/", ""), "lowered": lowered})
        code = binary.read_bytes()
        if self.keeps_source:
            code = kept_source.with_source(code, file.name, read_source(file))
        output.write_bytes(head.encode() + b"\n" + code)

    def _comments(self, found: Sequence[str]) -> Path:
        """Return an object file with comments: the compiler's version and its findings."""
        # CuPy's kernel cache compiles an empty program to find out whether the compiler has
        # changed, so the code contains the versions of the compiler and of the headers.
        version = f'\t.ident "cupygemm {self.toolchain.version} {headers_digest()}"\n'
        source = self.file.with_name("comments.s")
        write_source(source, "".join([version, *found]))

        def assemble(output: Path) -> None:
            self.toolchain.assemble(source, output, target=self.target_name, link=False)

        return get_or_build("comments", [self.target_name, read_source(source)], ".o", assemble)


@functools.cache
def headers_digest() -> str:
    """Return a digest of the emulator's HIP headers and of its warnings."""
    state = hashlib.sha256(Path(source_findings.__file__).read_bytes())
    state.update(Path(kept_source.__file__).read_bytes())
    for name in ("unwritten.py", "local_bounds.py", "ir_types.py"):
        state.update(Path(__file__).with_name(name).read_bytes())
    for folder in cxx_library.OWN_FOLDERS:
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            state.update(path.relative_to(folder).as_posix().encode() + b"\0")
            state.update(path.read_bytes() + b"\0")
    return state.hexdigest()[:16]


def _arguments(program: _Program, library: CxxLibrary) -> list[str]:
    work = program.file.parent
    options, macros = user_macros.split(_options(program))
    if program.rtc:
        macros += user_macros.own_integers(read_source(program.file))
    arguments = [
        *precompiled.IMPLICIT,
        *user_macros.write(macros, work),
        "-D__HIPCC_RTC__=1" if program.rtc else "-D__HIPCC__=1",
        "-nostdinc",
        f"-ffile-prefix-map={work}/=",
        f"-ffile-prefix-map={EMULATOR}/={OWN_FOLDER}",
        f"-I{work / 'include'}",
        "-Wno-unused-command-line-argument",
        *source_findings.options(read_source(program.file)),
        KEEP_NAMES,
        *(_LINES if program.keeps_source else ()),
        *options,
        *library.options,
    ]
    # After the user's folders, so that the user's headers are found first. Some projects have
    # ROCm's include/hip among their folders, and write <hip_bf16.h>.
    for folder in (*library.first, HEADERS, *library.then):
        arguments += ["-isystem", str(folder)]
    return [*arguments, "-idirafter", str(HEADERS / "hip")]


def _options(program: _Program) -> list[str]:
    """Return a program's options in clang's spelling."""
    options: list[str] = []
    for option in program.options:
        architecture = _ARCHITECTURE.fullmatch(option)
        if architecture is not None:
            processor = architecture[1].partition(":")[0]
            if processor != program.target_name:
                raise InvalidOption(
                    f"{option} asks for {processor}, and the emulated device is "
                    f"{program.target_name}"
                )
        elif option.startswith(
            ("--std=", "--include-path=", "--define-macro=", "--undefine-macro=")
        ):
            long, _, value = option.partition("=")
            short = {"--std": "-std=", "--include-path": "-I", "--define-macro": "-D"}
            options.append(short.get(long, "-U") + value)
        elif option.startswith(_SANITIZE):
            options += _trapping(option.removeprefix(_SANITIZE).split(","))
        elif option in _SPELLINGS:
            spelling = _SPELLINGS[option]
            options += [spelling] if spelling else []
        else:
            options.append(option)
    return options


def _trapping(checks: Sequence[str]) -> list[str]:
    """Return the options for the checks of -fsanitize= that can end a kernel with a trap.

    clang's driver drops all -fsanitize= options for AMD GPUs.
    """
    named = (each for check in checks for each in _GROUPS.get(check, [check]))
    chosen = ",".join(each for each in named if each in _TRAPPING)
    words = [f"-fsanitize={chosen}", f"-fsanitize-trap={chosen}"] if chosen else []
    return [word for each in words for word in ("-Xclang", each)]


def _references(expressions: Sequence[str]) -> str:
    """Return declarations of a variable for each expression, which holds its address."""
    lines = [
        f'extern "C" __attribute__((device, used)) const void* {_NAME}{position} = '
        f"(const void*)({expression if expression.startswith('&') else '&' + expression});"
        for position, expression in enumerate(expressions)
    ]
    return "".join("\n" + line for line in lines) + "\n"


def _lowered(object_file: Path, expressions: Sequence[str]) -> dict[str, str]:
    """Return the symbol of each expression from the variables that `_references` declared."""
    if not expressions:
        return {}
    symbols = pointed_to(open_elf(object_file.read_bytes()))
    try:
        return {text: symbols[f"{_NAME}{index}"] for index, text in enumerate(expressions)}
    except KeyError as err:
        raise CompileError(f"a name expression has no symbol: {err}", "", ()) from err
