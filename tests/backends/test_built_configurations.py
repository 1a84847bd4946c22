"""Every configuration that is built can be chosen: `check` accepts it for some problem.

A row of a table that `check` turns down for every problem would be compiled and ranked by nobody.
The tests name each such row, with what `check` says of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem

OUTPUTS = {"f64": "f64", "i8": "i32", "c64": "c64", "c128": "c128"}  # of other types, f32


def problems(dtype: DType, *out_dtypes: str) -> Iterator[GemmProblem]:
    """Yield products of a type in every order of memory: of large matrices, and of few rows."""
    shapes = ((4096, 4096, 4096), (12, 4096, 4096), (4096, 12, 4096))
    for out_dtype, (m, n, k), a_major, b_major in itertools.product(
        out_dtypes, shapes, ("k", "m"), ("k", "n")
    ):
        problem = GemmProblem(
            m=m,
            n=n,
            k=k,
            batch=(),
            a_dtype=dtype,
            b_dtype=dtype,
            out_dtype=out_dtype,
            a_major=a_major,
            b_major=b_major,
        )
        yield replace(problem, block_scaled=dtype == "e2m1x2")


def never_accepted(
    configs: tuple, tried: list[GemmProblem], objection: Callable[..., str | None]
) -> dict[str, str]:
    """Return the configurations that fit no problem, each with its last refusal."""
    found = {}
    for config in configs:
        objections = []
        for problem in tried:
            why = objection(config, problem)
            if why is None:
                break
            objections.append(why)
        else:
            found[config.name] = objections[-1] if objections else "no problem was tried"
    return found


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_check_accepts_every_configuration_of_cdna(arch: str) -> None:
    from cupygemm._backends.cdna.arch import ARCHS
    from cupygemm._backends.cdna.check import check
    from cupygemm._backends.cdna.mainloops import configs_for

    built = 0
    for dtype in ITEMSIZE:
        tried = list(problems(dtype, OUTPUTS.get(dtype, "f32")))
        configs = configs_for(dtype, arch)
        built += len(configs)
        refused = never_accepted(configs, tried, lambda c, p: check(c, p, ARCHS[arch]))
        assert refused == {}, dtype
    assert built > 50


def test_check_accepts_every_configuration_of_hopper() -> None:
    from cupygemm._backends.hopper.choice.check import check
    from cupygemm._backends.hopper.choice.configurations import configs_for_product
    from cupygemm._backends.hopper.choice.orientation import as_computed
    from cupygemm._backends.hopper.config import HopperArch

    # Of 16-bit results there are configurations that compute the transpose.
    types = ("bf16", "f16", "tf32", "tf32x3", "f64", "i8", "e4m3fn", "e5m2")
    built = set()
    for dtype in types:
        by_problem = {}
        outputs = ["bf16"] if ITEMSIZE[dtype] == 2 else []
        for problem in problems(dtype, OUTPUTS.get(dtype, "f32"), *outputs):
            for config in configs_for_product(problem):
                by_problem.setdefault(config, []).append(problem)
        built |= set(by_problem)
        for config, tried in by_problem.items():
            refused = never_accepted(
                (config,),
                tried,
                lambda c, p: check(c, as_computed(p, transposed_c=c.transposed_c), HopperArch()),
            )
            assert refused == {}, dtype
    assert len(built) > 90
