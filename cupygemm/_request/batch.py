"""The batch axes of a product: merged where their strides allow, and divided into launches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

MAX_BATCH_AXES = 3
"""The batch axes of one launch. The host loops over others."""


class BatchAxis(NamedTuple):
    """One axis of the batch: its extent and its strides in elements.

    `sources` are the strides of the arrays that an epilogue reads.
    """

    extent: int
    a: int
    b: int
    c: int
    sources: tuple[int, ...] = ()

    @property
    def whole(self) -> tuple[int, ...]:
        """Return the strides that an outer axis must have so that this one merges into it."""
        return tuple(s * self.extent for s in (self.a, self.b, self.c, *self.sources))


class Offsets(NamedTuple):
    """The offsets of one launch's first elements in the whole product's arrays, in elements."""

    a: int
    b: int
    c: int
    sources: tuple[int, ...] = ()


def merged(axes: list[BatchAxis]) -> list[BatchAxis]:
    """Drop axes of extent 1, sort the rest by the strides of C, and merge neighbours greedily."""
    found: list[BatchAxis] = []
    axes = [axis for axis in axes if axis.extent > 1]
    for axis in sorted(axes, key=lambda axis: -abs(axis.c)):
        if found:
            outer = found[-1]
            if (outer.a, outer.b, outer.c, *outer.sources) == axis.whole:
                found[-1] = axis._replace(extent=outer.extent * axis.extent)
                continue
        found.append(axis)
    return found


def split(axes: list[BatchAxis]) -> tuple[list[BatchAxis], list[BatchAxis]]:
    """Return the axes that the host loops over, and the three longest, which the kernel takes."""
    longest = sorted(axes, key=lambda axis: -axis.extent)[:MAX_BATCH_AXES]
    looped = [axis for axis in axes if axis not in longest]
    return looped, [axis for axis in axes if axis in longest]


def offsets(looped: list[BatchAxis]) -> Iterator[Offsets]:
    """Yield the offsets of each launch."""
    for index in itertools.product(*(range(axis.extent) for axis in looped)):
        steps = list(zip(index, looped, strict=True))
        yield Offsets(
            a=sum(i * axis.a for i, axis in steps),
            b=sum(i * axis.b for i, axis in steps),
            c=sum(i * axis.c for i, axis in steps),
            sources=tuple(
                sum(i * stride for i, stride in zip(index, strides, strict=True))
                for strides in zip(*(axis.sources for axis in looped), strict=True)
            ),
        )
