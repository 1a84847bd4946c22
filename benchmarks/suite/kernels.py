"""One kernel for each architecture, element type and mainloop, and all figures of it.

The kernel has the largest tile that the mainloop builds, for a product in C order if the mainloop
reads that, else with x2 in F order. Only the tables of configurations choose it, not the cost
model, so a figure changes only if a kernel does. The code object is read (*computed*), one
workgroup runs on the emulated device at two depths (*emulated*), and the timing model extrapolates
its trace to whole products (*modelled*). `computed`, `emulated` and `modelled` publish the figures.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import itertools
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from suite.commit import MissingError, configs, find, record
from suite.digest import digest, normalised

TARGETS = ("gfx90a", "gfx942", "gfx950")
TYPES = (
    "bf16",
    "f16",
    "e4m3fn",
    "e5m2",
    "e4m3fnuz",
    "e5m2fnuz",
    "e2m1x2",
    "i8",
    "tf32",
    "f32",
    "f64",
    "c64",
    "c128",
)
MAINLOOPS = ("register_double_buffer", "ping_pong", "direct_to_lds", "direct_to_register")
SHAPES = ("1024x1024x1024", "4096x4096x4096", "8192x8192x8192", "16x8192x8192", "4096x14336x4096")
_SIZES = {"bf16": 2, "f16": 2, "tf32": 4, "f32": 4, "f64": 8, "c64": 8, "c128": 16}  # others: 1
_RESULTS = {"bf16": "bf16", "f16": "f16", "i8": "i32", "f64": "f64", "c64": "c64", "c128": "c128"}
_SHORT, _LONG = 4, 8  # steps of tile_k
_FEW = 16  # rows or columns of products for direct_to_register
_MAJORS = (("k", "n"), ("k", "k"))
Case = tuple[str, str, str]  # architecture, type, mainloop
_SCALE_BYTES = 1 << 20  # more than the factors of MX operands need


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of one kernel; None or absent if the commit lacks them."""

    registers: int
    spills: int
    lds: int
    code_size: int
    loop: float | None = None
    """Issue cycles of the main loop per cycle of its MFMA."""
    instructions: float | None = None
    """Wave-instructions of a workgroup in a step of tile_k."""
    conflicts: float | None = None
    """LDS cycles that bank conflicts cost a workgroup in a step of tile_k."""
    cycles: dict[str, float] = field(default_factory=dict)
    """Modelled cycles by shape."""


class KernelFigures:
    """Parameters and cache shared by the computed, emulated and modelled benchmarks."""

    params: ClassVar[tuple[tuple[str, ...], ...]] = (TARGETS, TYPES, MAINLOOPS)
    param_names: ClassVar[tuple[str, ...]] = ("architecture", "type", "mainloop")
    timeout = 900

    def setup_cache(self) -> dict[Case, Figures]:
        return all_figures()

    setup_cache.timeout = 3600


def figure(cache: dict[Case, Figures], case: Case, name: str) -> Any:
    """Return a figure, or NaN, which asv shows as n/a."""
    value = getattr(cache[case], name) if case in cache else None
    return float("nan") if value is None else value


def all_figures() -> dict[Case, Figures]:
    """Return the figures of all kernels that the commit builds."""
    cases = itertools.product(TARGETS, TYPES, MAINLOOPS)
    return {case: found for case in cases if (found := figures(*case)) is not None}


def figures(target: str, dtype: str, mainloop: str) -> Figures | None:
    """Return the figures of a kernel, or None if the commit has no such kernel."""
    try:
        for config, problem in _cases(target, dtype, mainloop):
            if find("check")(config, problem, find("ARCHS")[target]) is None:
                return _figures(target, config, problem)
    except Exception as error:  # noqa: BLE001  # some commits have kernels that fail
        first = str(error).partition("\n")[0]
        sys.stderr.write(f"{target} {dtype} {mainloop}: {type(error).__name__}: {first}\n")
    return None


