"""`grouped_matmul`: products of matrices of different shapes, in one launch on CDNA.

Each product is posed as a call of its own. Those with kernels of equal types and majors then share
a launch of ``kernels/cdna/grouped_gemm.hip``, whose workgroups find their product in a table in
device memory; the smallest alignment among them is taken for all. What is left, on another device,
or of types without a kernel, is multiplied one by one.
"""

from __future__ import annotations

import collections
import functools
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._arch import Arch
from cupygemm._check import check
from cupygemm._config import GemmConfig
from cupygemm._copies import assign, copied
from cupygemm._device import device
from cupygemm._keywords import common_keywords
from cupygemm._launch import pack_arguments
from cupygemm._layout import Operand
from cupygemm._linalg.arrays import Array, as_array, one_device
from cupygemm._mainloops import configs_for
from cupygemm._matmul import matmul
from cupygemm._options import Options
from cupygemm._pose import Posed, pose
from cupygemm._problem import GemmProblem
from cupygemm._select import Candidate, estimate
from cupygemm._source import config_text, flatten

ENTRY = "cupygemm_grouped_gemm"
GROUPED_ARGS = np.dtype(
    [
        ("table", np.uint64),
        ("first_tile", np.uint64),
        ("num_products", np.uint32),
        ("padding", np.uint32),
    ],
    align=True,
)
"""The struct ``GroupedArgs``."""
MAX_TABLES = 64
"""Tables that are kept on a device for calls with the same arrays."""


@common_keywords
def grouped_matmul(
    a: Sequence[Any],
    b: Sequence[Any],
    out: Sequence[Any] | None = None,
    *,
    dtype: DTypeLike | None = None,
    casting: str = "same_kind",
    stream: Any = None,
) -> list[Array]:
    """Multiply pairs of matrices of different shapes.

    Parameters
    ----------
    a, b : sequence of cupy.ndarray
        Matrices, (m_i, k_i) and (k_i, n_i). Extents of 0 are allowed.
    out : sequence of cupy.ndarray, optional
        Where to put the results. They may overlap the operands, but not
        each other.
    dtype, casting
        As for `matmul`.
    stream : cupy.cuda.Stream, optional
        As for `matmul`.

    Returns
    -------
    list of cupy.ndarray
        The products, (m_i, n_i); those of ``out`` if they were given.

    Raises
    ------
    ValueError
        The numbers of matrices differ, or a pair does not fit.
    TypeError
        An argument is no array of a device, or the types have no product.

    Notes
    -----
    On AMD GPUs, and the emulated ones, all products are one launch if the operands have one type
    and lie alike (all of ``a`` with the same axis adjacent in memory, all of ``b``, all of
    ``out``); else there is one launch for each way of lying. On NVIDIA GPUs each product is a
    launch of its own.
    """
    name = "grouped_matmul"
    if len(a) != len(b) or (out is not None and len(out) != len(a)):
        more = "" if out is None else f" and {len(out)} in out"
        raise ValueError(f"{name}: {len(a)} matrices in a, {len(b)} in b{more}")
    if not a:
        return []
    firsts, seconds, outs = _matrices(a, b, () if out is None else out)
    targets: list[Array | None] = [*outs] or [None] * len(a)
    index = firsts[0].data.device_id
    items = tuple(
        (_lie(x1), _lie(x2), None if target is None else _lie(target), aliased)
        for x1, x2, target, aliased in zip(
            firsts, seconds, targets, _aliased(outs, [*firsts, *seconds]), strict=True
        )
    )
    from cupy.cuda import Device as CurrentDevice

    with CurrentDevice(index):  # kernels are loaded and tables kept where the arrays are
        plan = _plan(items, None if dtype is None else np.dtype(dtype), casting, index)
        results = plan(firsts, seconds, targets)
    return results if out is None else list(out)


def _matrices(*lists: Sequence[Any]) -> list[list[Array]]:
    """Return the matrices of ``a``, ``b`` and ``out`` as CuPy arrays.

    Raises
    ------
    ValueError
        One has not two axes, or they are on different devices.
    TypeError
        One is no array of a device.
    """
    from cupy import ndarray

    name = "grouped_matmul"
    every = [x for given in lists for x in given]
    if all(isinstance(x, ndarray) and x.ndim == 2 for x in every) and (
        len({x.data.device_id for x in every}) == 1
    ):
        return [list(given) for given in lists]
    found: list[list[Array]] = []
    labelled: dict[str, Array] = {}
    for key, given in zip(("a", "b", "out"), lists, strict=True):
        labels = [f"{key}[{index}]" for index in range(len(given))]
        found.append([as_array(name, lb, x) for lb, x in zip(labels, given, strict=True)])
        labelled |= zip(labels, found[-1], strict=True)
    one_device(name, labelled)
    for label, x in labelled.items():
        if x.ndim != 2:
            raise ValueError(f"{name}: {label} has shape {x.shape}; it must have two axes")
    return found


