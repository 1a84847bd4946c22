"""Convert the rows of the tables in `tile_shapes` to configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cupygemm._backends.hopper.config import SHARED_BYTES, HopperConfig

if TYPE_CHECKING:
    from cupygemm._backends.hopper.cost.shapes import ConfigColumns

WIDTH_STEP = 8
"""Rows of C between the widths of a range of tiles of the transpose, for each part of k."""
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


def width_step(config: HopperConfig | ConfigColumns) -> Any:
    """Return the columns between the widths of a range of tiles like this one, or these."""
    return WIDTH_STEP * (2 - config.transposed_c) * config.cluster_k


def short_widths_of(
    tile_m: int, num_consumers: int, num_sharing: int, most: int, *, transposed_c: bool
) -> tuple[HopperConfig, ...]:
    """Return tiles of all widths up to one, with the longest rings that fit for any order of B.

    If one of two consumers has a tile to itself (`num_sharing` is 1), they take turns.
    """
    config = config_of(
        tile_m=tile_m,
        tile_n=WIDTH_STEP,
        tile_k=64,
        num_consumers=num_consumers,
        num_stages=1,
        epilogue_buffers=1,
        cluster_m=1,
        cluster_n=1,
        transposed_c=transposed_c,
        ping_pong=num_sharing < num_consumers,
    )
    step = width_step(config)
    every = [config.changed(tile_n=width) for width in range(step, most + 1, step)]
    return tuple(
        each.changed(num_stages=_longest_ring(each, 2, b_major="n"), epilogue_buffers=2)
        for each in every
    )


def _longest_ring(config: HopperConfig, buffers: int, *, b_major: str = "k") -> int:
    """Return the most stages for operands of 16 bits beside staging buffers of each consumer.

    `config` has one stage and one buffer.
    """
    stage = config.stage_bytes(2, b_major)
    buffer = config.shared_bytes(2, b_major) - stage
    return min(_MOST_STAGES, (SHARED_BYTES - buffers * buffer) // stage)
