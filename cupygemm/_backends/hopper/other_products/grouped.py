"""Products of different shapes in one launch on Hopper.

The kernel's parameter holds the arguments of each product, and a persistent grid computes the tiles
of all products, one product after the other. Those with the longest k come first, so that SMs are
idle only briefly at the end. Products share a kernel if they have the same types and majors.
Operands that TMA cannot read are copied first. k is not split, so deep products are launched alone
if splitting k gains more than a launch costs.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cupygemm._backends.hopper.choice.check import check
from cupygemm._backends.hopper.choice.configurations import configs_for_product
from cupygemm._backends.hopper.choice.orientation import as_computed
from cupygemm._backends.hopper.compilation.compile import Cubin, load
from cupygemm._backends.hopper.compilation.source import has_narrow_boxes
from cupygemm._backends.hopper.config import HopperArch, HopperConfig
from cupygemm._backends.hopper.cost.fixed import launch_cycles
from cupygemm._backends.hopper.cost.memory import memory_cycles
from cupygemm._backends.hopper.cost.model import kernel_cost, num_units, tile_costs, total
from cupygemm._backends.hopper.cost.shapes import Shapes, columns_of, shapes_of
from cupygemm._backends.hopper.cuda.enqueue import Enqueue
from cupygemm._backends.hopper.launch import HOPPER_ARGS, launch_grid, pack
from cupygemm._backends.hopper.plan import HopperChoice, choose
from cupygemm._backends.hopper.product import make_preparation
from cupygemm._backends.runners import Addresses, AddressGroup
from cupygemm._backends.struct_kernel import Pointed, pointed
from cupygemm._records.problem import GemmProblem
from cupygemm._request.layout import Layout
from cupygemm._request.placement import Placement

CAPACITIES = (7, 63)
"""The most products of a launch: as many as fit in 4 KB of parameters, and in 32 KB."""
_MOST_SUMS = 160  # of a thread: with more, the variables that identify a tile's product would spill
_MAX_PACKED = 256  # lists of parameters that a launch caches


def grouped_args(capacity: int) -> np.dtype[Any]:
    """Return the struct ``GroupedArgs``."""
    first_unit = capacity * HOPPER_ARGS.itemsize
    end = first_unit + 4 * (capacity + 1)
    return np.dtype(
        {
            "names": ["products", "first_unit"],
            "formats": [(HOPPER_ARGS, capacity), (np.uint32, capacity + 1)],
            "offsets": [0, first_unit],
            "itemsize": -(-end // 64) * 64,
        }
    )


@dataclass(frozen=True)
class Group:
    """Products that share a launch.

    Attributes
    ----------
    numbers : tuple of int
        The numbers of the products, in the order of the launch.
    choices : tuple of HopperChoice
        The kernels of each product, with the group's configuration.
    """

    numbers: tuple[int, ...]
    choices: tuple[HopperChoice, ...]

    @property
    def config(self) -> HopperConfig:
        """Return the configuration of all products."""
        return self.choices[0].config

    @property
    def capacity(self) -> int:
        """Return the number of products that the kernel's parameter has room for."""
        return next(capacity for capacity in CAPACITIES if capacity >= len(self.choices))

    @property
    def gemm(self) -> Cubin:
        """Return the compiled GEMM kernel."""
        return self.choices[0].gemm_of(self.capacity)


def groups(placements: Mapping[int, Placement], arch: HopperArch) -> list[AddressGroup]:
    """Return the groups of products that share a launch, with their kernels loaded."""
    layouts = {number: placement.layout for number, placement in placements.items()}
    return [
        AddressGroup(
            numbers=group.numbers,
            placements=tuple(placements[number] for number in group.numbers),
            enqueue=GroupLaunch(group),
        )
        for group in choose_groups(layouts, arch)
    ]


def choose_groups(layouts: Mapping[int, Layout], arch: HopperArch) -> list[Group]:
    """Return the groups that the cost model prefers; other products are launched alone."""
    alike: dict[Any, dict[int, HopperChoice]] = collections.defaultdict(dict)
    for number, layout in layouts.items():
        try:
            choice = choose(layout, arch)
        except ValueError:  # no kernel of this library supports it
            continue
        p = layout.problem
        types = p.a_dtype, p.b_dtype, p.out_dtype
        kernel = types, p.a_major, p.b_major, choice.c_direct is None
        alike[kernel][number] = choice
    return [group for choices in alike.values() for group in _partition(choices, layouts, arch)]


class _Launch(NamedTuple):
    """The numbers of products that one launch may compute, its configuration and modelled time."""

    numbers: tuple[int, ...]
    config: HopperConfig
    cycles: float