@dataclass(frozen=True)
class Launch:
    """Products that share a launch.

    Attributes
    ----------
    kernel : callable
    grid, block : tuple of int
    indices : tuple of int
        Of the products, in the order of the table.
    posed : tuple of Posed
    table : numpy.ndarray
        `GEMM_ARGS` of each product, without addresses.
    first_tile : numpy.ndarray
        The tiles before each product, and all.
    config : GemmConfig
    """

    kernel: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    indices: tuple[int, ...]
    posed: tuple[Posed, ...]
    table: Any
    first_tile: Any
    config: GemmConfig

    def __call__(self, x1s: list[Array], x2s: list[Array], outs: list[Array | None]) -> list[Array]:
        """Enqueue the launch; return the products, in the order of the table."""
        from cupy import ndarray

        addresses, results, kept = [], [], []
        for index, posed in zip(self.indices, self.posed, strict=True):
            first, second = copied(x1s[index], posed.x1_copy), copied(x2s[index], posed.x2_copy)
            target = outs[index]
            if target is None or posed.temporary is not None:
                target = ndarray(posed.shape.result, posed.types.stored)
            assert posed.layout is not None
            pair = (second, first) if posed.layout.swapped else (first, second)
            addresses.append((pair[0].data.ptr, pair[1].data.ptr, target.data.ptr))
            kept.append(pair)  # copies live until the launch is enqueued
            results.append(target)
        table = self.table.copy()
        for name, column in zip(("a", "b", "c"), zip(*addresses, strict=True), strict=True):
            table[name] = column
        memory = _on_device(table.tobytes() + self.first_tile.tobytes())
        arguments = np.zeros(1, GROUPED_ARGS)
        arguments["table"] = memory.data.ptr
        arguments["first_tile"] = memory.data.ptr + table.nbytes
        arguments["num_products"] = len(self.indices)
        self.kernel(self.grid, self.block, (arguments,))
        for index, target in zip(self.indices, results, strict=True):
            if outs[index] is not None and outs[index] is not target:
                assign(outs[index], target)
        return [
            target if outs[index] is None else outs[index]
            for index, target in zip(self.indices, results, strict=True)
        ]


@dataclass(frozen=True)
class GroupedPlan:
    """A call, worked out but for the arrays' places.

    Attributes
    ----------
    count : int
    launches : tuple of Launch
    alone : tuple of int
        Products that `matmul` computes one by one.
    dtype : numpy.dtype or None
    casting : str
    """

    count: int
    launches: tuple[Launch, ...]
    alone: tuple[int, ...]
    dtype: np.dtype[Any] | None
    casting: str

    def __call__(self, x1s: list[Array], x2s: list[Array], outs: list[Array | None]) -> list[Array]:
        """Return the products."""
        results: dict[int, Array] = {}
        for launch in self.launches:
            products = launch(x1s, x2s, outs)
            results |= zip(launch.indices, products, strict=True)
        for index in self.alone:
            results[index] = matmul(
                x1s[index], x2s[index], outs[index], dtype=self.dtype, casting=self.casting
            )
        return [results[index] for index in range(self.count)]


Lie = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any], int]  # an Operand's fields
Item = tuple[Lie, Lie, Lie | None, bool]  # x1, x2, out, whether out is aliased


@functools.lru_cache(maxsize=1024)
def _plan(
    items: tuple[Item, ...], dtype: np.dtype[Any] | None, casting: str, index: int
) -> GroupedPlan:
    """Return how matrices that lie so are multiplied on a device."""
    place = device(index)
    options = Options(dtype, casting)
    posed = []
    for number, (lie1, lie2, lie_out, aliased) in enumerate(items):
        x1, x2 = Operand(*lie1), Operand(*lie2)
        out = None if lie_out is None else Operand(*lie_out)
        try:
            posed.append(
                pose(
                    x1, x2, out, options,
                    products=place.products, row_bytes=place.row_bytes, aliased=aliased,
                )
            )  # fmt: skip
        except (TypeError, ValueError) as err:
            raise type(err)(f"grouped_matmul: product {number}: {err}") from err
    together: dict[Any, list[int]] = collections.defaultdict(list)
    alone = []
    for number, its in enumerate(posed):
        if its.layout is None or not isinstance(place.arch, Arch):
            alone.append(number)
            continue
        problem = its.layout.problem
        types = problem.a_dtype, problem.b_dtype, problem.out_dtype
        together[types, problem.a_major, problem.b_major].append(number)
    launches = []
    for numbers in together.values():
        assert isinstance(place.arch, Arch)
        launch = _launch(numbers, [posed[number] for number in numbers], place.arch)
        if launch is None:
            alone += numbers
        else:
            launches.append(launch)
    return GroupedPlan(len(items), tuple(launches), tuple(sorted(alone)), dtype, casting)


