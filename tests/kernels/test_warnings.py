"""CDNA's device code compiles without warnings, which the library's own compilations switch off."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.mainloops import configs_for
from cupygemm._backends.cdna.source import config_text, generate
from cupygemm._backends.kernel_kind import KernelKind
from cupygemm._build.cache import get_or_build
from cupygemm._build.flatten import flatten
from cupygemm._build.toolchain import CompileError, find_toolchain
from cupygemm._records.dtypes import ELEMENT_TYPES
from cupygemm._solvers.common import kernels
from tests.kernels.test_epilogue import EVERYTHING, PROBLEM
from tests.tables import rows_of

WARNINGS = ("-Wall", "-Wextra", "-Werror")


def check_text(text: str, arch: str, folder: Path) -> None:
    """Parse a translation unit with all warnings as errors, if the cache does not know it."""
    toolchain, options = find_toolchain(), ("-Xclang", "-fsyntax-only", *WARNINGS)

    def parse(output: Path) -> None:
        source = folder / "kernel.hip"
        source.write_text(text)
        toolchain.compile_to_assembly(source, folder / "none", target=arch, options=options)
        output.write_text("passes\n", encoding="utf-8")

    key = text, arch, *options, toolchain.name, toolchain.version
    get_or_build("test-warnings", key, ".txt", parse)


def products() -> Iterator[Any]:
    """Return the first configuration of each mainloop for each type, with and without epilogue."""
    for arch, dtype in ((arch, dtype) for arch in ARCHS for dtype in ELEMENT_TYPES):
        met = set()
        for config in configs_for(dtype, arch):
            if (kind := (config.mainloop, config.partition)) in met:
                continue
            for epilogue in (None, EVERYTHING):
                problem = replace(
                    PROBLEM,
                    a_dtype=dtype,
                    b_dtype=dtype,
                    out_dtype=ELEMENT_TYPES[dtype].accumulator,
                    b_major="k",
                    epilogue=epilogue,
                )
                if check(config, problem, ARCHS[arch]) is None:
                    met.add(kind)
                    parts = "epilogue" if epilogue else "plain"
                    name = f"{arch}-{dtype}-{config.mainloop}-{config.partition}-{parts}"
                    yield pytest.param(arch, config, problem, id=name)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("arch", "config", "problem"), rows_of(products, width=3))
def test_products(arch, config, problem, tmp_path):
    check_text(generate(problem, config, arch), arch, tmp_path)


def test_groups(tmp_path):
    arch, config, problem = next(products()).values
    text = flatten("cdna/grouped_gemm.hip", {"config.hpp": config_text(problem, config, arch)})
    check_text(text, arch, tmp_path)
    with pytest.raises(CompileError, match="unused variable 'idle'"):
        check_text(text + "inline void f() { int idle = 0; }", arch, tmp_path)


OF_THE_TYPE = {"smallest_invertible", "tolerance", "negligible"}
SIZES = {"by_products": False, "groups": 4, "logarithms": True, "right_sides": 8}
SIZES |= {"team": 1, "threads": 128}
OF_A_TILE = {"groups": 16, "rows": 5, "threads": 512}
OF_A_WINDOW = {"across": 4, "rows": 160, "threads": 1024}
OF_HALF_A_PANEL = {"groups": 16, "rows": 4, "threads": 512}
KINDS = [kind for kind in vars(kernels).values() if isinstance(kind, KernelKind)]
TILE, WINDOW, TOP = kernels.WINDOWED_TILE, kernels.NEXT_WINDOW, kernels.QR_TOP
OF_REALS = (kernels.ERROR_PARTS, kernels.ROW_NORMS, kernels.KRYLOV_STEP, kernels.KRYLOV_END)


def check_solver(kind: KernelKind, char: str, sizes: dict[str, int], folder: Path) -> None:
    names = set(re.findall(r"Config::([a-z_]+)", kernels.source(kind, char, {})))
    constants = {name: sizes.get(name, 32) for name in sorted(names - OF_THE_TYPE)}
    check_text(kernels.source(kind, char, constants), "gfx942", folder)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("char", "fdFD")
@pytest.mark.parametrize(
    "kind",
    [kind for kind in KINDS if kind not in (TILE, WINDOW, TOP, *OF_REALS)],
    ids=lambda kind: kind.name,
)
def test_solvers(kind, char, tmp_path):
    check_solver(kind, char, SIZES, tmp_path)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("char", "fd")
@pytest.mark.parametrize("kind", OF_REALS, ids=lambda kind: kind.name)
def test_solvers_of_real_systems(kind, char, tmp_path):
    check_solver(kind, char, SIZES | {"most": 17, "maxima": 6}, tmp_path)


@pytest.mark.parametrize("char", "fd")
def test_half_a_panel(char, tmp_path):
    check_solver(TOP, char, SIZES | OF_HALF_A_PANEL, tmp_path)


def test_tiles_of_windows(tmp_path):
    check_solver(TILE, "f", SIZES | OF_A_TILE, tmp_path)
    check_solver(WINDOW, "f", SIZES | OF_A_WINDOW, tmp_path)
