"""The subjects of the mutation harness: kernels of the HIP corpus, and the GEMM kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from cupygemm.emulator.execution.schedule import Order
from tests.emulator.mutation import Outcome, Subject
from tests.hip.harness import Program, compile_source

RNG = np.random.default_rng(11)


def corpus(
    file: str,
    kernel: str,
    arguments: Sequence[Any],
    *,
    grid: Sequence[int] = (1, 1, 1),
    block: Sequence[int],
    dynamic_lds: int = 0,
    target: str = "gfx942",
    level: str = "-O3",
) -> Subject:
    """Return a kernel of the HIP corpus; every array argument counts as an output."""

    def execute(path: Path, order: Order) -> Outcome:
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        stats = Program(path, target)(
            kernel, grid, block, *copies, dynamic_lds=dynamic_lds, order=order
        )
        outputs = tuple(a.tobytes() for a in copies if isinstance(a, np.ndarray))
        return Outcome(outputs, stats)

    name = f"{file.removesuffix('.hip')}.{kernel}{level}.{target}"
    return Subject(
        name=name,
        path=compile_source(file, target, level),
        target=target,
        kernel=kernel,
        runs=(execute,),
    )


def i32(*shape: int) -> np.ndarray:
    """Return small random integers."""
    return RNG.integers(-100, 100, shape).astype(np.int32)


def f32(*shape: int) -> np.ndarray:
    """Return small random integers as floats."""
    return RNG.integers(-100, 100, shape).astype(np.float32)


def subjects(part: str = "") -> Iterator[Subject]:
    """Yield the subjects whose name contains `part`; a kernel is compiled when it is yielded."""
    for subject in corpus_subjects():
        if part in subject.name:
            yield subject
    for name, choice in gemm_choices():
        if part in name:
            yield gemm(*choice)


def corpus_subjects() -> Iterator[Subject]:
    """Yield kernels with every way to wait: loads of all kinds, LDS, DPP, scratch, buffers."""
    for target, level in (("gfx942", "-O3"), ("gfx942", "-O0"), ("gfx90a", "-O3")):
        for file, kernel, arguments, shape in corpus_launches():
            yield corpus(file, kernel, arguments, **shape, target=target, level=level)


def corpus_launches() -> Iterator[tuple[str, str, list[Any], dict[str, Any]]]:
    """Yield file, kernel, arguments, and grid, block and dynamic LDS by name."""
    zeros, size = np.zeros, np.int32
    halves = i32(3, 150).astype("f2")

    def of(file: str, kernel: str, *arguments: Any, **shape: Any) -> Any:
        return f"{file}.hip", kernel, list(arguments), shape

    two, four = {"grid": (2, 1, 1)}, {"grid": (2, 2, 1)}
    x, m, n = f32(1024), f32(32, 32), f32(32, 32)
    yield of("reduce", "sum_f32", x, zeros(2, "f4"), size(1000), **two, block=(256, 1, 1))
    yield of("reduce", "max_tree", i32(512), zeros(2, "i4"), **two, block=(256, 1, 1))
    u = i32(192).view("u4")
    yield of("reduce", "scan_u32", u, zeros(192, "u4"), zeros(1, "u4"), block=(192, 1, 1))
    smallest = zeros(1, "i4"), zeros(1, "f4")
    yield of("reduce", "argmin", x, *smallest, size(1000), block=(128, 1, 1))
    turned = zeros((40, 50), "f4")
    yield of(
        "tiles", "transpose_f32", f32(50, 40), turned, size(50), size(40), **four, block=(32, 8, 1)
    )
    line = f32(300), zeros(300, "f4"), size(300)
    yield of("tiles", "stencil_1d", *line, **two, block=(192, 1, 1), dynamic_lds=784)
    yield of("tiles", "row_sums", i32(22, 40), zeros(22, "i4"), size(40), **two, block=(12, 11, 1))
    counts = RNG.integers(0, 256, 900).astype("u1"), zeros(256, "u4"), size(900)
    yield of("atomics", "histogram", *counts, **two, block=(128, 1, 1))
    yield of("atomics", "lds_u32", zeros(6, "u4"), i32(256).view("u4"), block=(256, 1, 1))
    yield of(
        "products", "matmul_f32", m, n, zeros((32, 32), "f4"), size(32), **four, block=(16, 16, 1)
    )
    vector = i32(150).astype("f2"), zeros(3, "f4"), size(150)
    yield of("products", "matvec_f16", halves, *vector, grid=(3, 1, 1), block=(64, 1, 1))
    yield of("control", "rounds", i32(192), zeros(192, "i4"), size(3), block=(192, 1, 1))
    yield of("control", "barrier_on_both_sides", i32(128), zeros(128, "i4"), block=(128, 1, 1))
    yield of("memory", "sort_private", i32(10, 16), zeros((10, 16), "i4"), block=(10, 1, 1))
    words = i32(260).view("u4"), zeros(260, "u4")
    yield of("memory", "dynamic_lds", *words, **two, block=(130, 1, 1), dynamic_lds=650)
    yield of("memory", "straight_to_lds", i32(256), zeros(256, "i4"), block=(256, 1, 1))
    octets = RNG.integers(0, 256, 2048).astype("u1"), zeros(2048, "u1"), size(2048)
    yield of("memory", "buffer_widths", *octets, block=(64, 1, 1))
    yield of("memory", "globals", zeros(12, "i4"), zeros(12), block=(12, 1, 1))
    a, b = i32(16, 16).astype("f2"), i32(16, 16).astype("f2")
    yield of("matrix", "f16_16x16x16", a, b, zeros((16, 16), "f4"), block=(64, 1, 1))


Choice = tuple[str, Any, str, str, bool]  # target, configuration, dtype, majors, odd extents


def gemm_choices() -> Iterator[tuple[str, Choice]]:
    """Yield every bf16 kernel of every target and two of each other type, and their names."""
    from cupygemm._backends.cdna.arch import ARCHS
    from cupygemm._backends.cdna.mainloops import configs_for

    for arch in ARCHS:
        for dtype in ("bf16", "f32", "f64", "i8"):
            configs = configs_for(dtype, arch)
            chosen = configs if dtype == "bf16" else configs[1::5][:2]
            for number, config in enumerate(chosen):
                majors = ("kn", "mk", "kk", "mn")[number % 4]
                # Bytes need rows that start at dwords, as do all types in most mainloops.
                aligned = dtype == "i8" or config.mainloop != "register_double_buffer"
                transposes = arch == "gfx950" and dtype == "bf16" and number % 4 == 0
                if config.mainloop == "direct_to_lds" and not transposes:
                    majors = "kk"
                for odd in (False,) if aligned else (False, True):
                    choice = arch, config, dtype, majors, odd
                    yield gemm_name(*choice), choice


def gemm_name(arch: str, config: Any, dtype: str, majors: str, odd: bool) -> str:
    """Return the name of a GEMM subject."""
    name = f"gemm.{dtype}.{config.name}.{majors}{'.odd' if odd else ''}.{arch}"
    return name.replace("register_double_buffer_", "")


def gemm(arch: str, config: Any, dtype: str, majors: str, odd: bool) -> Subject:
    """Return a GEMM kernel with tails of m and n, and optionally of k.

    With `odd` extents the operands are not aligned, which needs another kernel.
    """
    from cupygemm._backends.cdna.compile import compile_kernel
    from tests.kernels import gemm as cases

    m, n, k = config.tile_m, config.tile_n, config.tile_k
    m, n = (m + 5, n - 3) if odd else (m + 8, n - 8)
    if config.mainloop == "direct_to_register":  # at most 16 rows or columns
        m, n = (12, n) if config.tile_m < config.tile_n else (m, 12)
    shapes = ((m, n, 2 * k + 24), (m, n, 3 * k), (m, n, k))
    out_dtype = "i32" if dtype == "i8" else dtype
    tried = [
        cases.with_layout(
            cases.Case(config, arch, m=m, n=n, k=k, dtype=dtype, out_dtype=out_dtype), majors
        )
        for m, n, k in shapes
    ]
    compiled: list[Any] = []

    def compile_once(*arguments: Any) -> Any:
        compiled.append(compile_kernel(*arguments))
        return compiled[-1]

    with mock.patch.object(cases, "compile_kernel", compile_once):
        for case in tried:
            case.run()
    kernel = compiled[0]
    if any(other.path != kernel.path for other in compiled):
        raise ValueError(f"the shapes {shapes} need different kernels")

    def runner(case: Any) -> Any:
        def execute(path: Path, order: Order) -> Outcome:
            replaced = mock.Mock(path=path, wraps=kernel)
            replaced.name = kernel.name
            with mock.patch.object(cases, "compile_kernel", return_value=replaced):
                result = case.run(order=order)
            return Outcome((result.buffer.tobytes(),), result.stats)

        return execute

    name = gemm_name(arch, config, dtype, majors, odd)
    return Subject(
        name=name,
        path=kernel.path,
        target=arch,
        kernel=kernel.name,
        runs=tuple(runner(case) for case in tried),
    )
