"""The examples of the README and of the documentation run as printed, on the emulated device."""

from __future__ import annotations

import ast
import doctest
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tables import swept

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


# These compile a kernel for most lines, and the functions that they show have other tests. Only
# `make test-all` runs them.
LONG_PAGES = {
    "eight_bit_floats.rst",
    "fuse_an_epilogue.rst",
    "linear_algebra.rst",
    "solve_a_system.rst",
}


def pages_by_target() -> list[Any]:
    """Return the pages with examples by the target that they enable, in halves for two workers."""
    found: dict[str, list[str]] = {}
    long = []
    for path in sorted((ROOT / "docs").rglob("*.rst")):
        text = path.read_text()
        if ">>>" in text:
            target = re.search(r'>>> .*emulator\.enable\("(\w+)"\)', text)
            assert target, f"{path} does not enable the emulated device"
            if path.name in LONG_PAGES:
                long.append((target[1], [str(path)]))
            else:
                found.setdefault(target[1], []).append(str(path))
    halves = ((target, pages[part::2]) for target, pages in found.items() for part in range(2))
    return [*((target, pages) for target, pages in halves if pages), *swept(*long, width=2)]


@pytest.mark.slow
@pytest.mark.parametrize(("target", "pages"), pages_by_target())
def test_examples_of_pages(target: str, pages: list[str], run_python: Callable[..., str]) -> None:
    """Pages of one target share a process, so that CuPy is imported once, but no variables.

    The device is synchronized after each, as at the end of a program.
    """
    code = (
        "import doctest\n"
        "def run(page):\n"
        f"    result = doctest.testfile(page, False, optionflags={OPTIONS})\n"
        "    import cupy\n"
        "    cupy.cuda.runtime.deviceSynchronize()\n"
        "    return result\n"
        f"results = [run(page) for page in {pages}]\n"
        "assert all(result.attempted for result in results), results\n"
        "print(sum(result.failed for result in results))"
    )
    output = run_python(code)
    assert output.splitlines()[-1] == "0", output


def readme_blocks() -> list[tuple[str, str, str]]:
    """Return the Python blocks of the README: (line, code, output printed below it or "")."""
    text = (ROOT / "README.md").read_text()
    pattern = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)
    return [
        (f"line {text[: match.start()].count(chr(10)) + 1}", match[1], match[2] or "")
        for match in pattern.finditer(text)
    ]


@pytest.mark.parametrize(("where", "code", "expected"), readme_blocks())
def test_examples_of_the_readme(
    where: str, code: str, expected: str, run_python: Callable[..., str]
) -> None:
    output = run_python(code, target="gfx942")
    address = re.compile("0x[0-9a-f]+")  # the only part that differs from run to run
    if expected:
        assert address.sub("0x", output) == address.sub("0x", expected)


@pytest.mark.slow
def test_the_example_of_the_landing_page(run_python: Callable[..., str]) -> None:
    text = (ROOT / "docs" / "index.rst").read_text()
    (block,) = re.findall(r"\.\. code-block:: python\n\n((?: .*\n|\n)+)", text)
    code = textwrap.dedent(block) + "print(c.shape, c.dtype)"
    assert run_python(code, target="gfx942").splitlines()[-1] == "(300, 500) float16"


def blocks_of(page: str, language: str) -> list[str]:
    """Return the code blocks of a page of ``docs`` in a language, without their indentation."""
    text = (ROOT / "docs" / page).read_text()
    pattern = rf"\.\. code-block:: {language}\n\n((?:   .*\n|\n)+)"
    return [textwrap.dedent(block) for block in re.findall(pattern, text)]


@pytest.mark.slow
def test_the_commands_that_build_a_code_object(tmp_path: Path) -> None:
    """They compile the kernel above them on the page, and the code below them launches it."""
    page = "howto/your_own_kernels.rst"
    (kernel,) = re.findall(
        r'RawKernel\(r"""\n(.*?)""", "saxpy"', (ROOT / "docs" / page).read_text(), re.DOTALL
    )
    source = re.sub(r"^ *\.\.\. ?", "", kernel, flags=re.MULTILINE)
    (tmp_path / "kernel.hip").write_text(f"#include <hip/hip_runtime.h>\n{source}")
    (build,) = (block for block in blocks_of(page, "sh") if "ld.lld" in block)
    (launch,) = (block for block in blocks_of(page, "python") if "emulator.launch" in block)
    (tmp_path / "launch.py").write_text(f"{launch}\nprint(stats.num_waves, y.min(), y.max())")
    done = subprocess.run(
        ["sh", "-e", "-c", f"{build}\npython launch.py"],
        cwd=tmp_path,
        env=os.environ
        | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("16 2.0 2.0\n", 0), done.stderr


def texts_with_examples() -> list[tuple[str, str]]:
    """Return the README, the pages and the docstrings: (place, text)."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.rst"))]
    texts = [(str(path.relative_to(ROOT)), path.read_text()) for path in paths]
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for path in sorted((ROOT / "cupygemm").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            text = ast.get_docstring(node) if isinstance(node, documented) else None
            if text and ">>>" in text:
                texts.append((f"{path.relative_to(ROOT)}: {getattr(node, 'name', '')}", text))
    return texts


@pytest.mark.slow
def test_examples_import_cupygemm_before_cupy() -> None:
    """They then also run from a checkout on PYTHONPATH, which has no start-up file."""
    late = []
    for place, text in texts_with_examples():
        first = re.search(r"^\W*(import|from) (cupy|cupygemm)\b", text, re.MULTILINE)
        if first is not None and first[2] == "cupy":
            late.append(place)
    assert not late


def test_the_readme_has_examples() -> None:
    assert len(readme_blocks()) >= 2


@pytest.mark.slow
def test_examples_of_docstrings(run_python: Callable[..., str]) -> None:
    """Examples of the emulator and of several devices need a separate process or a cluster."""
    paths = {Path(place.partition(":")[0]) for place, _ in texts_with_examples()}
    modules = sorted(
        ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        for path in paths
        if path.parts[0] == "cupygemm" and path.parts[1] not in ("emulator", "_distributed")
    )
    code = (
        "import doctest, importlib\n"
        f"modules = [importlib.import_module(name) for name in {modules}]\n"
        f"results = [doctest.testmod(module, optionflags={OPTIONS}) for module in modules]\n"
        "assert all(result.attempted for result in results), results\n"
        "print(*map(sum, zip(*((r.failed, r.attempted) for r in results))))"
    )
    output = run_python(code, target="gfx942")
    failed, attempted = output.splitlines()[-1].split()
    assert failed == "0", output
    assert int(attempted) > 0
