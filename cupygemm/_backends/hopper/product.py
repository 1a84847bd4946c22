"""Launch the kernels that were chosen for a product on Hopper, with their workspaces."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from cupygemm._backends.hopper.compilation.compile import compile_cubin, load
from cupygemm._backends.hopper.compilation.source import add_text, finish_text, mirror_text
from cupygemm._backends.hopper.config import TMA_BYTES
from cupygemm._backends.hopper.cuda.enqueue import in_order
from cupygemm._backends.hopper.launch import (
    AddLaunch,
    FinishLaunch,
    GemmLaunch,
    MarkedLaunch,
    MirrorLaunch,
    stream_bytes,
)
from cupygemm._backends.hopper.operands.copies import aligned_end, pad_pair
from cupygemm._backends.hopper.plan import HopperChoice
from cupygemm._records.dtypes import ITEMSIZE
from cupygemm._request.layout import Layout

ADD_ENTRY = "cupygemm_add_parts"
MIRROR_ENTRY, FINISH_ENTRY = "cupygemm_mirror", "cupygemm_finish_triangle"


def make_launches(layout: Layout, choice: HopperChoice) -> list[Callable[..., None]]:
    """Load the kernels of a product and return its launches."""
    return moved_launches(layout, make_product(choice))


def moved_launches(layout: Layout, launch: Callable[..., None]) -> list[Callable[..., None]]:
    """Return the launches of a layout: the same launch at several offsets."""
    sizes = [ITEMSIZE[getattr(layout.problem, f"{name}_dtype")] for name in ("a", "b", "out")]
    offsets = [
        tuple(s * o for s, o in zip(sizes, (each.a, each.b, each.c), strict=True))
        for each in layout.launches
    ]
    return [_moved(launch, each) if any(each) else launch for each in offsets]


def _moved(launch: Callable[..., None], offsets: tuple[int, ...]) -> Callable[..., None]:
    """Return a launch that adds offsets to its addresses."""
    of_a, of_b, of_c = offsets

    def moved(a: int, b: int, c: int, *epilogue: bytes) -> None:
        launch(a + of_a, b + of_b, c + of_c, *epilogue)

    return moved


def make_product(choice: HopperChoice) -> Callable[..., None]:
    """Return the function that launches the kernels of one product.

    Its arguments are the addresses of A, B and C, the packed arguments of the epilogue, and those
    of groups of rows and of scales along k.
    """
    from cupy.cuda import alloc

    geometry, config = choice.geometry(), choice.config
    units = config.num_units(choice.problem)
    kernel = load(choice.gemm)
    make = functools.partial(
        GemmLaunch,
        kernel,
        geometry,
        config,
        units=units,
        num_sms=choice.num_sms,
        by_sm=choice.by_sm,
    )
    with contextlib.nullcontext() if choice.starts_early else in_order():
        gemm: Callable[..., None] = make()
    if choice.by_sm:
        gemm = MarkedLaunch(make(), gemm)
    prepare = make_preparation(choice)
    cut = config.split_k > 1 or config.stream_k > 0
    plain = not choice.lower_triangle and choice.block_scales is None and choice.row_groups is None
    if prepare is None and not cut and plain:
        return gemm
    cut_bytes = stream_bytes(config) if config.stream_k else 0
    add: AddLaunch | FinishLaunch | None = None
    if config.split_k > 1:
        vectors = choice.problem.c_align >= min(16, 4 * choice.c.itemsize)
        cubin = compile_cubin(add_text(choice.problem, vectors=vectors), ADD_ENTRY)
        add = AddLaunch(load(cubin), geometry, choice.c, config.split_k)
    if choice.finishes:
        vectors = choice.problem.c_align >= 4 * choice.c.itemsize
        cubin = compile_cubin(finish_text(choice.problem, vectors=vectors), FINISH_ENTRY)
        add = FinishLaunch(load(cubin), geometry, choice.c)
    mirror = None
    if choice.lower_triangle and not choice.finishes:
        vectors = choice.problem.c_align >= TMA_BYTES
        cubin = compile_cubin(mirror_text(choice.c.itemsize, vectors=vectors), MIRROR_ENTRY)
        mirror = MirrorLaunch(load(cubin), choice.c)

    def launch(a: int, b: int, c: int, epilogue: bytes = b"", scales: bytes = b"") -> None:
        if prepare is not None:
            a, b, _kept = prepare(a, b)
        if add is not None:
            workspace = alloc(add.num_bytes)
            gemm(a, b, workspace.ptr, scales)
            add(workspace.ptr, c, epilogue)
        elif cut_bytes:
            workspace = alloc(cut_bytes)
            gemm(a, b, c, epilogue + scales, workspace.ptr)
        else:
            gemm(a, b, c, epilogue + scales)
            if mirror is not None:
                mirror(c)

    return launch


Preparation = Callable[[int, int], tuple[int, int, Any]]


def make_preparation(choice: HopperChoice) -> Preparation | None:
    """Return the function that arranges the operands in the kernel's order and makes copies.

    Given the addresses of A and B, it returns the addresses that the kernel reads, and the memory
    of the copies. That memory must live until the kernel is enqueued; the pool then reuses it only
    for later work in the same stream. None if the kernel reads the operands in place.
    """
    copies = _make_copies(choice)
    if not choice.config.transposed_c:
        return copies
    if copies is None:
        return lambda a, b: (b, a, None)
    return lambda a, b: copies(b, a)


def _make_copies(choice: HopperChoice) -> Preparation | None:
    """Return the function that copies operands, in the kernel's order; None without copies."""
    from cupy.cuda import alloc

    pair = pad_pair(choice.a, choice.a_copy, choice.b, choice.b_copy)
    if pair is not None:

        def pad(a: int, b: int) -> tuple[int, int, Any]:
            kept = alloc(pair.num_bytes)
            pair(a, b, kept.ptr)
            return kept.ptr, kept.ptr + pair.second_at, kept

        return pad
    copy_a = None if choice.a_copy is None else choice.a_copy.launch(choice.a)
    copy_b = None if choice.b_copy is None else choice.b_copy.launch(choice.b)
    if copy_a is None and copy_b is None:
        return None
    second_at = 0 if copy_a is None else aligned_end(copy_a.num_bytes)
    num_bytes = second_at + (0 if copy_b is None else copy_b.num_bytes)

    def copy(a: int, b: int) -> tuple[int, int, Any]:
        kept = alloc(num_bytes)
        place = kept.ptr
        if copy_a is not None:
            copy_a(a, place)
            a = place
        if copy_b is not None:
            place += second_at
            copy_b(b, place)
            b = place
        return a, b, kept

    return copy
