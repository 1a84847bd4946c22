"""The products of `benchmarks.several_gpus`: functions, shapes, and the blocks of each rank."""

from __future__ import annotations

from typing import NamedTuple

GATHER, SCATTER = "all_gather_matmul", "matmul_reduce_scatter"
FUNCTIONS = (GATHER, SCATTER)
SHAPES = (
    "1024x1024x1024",
    "2048x2048x2048",
    "4096x4096x4096",
    "8192x8192x8192",
    "16384x16384x16384",
    "2048x8192x8192",
    "4096x14336x4096",
    "8192x28672x8192",
)
"""Squares, and layers of models: m x n x k of all ranks together."""

Shape = tuple[int, int]


class Case(NamedTuple):
    """A product of all ranks.

    Attributes
    ----------
    function : {"all_gather_matmul", "matmul_reduce_scatter"}
    m, n, k : int
        Extents of the whole product; multiples of the number of ranks.
    """

    function: str
    m: int
    n: int
    k: int

    @property
    def shape(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"

    def blocks(self, rank: int, size: int) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
        """Return the rows and columns of both operands that a rank has."""
        whole = slice(None)
        if self.function == GATHER:  # rows of a, columns of b
            return (_part(self.m, rank, size), whole), (whole, _part(self.n, rank, size))
        return (whole, _part(self.k, rank, size)), (_part(self.k, rank, size), whole)

    def result(self, size: int) -> Shape:
        """Return the shape of a rank's result."""
        if self.function == GATHER:
            return self.m, self.n // size
        return self.m // size, self.n


def parse(function: str, shape: str, size: int) -> Case:
    """Return the case of a shape such as ``"8192x8192x8192"``.

    Raises
    ------
    ValueError
        The shape does not have three extents that are multiples of the number of ranks.
    """
    extents = [int(extent) for extent in shape.split("x")]
    if len(extents) != 3 or any(extent < 1 or extent % size for extent in extents):
        raise ValueError(f"the shape {shape} must be m x n x k, multiples of {size} ranks")
    return Case(function, *extents)


def _part(extent: int, rank: int, size: int) -> slice:
    return slice(rank * extent // size, (rank + 1) * extent // size)