def _cases(target: str, dtype: str, mainloop: str) -> Iterator[tuple[Any, Any]]:
    """Yield configurations and problems of one workgroup, the largest tile first."""
    chosen = [
        config
        for config in configs(dtype, target)
        if config.mainloop == mainloop and getattr(config, "split_k", 1) == 1
    ]
    chosen.sort(key=lambda config: (-config.tile_m * config.tile_n, -config.tile_k))
    for majors, config in itertools.product(_MAJORS, chosen):
        for m, n in ((config.tile_m, config.tile_n), (_FEW, config.tile_n), (config.tile_m, _FEW)):
            yield config, _problem(m, n, config.tile_k * _SHORT, dtype, majors)


def _problem(m: int, n: int, k: int, dtype: str, majors: tuple[str, str]) -> Any:
    size, out = _SIZES.get(dtype, 1), _RESULTS.get(dtype, "f32")
    return record(
        find("GemmProblem"),
        m=m,
        n=n,
        k=k,
        batch=(),
        a_dtype=dtype,
        b_dtype=dtype,
        out_dtype=out,
        a_major=majors[0],
        b_major=majors[1],
        a_span=m * k * size,
        b_span=k * n * size,
        c_span=m * n * _SIZES.get(out, 4),
        block_scaled=dtype == "e2m1x2",
    )


def _figures(target: str, config: Any, problem: Any) -> Figures:
    """Return the figures of a kernel: from the cache, or computed and put there."""
    kernel = find("compile_kernel")(problem, config, target)
    resources = kernel.resources
    plain = Figures(
        registers=resources.vgprs,
        spills=getattr(resources, "vgpr_spills", 0) + getattr(resources, "sgpr_spills", 0),
        lds=resources.lds_bytes,
        code_size=resources.code_bytes,
    )
    extents = [getattr(problem, name) for name in ("m", "n", "k", "a_major", "b_major")]
    tile = (config.mainloop, config.tile_m, config.tile_n, config.tile_k, config.num_threads)
    parts = (target, tile, problem.a_dtype, extents, emulator_digest(), _machine_code(kernel.path))
    path = _cache() / f"{hashlib.sha256(repr(parts).encode()).hexdigest()}.json"
    if path.exists():
        return Figures(**asdict(plain) | json.loads(path.read_text()))
    found = _of_loop(kernel) | _of_runs(target, config, problem, kernel)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(found))
    partial.replace(path)
    return replace(plain, **found)


def _of_loop(kernel: Any) -> dict[str, Any]:
    """Return the cycles of the main loop per MFMA cycle, computed from the code."""
    from cupygemm import emulator

    if not hasattr(emulator, "profile_loop"):
        return {}
    return {"loop": 1 / emulator.profile_loop(kernel.path, kernel.name).efficiency}


def _of_runs(target: str, config: Any, problem: Any, kernel: Any) -> dict[str, Any]:
    """Return the figures from two runs of a workgroup."""
    depths = (config.tile_k * _SHORT, config.tile_k * _LONG)
    runs = [_run(target, config, replace(problem, k=depth), kernel) for depth in depths]
    counts = [
        (stats.instructions, sum(conflict[2] for conflict in stats.lds_conflicts.values()))
        for stats in runs
    ]
    instructions, conflicts = (
        (deep - short) / (_LONG - _SHORT) for short, deep in zip(*counts, strict=True)
    )
    profiles = [getattr(run, "profile", None) for run in runs]
    cycles = _cycles(target, config, problem, depths, profiles)
    return {"instructions": instructions, "conflicts": conflicts, "cycles": cycles}


