"""No module outside ``cupygemm/_backends`` names an architecture, a vendor or a backend's record.

This concerns code: imports, and the names of variables, attributes, functions and arguments. The
emulator is a CDNA device, so it may name CDNA.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import cupygemm
from cupygemm._backends.cdna import arch as cdna_arch
from cupygemm._backends.cdna import config as cdna_config
from cupygemm._backends.hopper import config as hopper_config

PACKAGE = Path(cupygemm.__file__).parent
ROOMS_THAT_MAY = ("_backends", "emulator")
EXCEPTIONS = {
    # The compiler of ROCm, and the device that CuPy's ROCm wheel uses.
    "_build/toolchain.py": {"_rocm_toolchain"},
    "_commands/detect.py": {"_rocm"},
    # Figures that the emulated device counts.
    "_commands/cli.py": {"mfma"},
    "_commands/demo.py": {"mfma"},
}
WORDS = re.compile(
    r"cdna|hopper|gfx|sm_?\d\d|nvidia|amd|radeon|(?<![a-z])mi\d{3}|(?<![a-z])[ha]\d00|rocm|cuda_?arch"
    r"|mfma|wgmma|cublas|rocblas",
    re.IGNORECASE,
)
RECORDS = {
    name
    for module in (cdna_arch, cdna_config, hopper_config)
    for name, value in vars(module).items()
    if isinstance(value, type) and value.__module__ == module.__name__
}
SOURCES = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if path.relative_to(PACKAGE).parts[0] not in ROOMS_THAT_MAY
)


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the identifiers of a module and its imports, with their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.ImportFrom(module=str(name)):
                yield node.lineno, name
            case ast.keyword(arg=str(name)):
                yield node.lineno, name
            case ast.alias(name=name, asname=other):
                yield node.lineno, name
                yield node.lineno, other or ""


def offences(source: str) -> list[tuple[int, str]]:
    """Return the names in a source text that only a backend may use."""
    return [
        (line, name)
        for line, name in names(ast.parse(source))
        if RECORDS & set(name.split(".")) or WORDS.search(name)
    ]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_backends_name_what_they_are_for(path: Path) -> None:
    allowed = EXCEPTIONS.get(path.relative_to(PACKAGE).as_posix(), set())
    found = [
        (line, name)
        for line, name in offences(path.read_text(encoding="utf-8"))
        if name not in allowed
    ]
    assert not found, "; ".join(f"{path}:{line}: {name}" for line, name in found)


@pytest.mark.parametrize(
    "source",
    [
        "from cupygemm._backends.cdna import select",
        "import cupygemm._backends.hopper.backend",
        "isinstance(config, GemmConfig)",
        "def f(arch: Arch): ...",
        "device.is_gfx942",
        "run(sm_90=True)",
    ],
)
def test_such_names_are_found(source: str) -> None:
    assert offences(source)


def test_each_exception_is_needed() -> None:
    for name, allowed in EXCEPTIONS.items():
        found = {word for _, word in offences((PACKAGE / name).read_text())}
        assert allowed <= found, name
