"""Triton's persistent matrix product with TMA descriptors, in a few configurations.

It follows Triton's tutorial 09 ("Persistent Matmul"): each program computes tiles in a grouped
order, and stores a tile while it loads the next. Import it only where Triton is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

CONFIGS = ((64, 64, 128, 4, 4), (64, 128, 64, 4, 4), (128, 128, 64, 4, 4), (128, 256, 64, 3, 8))
"""Rows, columns and k of a tile, stages, and warps."""


@triton.jit
def _product(
    x,
    w,
    out,
    m,
    n,
    k,
    w_transposed: tl.constexpr,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    tile_k: tl.constexpr,
    group_m: tl.constexpr,
    programs: tl.constexpr,
):
    tiles_m, tiles_n = tl.cdiv(m, tile_m), tl.cdiv(n, tile_n)
    in_group = group_m * tiles_n
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, programs, flatten=True):
        first = tile // in_group * group_m
        rows = min(tiles_m - first, group_m)
        row = (first + tile % in_group % rows) * tile_m
        column = tile % in_group // rows * tile_n
        sums = tl.zeros((tile_m, tile_n), dtype=tl.float32)
        for step in range(tl.cdiv(k, tile_k)):
            a = x.load([row, step * tile_k])
            if w_transposed:
                sums = tl.dot(a, w.load([column, step * tile_k]).T, sums)
            else:
                sums = tl.dot(a, w.load([step * tile_k, column]), sums)
        out.store([row, column], sums.to(out.dtype))


def calls(
    sets: list[tuple[Any, Any, Any]], *, w_transposed: bool
) -> dict[str, Callable[..., None]]:
    """Return one call for each configuration.

    Parameters
    ----------
    sets : list of (x, w, out)
        Torch tensors in C order.
    w_transposed : bool
        Whether w is (n, k) instead of (k, n).
    """
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    found = {}
    for tile_m, tile_n, tile_k, stages, warps in CONFIGS:
        descriptors = {
            x.data_ptr(): _described(x, w, out, w_transposed, (tile_m, tile_n, tile_k))
            for x, w, out in sets
        }

        def call(
            x: Any,
            w: Any,
            out: Any,
            *,
            made: Any = descriptors,
            tiles: Any = (tile_m, tile_n),
            depth: int = tile_k,
            stages: int = stages,
            warps: int = warps,
        ) -> None:
            (m, k), n = x.shape, out.shape[1]
            grid = (min(sms, triton.cdiv(m, tiles[0]) * triton.cdiv(n, tiles[1])),)
            _product[grid](
                *made[x.data_ptr()],
                m,
                n,
                k,
                w_transposed,
                *tiles,
                depth,
                8,
                sms,
                num_stages=stages,
                num_warps=warps,
            )

        found[f"Triton {tile_m}x{tile_n}x{tile_k}"] = call
    return found


def _described(
    x: Any, w: Any, out: Any, w_transposed: bool, tile: tuple[int, int, int]
) -> tuple[Any, ...]:
    tile_m, tile_n, tile_k = tile
    of_w = [tile_n, tile_k] if w_transposed else [tile_k, tile_n]
    return tuple(
        TensorDescriptor.from_tensor(tensor, box)
        for tensor, box in ((x, [tile_m, tile_k]), (w, of_w), (out, [tile_m, tile_n]))
    )