def _launch(numbers: list[int], posed: list[Posed], arch: Arch) -> Launch | None:
    """Return the launch of products that can share one; None where no configuration can."""
    layouts = [its.layout for its in posed if its.layout is not None]
    problems = aligned_alike([layout.problem for layout in layouts])
    candidate = choose(problems, arch)
    if candidate is None:
        return None
    config = candidate.config
    from cupy import RawModule

    from cupygemm._compile import compile_source

    text = flatten(
        "cdna/grouped_gemm.hip", {"config.hpp": config_text(problems[0], config, arch.name)}
    )
    compiled = compile_source(text, arch.name)
    tiles = [math.prod(config.num_tiles(problem)) for problem in problems]
    first_tile = np.concatenate([[0], np.cumsum(tiles)]).astype(np.uint32)
    table = np.concatenate([pack_arguments(layout, layout.launches[0]) for layout in layouts])
    return Launch(
        RawModule(path=str(compiled.path)).get_function(ENTRY),
        (int(first_tile[-1]), 1, 1),
        (config.num_threads, 1, 1),
        tuple(numbers),
        tuple(posed),
        table,
        first_tile,
        config,
    )


def aligned_alike(problems: Sequence[GemmProblem]) -> list[GemmProblem]:
    """Return problems with the smallest alignments among them, which one kernel takes."""
    smallest = {
        name: min(getattr(problem, name) for problem in problems)
        for name in ("a_align", "b_align", "c_align")
    }
    return [replace(problem, **smallest) for problem in problems]


def choose(problems: Sequence[GemmProblem], arch: Arch) -> Candidate | None:
    """Return the candidate of the least modelled cost for all problems in one launch.

    The model is that of one product of as many tiles, of their mean k.
    """
    best: Candidate | None = None
    for config in configs_for(problems[0].a_dtype, arch.name):
        if any(check(config, problem, arch) is not None for problem in problems):
            continue
        tiles = [math.prod(config.num_tiles(problem)) for problem in problems]
        total = sum(tiles)
        depth = sum(n * p.k for n, p in zip(tiles, problems, strict=True)) / total
        alike = replace(
            problems[0], m=config.tile_m * total, n=config.tile_n, k=math.ceil(depth), batch=()
        )
        candidate = estimate(config, alike, arch)
        if best is None or candidate.cycles < best.cycles:
            best = candidate
    return best


_tables: collections.OrderedDict[Any, Array] = collections.OrderedDict()
_tables_lock = threading.Lock()


def _on_device(data: bytes) -> Array:
    """Return a table in device memory, uploaded on the current stream at most once.

    The upload goes through pinned memory and nothing waits for it; work of another stream, which
    might overtake it, has a table of its own.
    """
    import cupy

    stream = cupy.cuda.get_current_stream()
    key = (cupy.cuda.runtime.getDevice(), stream.ptr, data)
    with _tables_lock:
        table = _tables.get(key)
        if table is not None:
            _tables.move_to_end(key)
            return table
    table = cupy.asarray(np.frombuffer(data, np.uint8))
    with _tables_lock:
        _tables[key] = table
        while len(_tables) > MAX_TABLES:
            _tables.popitem(last=False)
    return table


def _lie(array: Array) -> Lie:
    """Return where an array lies, as far as a plan depends on it."""
    return array.shape, array.strides, array.dtype, array.data.ptr & 15


def _aliased(outs: Sequence[Array], operands: Sequence[Array]) -> list[bool]:
    """Return which results share memory with any operand: they are written after all is read."""
    if not outs:
        return [False] * (len(operands) // 2)
    reads = np.array([_extent(x) for x in operands], dtype=np.uint64)
    writes = np.array([_extent(x) for x in outs], dtype=np.uint64)
    before, after = reads[:, 0] < writes[:, None, 1], writes[:, None, 0] < reads[:, 1]
    return list(map(bool, np.any(before & after, axis=1)))


def _extent(array: Array) -> tuple[int, int]:
    start, end = _reach(array.shape, array.strides, array.dtype)
    return array.data.ptr + start, array.data.ptr + end


@functools.lru_cache(maxsize=4096)
def _reach(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[int, int]:
    return Operand(shape, strides, dtype).extent()