def _partition(
    choices: Mapping[int, HopperChoice], layouts: Mapping[int, Layout], arch: HopperArch
) -> list[Group]:
    """Return the groups of products that one kernel can compute.

    `choices` are the kernels of each product alone. The deepest products are omitted as long as
    this lowers the total time.
    """
    numbers = sorted(choices, key=lambda number: -choices[number].problem.k)
    alone = {
        number: float(kernel_cost(choice.config, choice.problem, arch).cycles)
        for number, choice in choices.items()
    }
    best, first = _in_launches(numbers, layouts, arch), 0
    cycles = sum(launch.cycles for launch in best)
    while first < len(numbers):
        depth = choices[numbers[first]].problem.k
        while first < len(numbers) and choices[numbers[first]].problem.k == depth:
            first += 1
        rest = _in_launches(numbers[first:], layouts, arch)
        total = sum(launch.cycles for launch in rest) + sum(alone[n] for n in numbers[:first])
        if total >= cycles:
            break
        best, cycles = rest, total
    return [
        Group(
            launch.numbers,
            tuple(choose(layouts[number], arch, launch.config) for number in launch.numbers),
        )
        for launch in best
        if len(launch.numbers) > 1
    ]


def _in_launches(
    numbers: Sequence[int], layouts: Mapping[int, Layout], arch: HopperArch
) -> list[_Launch]:
    """Divide products evenly among the fewest launches that can hold them."""
    count = -(-len(numbers) // CAPACITIES[-1])
    found = []
    for index in range(count):
        some = tuple(numbers[len(numbers) * index // count : len(numbers) * (index + 1) // count])
        found.append(_Launch(some, *choose_config([layouts[n].problem for n in some], arch)))
    return found


def choose_config(products: Sequence[GemmProblem], arch: HopperArch) -> tuple[HopperConfig, float]:
    """Return the configuration that computes products in one launch fastest, and its cycles."""
    memory = sum(float(memory_cycles(shapes_of(product))) for product in products)
    ways = {
        transposed: [as_computed(product, transposed_c=transposed) for product in products]
        for transposed in (False, True)
    }
    shapes = {flag: columns_of(map(shapes_of, problems)) for flag, problems in ways.items()}
    ranked = []
    for config in configs_for_product(products[0]):
        problems = ways[config.transposed_c]
        # The parameter has no tensor maps for narrower boxes, and the grid is persistent.
        narrow = has_narrow_boxes(config, problems[0], problems[0].out_dtype)
        if narrow or config.cluster_k > 1 or config.accumulators > _MOST_SUMS:
            continue
        if all(check(config, problem, arch) is None for problem in problems):
            busiest = _busiest(config, shapes[config.transposed_c], arch)
            ranked.append((float(total(launch_cycles(config), busiest, memory)), config))
    cycles, config = min(ranked, key=lambda each: each[0])
    return config, cycles


def _busiest(config: HopperConfig, shapes: Shapes, arch: HopperArch) -> float:
    """Return the cycles of the cluster whose tiles take the longest, from columns of products."""
    units = num_units(config, shapes)
    clusters = arch.num_clusters(config.cluster_size)
    tile = tile_costs(config, shapes, arch, units.sum())
    each = -(-shapes.k // config.tile_k) * tile.step + tile.epilogue
    # Cluster i takes units i, i + clusters, ...: this is the number of those before unit `ends`.
    ends = np.concatenate([[0], np.cumsum(units)])[:, None]
    before = (ends - np.arange(clusters) + clusters - 1) // clusters
    return float(np.max(each @ np.diff(before, axis=0)))


class GroupLaunch:
    """The launch of a group; calling it with the addresses of all products enqueues it."""

    __slots__ = ("_arguments", "_config", "_enqueue", "_geometries", "_packed", "_prepare")

    def __init__(self, group: Group) -> None:
        config, choices = group.config, group.choices
        self._config = config
        self._geometries = [choice.geometry() for choice in choices]
        self._prepare = [make_preparation(choice) for choice in choices]
        units = np.cumsum([config.num_units(choice.problem) for choice in choices])
        self._arguments = np.zeros(1, grouped_args(group.capacity))
        first_unit = self._arguments["first_unit"][0]
        first_unit[1 : len(units)] = units[:-1]
        first_unit[len(units) :] = units[-1]
        grid = launch_grid(config, int(units[-1]), choices[0].num_sms)
        shared = config.shared_bytes(choices[0].a.itemsize, choices[0].problem.b_major)
        self._enqueue = Enqueue(load(group.gemm), grid, config.num_threads, shared)
        self._packed: dict[tuple[tuple[int, int, int], ...], Pointed] = {}

    def __call__(self, addresses: Addresses) -> None:
        """Enqueue the copies of operands, if any, and the launch."""
        kept, key = [], tuple(addresses)
        if any(self._prepare):
            moved = list(addresses)
            for index, prepare in enumerate(self._prepare):
                if prepare is not None:
                    a, b, c = addresses[index]
                    a, b, copies = prepare(a, b)
                    kept.append(copies)
                    moved[index] = a, b, c
            key = tuple(moved)
        packed = self._packed.get(key)
        if packed is None:
            if len(self._packed) >= _MAX_PACKED:
                self._packed.clear()
            packed = self._packed[key] = self._pack(key)
        self._enqueue(packed)

    def _pack(self, addresses: Addresses) -> Pointed:
        """Return the list of parameters."""
        arguments = self._arguments.copy()
        products = arguments["products"][0]
        for index, (place, geometry) in enumerate(zip(addresses, self._geometries, strict=True)):
            products[index] = pack(geometry, self._config, *place)[0]
        return pointed(arguments.tobytes())