def _cycles(
    target: str, config: Any, problem: Any, depths: tuple[int, int], profiles: list[Any]
) -> dict[str, float]:
    """Return the modelled cycles of products at the boost clock, by shape."""
    from cupygemm.emulator.targets import TARGETS as DEVICES

    try:
        estimate, product = find("estimate"), find("Product")
    except MissingError:
        return {}
    if any(getattr(profile, "timing", None) is None for profile in profiles):
        return {}
    found = {}
    for shape in SHAPES:
        m, n, k = (int(extent) for extent in shape.split("x"))
        few = config.mainloop == "direct_to_register"
        if few and m > _FEW and n > _FEW:
            continue
        if few and problem.n == _FEW:
            m, n = n, m
        tiles = -(-m // config.tile_m), -(-n // config.tile_n)
        whole = product(m=m, n=n, k=k, **_launched(config, problem, tiles, k))
        clock = DEVICES[target].clock_mhz
        found[shape] = round(estimate(tuple(profiles), depths, whole, clock).cycles)
    return found


def _launched(config: Any, problem: Any, tiles: tuple[int, int], k: int) -> dict[str, Any]:
    """Return what a commit's model needs of a launch: the order of its tiles, or their number.

    The order is row by row for all kernels.
    """
    try:
        tiling, row_major = find("Tiling"), find("row_major")
    except MissingError:
        return {"workgroups": tiles[0] * tiles[1]}
    step = config.tile_k * _SIZES.get(problem.a_dtype, 1)
    order = tiling(
        order=row_major(*tiles),
        a_bytes=config.tile_m * step,
        b_bytes=config.tile_n * step,
        steps=-(-k // config.tile_k),
    )
    return {"tiling": order}


def _run(target: str, config: Any, problem: Any, kernel: Any) -> Any:
    """Run a product of one workgroup on the emulated device and return the launch's counts."""
    from cupygemm.emulator import code_object
    from cupygemm.emulator.device import Memory
    from cupygemm.emulator.run import launch
    from cupygemm.emulator.targets import TARGETS as DEVICES

    memory = Memory(1 << 30)
    arguments = np.zeros(1, find("GEMM_ARGS"))
    pitches = {
        "lda": problem.k if problem.a_major == "k" else problem.m,
        "ldb": problem.k if problem.b_major == "k" else problem.n,
        "ldc": problem.n,
    }
    extents = {name: getattr(problem, name) for name in ("m", "n", "k")}
    batch = dict.fromkeys(("batch0", "batch1", "batch2"), 1)
    for name, value in (extents | batch | pitches).items():
        arguments[name] = value
    size, out = _SIZES.get(problem.a_dtype, 1), _SIZES.get(problem.out_dtype, 4)
    sizes = {
        "a": problem.m * problem.k * size,
        "b": problem.k * problem.n * size,
        "c": problem.m * problem.n * out,
    }
    for name, nbytes in sizes.items():
        arguments[name] = _allocate(memory, nbytes)
    packed = arguments.tobytes()
    if getattr(problem, "block_scaled", False):
        scales = [_allocate(memory, _SCALE_BYTES) for _ in "ab"]
        packed += np.array(scales, np.uint64).tobytes()
    loaded = code_object.load(kernel.path.read_bytes(), memory)
    return launch(
        loaded.kernels[kernel.name],
        find("grid")(config, problem),
        (config.num_threads, 1, 1),
        0,
        packed,
        memory,
        DEVICES[target],
        profile=True,
    )


def _allocate(memory: Any, nbytes: int) -> int:
    """Return the address of an array of zeros."""
    address: int = memory.malloc(nbytes, "array")
    memory.write(address, bytes(nbytes))
    return address


@functools.cache
def emulator_digest() -> str:
    """Return a digest of all code that computes figures from machine code."""
    import cupygemm.emulator

    folder = Path(cupygemm.emulator.__file__).parent
    own = hashlib.sha256(normalised(Path(__file__).read_bytes())).hexdigest()
    return f"{digest(folder)} {own} tinygrad {importlib.metadata.version('tinygrad')}"


def _machine_code(path: Path) -> str:
    """Return a digest of a code object without its line table."""
    from elftools.elf.elffile import ELFFile

    found = hashlib.sha256()
    with path.open("rb") as file:
        for section in ELFFile(file).iter_sections():
            if section.name in (".text", ".rodata", ".note"):
                found.update(section.data())
    return found.hexdigest()


def _cache() -> Path:
    """Return the folder of figures in this machine's kernel cache."""
    import platformdirs

    folder = os.environ.get("CUPYGEMM_CACHE_DIR") or platformdirs.user_cache_dir("cupygemm")
    return Path(folder) / "figures"
