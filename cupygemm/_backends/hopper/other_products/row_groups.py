"""Groups of rows whose sizes are in device memory, in one launch on Hopper.

The persistent grid walks the tiles of all groups. Its scheduler reads the sizes of the groups, so
the host need not know them (``row_group_scheduler.cuh``). The groups are the batch of the product:
B is a stack of matrices. A and C are stacks too, or one matrix each, in which groups are
consecutive. Tiles are whole: k is not split.
"""

from __future__ import annotations

import collections
import math
import struct
from dataclasses import replace
from typing import Any

from cupygemm._backends.epilogue_args import EpiloguePacker
from cupygemm._backends.hopper.choice.check import check
from cupygemm._backends.hopper.choice.configurations import configs_for_product
from cupygemm._backends.hopper.choice.orientation import as_computed
from cupygemm._backends.hopper.choice.select import select
from cupygemm._backends.hopper.compilation.source import RowGrouping
from cupygemm._backends.hopper.config import FLOAT8, HopperArch, HopperConfig
from cupygemm._backends.hopper.cost.row_groups import row_group_cycles
from cupygemm._backends.hopper.other_products.block_scales import (
    pack_scales,
    scaled_configs,
    takes_scaling,
)
from cupygemm._backends.hopper.plan import HopperChoice, choose
from cupygemm._backends.hopper.product import make_product
from cupygemm._backends.hopper.requests import place_request, supports_types
from cupygemm._backends.protocol import Runner
from cupygemm._backends.scales_and_groups import RowGroups
from cupygemm._records.problem import GemmProblem
from cupygemm._request.copies import copied
from cupygemm._request.layout import Layout
from cupygemm._request.request import Request

GROUP_ARGS = struct.Struct("=QII")
"""The struct ``RowGroupArgs``: sizes, count, are_ends."""
_SHARES = (0.75, 1.0, 1.25)
"""Likely rows of groups as fractions of the expected rows, for the choice of a kernel."""


def make_row_groups(request: Request, groups: RowGroups, arch: HopperArch) -> Runner | None:
    """Return the runner for groups of rows; None if no kernel supports them."""
    scaling = groups.scaling
    if not supports_types(request):
        return None
    if scaling is not None and not takes_scaling(scaling, request.shape.k):
        return None
    placement = place_request(request)
    layout, sources = placement.layout, placement.sources
    if layout.swapped or len(layout.launches) > 1:
        return None
    if groups.shared:
        layout = replace(layout, c_stride=(0, 0, 0))
    try:
        choice = choose_row_groups(layout, groups, arch)
    except ValueError:  # no configuration can run
        return None
    product, count = make_product(choice), request.shape.batch[0]
    packer = None if sources is None else EpiloguePacker(layout, layout.launches[0])

    def run(x1: Any, x2: Any, out: Any, sizes: Any, rows: Any, columns: Any, *more: Any) -> Any:
        first, second = copied(x1, placement.x1_copy), copied(x2, placement.x2_copy)
        epilogue = b""
        if packer is not None and sources is not None:
            (arguments,) = more
            epilogue = packer(arguments, sources.arrays(arguments))
        tail = GROUP_ARGS.pack(sizes.data.ptr, count, groups.are_ends)
        if scaling is not None:
            tail += pack_scales(scaling, rows, columns)
        product(first.data.ptr, second.data.ptr, out.data.ptr, epilogue, tail)
        return out

    return run


def choose_row_groups(layout: Layout, groups: RowGroups, arch: HopperArch) -> HopperChoice:
    """Return the kernel for groups of rows, by modelled times for about the expected rows.

    Raises
    ------
    ValueError
        No configuration can run.
    """
    asked = layout.problem
    problem = as_computed(asked, transposed_c=False)
    how = None
    if groups.scaling is None:
        config = _unscaled(groups, problem, asked, arch)
    else:
        if not {asked.a_dtype, asked.b_dtype} <= set(FLOAT8):
            raise ValueError(
                f"scales along k are for 8-bit floats, not for {asked.a_dtype} and {asked.b_dtype}"
            )
        how, configs = scaled_configs(groups.scaling)
        rows = max(1, min(groups.expected, asked.m))
        able = [each for each in configs if _takes(each, problem, arch)]
        config = min(able, key=lambda each: row_group_cycles(each, asked, groups.count, rows, arch))
    choice = choose(layout, arch, config, reason="the model's choice for the expected rows")
    kind: RowGrouping = "shared" if groups.shared else "masked"
    return replace(choice, by_sm=False, block_scales=how, row_groups=kind)


def _unscaled(
    groups: RowGroups, problem: GemmProblem, asked: GemmProblem, arch: HopperArch
) -> HopperConfig:
    """Return the configuration for groups without scales along k."""
    one = replace(asked, batch=())  # tiles for the short sides of batches are not used for groups
    configs = tuple(each for each in configs_for_product(one) if _takes(each, problem, arch))
    cycles: dict[HopperConfig, list[float]] = collections.defaultdict(list)
    for share in _SHARES:  # a group with one more row needs another tile
        rows = max(1, min(round(groups.expected * share), asked.m))
        expected = replace(asked, m=rows, batch=(groups.count,))
        for each in select(expected, arch, configs).candidates:
            if each.config.split_k == 1 and not each.config.stream_k:
                cycles[each.config].append(each.cycles * _slower(each.config))
    most = max(map(len, cycles.values()))  # some are considered only for some numbers of rows
    return min(cycles, key=lambda each: (most - len(cycles[each]), sum(cycles[each])))


def _slower(config: HopperConfig) -> float:
    """Return how much slower groups are than a batch of equal matrices, which the model describes.

    Blocks of a cluster wait for each other at the end of each group, where some of those along m
    have no rows, and a single consumer hides none of this (measured on an H200).
    """
    alone = 0.08 if config.num_consumers == 1 else 0.0
    along_m = 0.08 * math.log2(config.cluster_m)
    return 1 + 0.04 * math.log2(config.cluster_size) + along_m + alone


def _takes(config: HopperConfig, problem: GemmProblem, arch: HopperArch) -> bool:
    """Whether groups of rows are computed by a configuration."""
    whole = not (config.transposed_c or config.ping_pong or config.cluster_k > 1)
    return whole and check(config, problem, arch) is None
