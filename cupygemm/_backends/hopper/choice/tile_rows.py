"""Convert the rows of the tables in `tile_shapes` to configurations."""

from __future__ import annotations

from typing import Any

from cupygemm._backends.hopper.config import SHARED_BYTES, HopperConfig

WIDTH_STEP = 8
"""Columns between the widths of a range of tiles, for each part of k; see `widths_of`."""
_MOST_STAGES = 16
_GROUP_ROWS = 2048  # rows of C in a raster group: about as many as columns in flight


def config_of(**columns: Any) -> HopperConfig:
    """Return the configuration of a row; the raster follows from the tile."""
    group_m = _GROUP_ROWS // (columns["tile_m"] * columns["cluster_m"])
    return HopperConfig(**columns, group_m=group_m)


def part_config_of(tile_m: int, **columns: Any) -> HopperConfig:
    """Return the configuration of a row: steps of 64, and a consumer for each 64 rows."""
    return config_of(tile_m=tile_m, tile_k=64, num_consumers=tile_m // 64, **columns)


def widths_of(
    tile_m: int, least: int, most: int, *, buffers: int = 2, cluster_k: int = 1, **columns: int
) -> tuple[HopperConfig, ...]:
    """Return tiles of the transpose of all widths in a range, with the longest rings that fit.

    A consumer has `buffers` staging buffers, or two if the ring would be no longer with one. The
    blocks of a cluster that sum parts of k store equally many columns each.
    """
    found = []
    narrowest = config_of(
        tile_m=tile_m,
        tile_n=least,
        num_consumers=tile_m // 64,
        num_stages=1,
        epilogue_buffers=1,
        cluster_k=cluster_k,
        transposed_c=True,
        **columns,
    )
    for tile_n in range(least, most + 1, WIDTH_STEP * cluster_k):
        config = narrowest.changed(tile_n=tile_n)
        two, fewest = (_longest_ring(config, count) for count in (2, buffers))
        count, num_stages = (buffers, fewest) if fewest > two else (2, two)
        found.append(config.changed(num_stages=num_stages, epilogue_buffers=count))
    return tuple(found)


def _longest_ring(config: HopperConfig, buffers: int) -> int:
    """Return the most stages for operands of 16 bits beside staging buffers of each consumer.

    `config` has one stage and one buffer.
    """
    stage = config.stage_bytes(2, "k")
    buffer = config.shared_bytes(2, "k") - stage
    return min(_MOST_STAGES, (SHARED_BYTES - buffers * buffer) // stage)
