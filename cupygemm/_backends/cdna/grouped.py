"""Products of different shapes in one launch on CDNA: ``kernels/cdna/grouped_gemm.hip``.

The workgroups look up their product in a table in device memory, which is uploaded if it is new.
All products of a group have the same types and majors; the kernel assumes their smallest alignment.
"""

from __future__ import annotations

import collections
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cupygemm._backends.cdna.arch import Arch
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.config import GemmConfig
from cupygemm._backends.cdna.launch import pack_arguments
from cupygemm._backends.cdna.mainloops import configs_for
from cupygemm._backends.cdna.select import Candidate, estimate
from cupygemm._backends.cdna.source import config_text
from cupygemm._backends.runners import AddressGroup
from cupygemm._build.flatten import flatten
from cupygemm._records.problem import GemmProblem
from cupygemm._request.layout import Layout
from cupygemm._request.placement import Placement

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
"""The number of tables that are cached in device memory for calls with the same arrays."""


@dataclass(frozen=True)
class TableLaunch:
    """The launch of a group; calling it with the addresses of all products enqueues it.

    Attributes
    ----------
    kernel : callable
    grid, block : tuple of int
    table : numpy.ndarray
        `GEMM_ARGS` of each product, without addresses.
    first_tile : numpy.ndarray
        The number of tiles before each product, and the number of all tiles.
    config : GemmConfig
    """

    kernel: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    table: Any
    first_tile: Any
    config: GemmConfig

    def __call__(self, addresses: Sequence[tuple[int, int, int]]) -> None:
        """Enqueue the launch, and the upload of its table if the table is new."""
        table = self.table.copy()
        for name, column in zip(("a", "b", "c"), zip(*addresses, strict=True), strict=True):
            table[name] = column
        memory = _on_device(table.tobytes() + self.first_tile.tobytes())
        arguments = np.zeros(1, GROUPED_ARGS)
        arguments["table"] = memory.data.ptr
        arguments["first_tile"] = memory.data.ptr + table.nbytes
        arguments["num_products"] = len(table)
        self.kernel(self.grid, self.block, (arguments,))


def groups(placements: Mapping[int, Placement], arch: Arch) -> list[AddressGroup]:
    """Return the groups of products that share a launch."""
    alike: dict[Any, list[int]] = collections.defaultdict(list)
    for number, placement in placements.items():
        problem = placement.layout.problem
        types = problem.a_dtype, problem.b_dtype, problem.out_dtype
        alike[types, problem.a_major, problem.b_major].append(number)
    found = []
    for numbers in alike.values():
        members = tuple(placements[number] for number in numbers)
        launch = _launch([placement.layout for placement in members], arch)
        if launch is not None:
            found.append(AddressGroup(numbers=tuple(numbers), placements=members, enqueue=launch))
    return found


def _launch(layouts: Sequence[Layout], arch: Arch) -> TableLaunch | None:
    """Return the common launch of products; None if no configuration can compute all of them."""
    problems = aligned_alike([layout.problem for layout in layouts])
    candidate = choose(problems, arch)
    if candidate is None:
        return None
    config = candidate.config
    from cupy import RawModule

    from cupygemm._backends.cdna.compile import compile_source

    text = flatten(
        "cdna/grouped_gemm.hip", {"config.hpp": config_text(problems[0], config, arch.name)}
    )
    compiled = compile_source(text, arch.name)
    tiles = [math.prod(config.num_tiles(problem)) for problem in problems]
    first_tile = np.concatenate([[0], np.cumsum(tiles)]).astype(np.uint32)
    table = np.concatenate([pack_arguments(layout, layout.launches[0]) for layout in layouts])
    return TableLaunch(
        kernel=RawModule(path=str(compiled.path)).get_function(ENTRY),
        grid=(int(first_tile[-1]), 1, 1),
        block=(config.num_threads, 1, 1),
        table=table,
        first_tile=first_tile,
        config=config,
    )


def aligned_alike(problems: Sequence[GemmProblem]) -> list[GemmProblem]:
    """Return the problems, each with their smallest alignment, for one kernel."""
    smallest = {
        name: min(getattr(problem, name) for problem in problems)
        for name in ("a_align", "b_align", "c_align")
    }
    return [replace(problem, **smallest) for problem in problems]


def choose(problems: Sequence[GemmProblem], arch: Arch) -> Candidate | None:
    """Return the candidate with the least modelled cost for all problems in one launch.

    The modelled cost is that of one product with the same number of tiles and their mean k.
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


_tables: collections.OrderedDict[Any, Any] = collections.OrderedDict()
_recorded: dict[Any, Any] = {}  # the tables that graphs read, which live as long as the process
_tables_lock = threading.Lock()


def _on_device(data: bytes) -> Any:
    """Return a table in device memory, uploaded on the current stream at most once.

    The upload goes through pinned memory, and nothing waits for it. Work in another stream might
    overtake it, so each stream has its own table.

    Raises
    ------
    RuntimeError
        A graph is being captured, and the table is new: an upload cannot be part of it.
    """
    import cupy

    stream = cupy.cuda.get_current_stream()
    # The legacy default stream cannot be captured, and asking about it is an error if another is.
    captured = stream.ptr != 0 and cupy.cuda.runtime.streamIsCapturing(stream.ptr)
    key = (cupy.cuda.runtime.getDevice(), stream.ptr, data)
    with _tables_lock:
        table = _tables.get(key)
        if table is not None:
            _tables.move_to_end(key)
            if captured:
                _recorded[key] = table
            return table
    if captured:
        raise RuntimeError(
            "grouped_matmul: a capture cannot upload the addresses of new arrays; before it, call "
            "grouped_matmul with the same arrays and the same out= in the stream that is captured"
        )
    table = cupy.asarray(np.frombuffer(data, np.uint8))
    with _tables_lock:
        _tables[key] = table
        while len(_tables) > MAX_TABLES:
            _tables.popitem(last=False)
    return table
