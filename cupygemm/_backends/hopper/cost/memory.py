"""The modelled time of the memory for a Hopper kernel."""

from __future__ import annotations

import numpy as np

from cupygemm._backends.hopper.cost.constants import KERNELS
from cupygemm._backends.hopper.cost.parameters import KernelConstants
from cupygemm._backends.hopper.cost.shapes import Number, Shapes, by_flag


def memory_cycles(shapes: Shapes, constants: KernelConstants = KERNELS) -> Number:
    """Return the cycles of the memory to read the operands and write the result once.

    L2 keeps small operands from call to call; each of its halves may keep a copy.
    """
    return memory_bytes(shapes, constants) / memory_rate(shapes, constants, cold=False)


def memory_bytes(
    shapes: Shapes, constants: KernelConstants, strip_a: Number = 1.0, strip_b: Number = 1.0
) -> Number:
    """Return the bytes that are read and written; rows that cross lines count more.

    `strip_a` and `strip_b` are factors for the operands.
    """
    s = shapes
    row = s.k * s.size * s.num_batches * 1.0
    read_a = s.m * (row * (1 + constants.lines_memory * s.a_crosses) * strip_a)
    read_b = s.n * (row * (1 + constants.lines_memory * s.b_crosses) * strip_b)
    return read_a + read_b + s.num_results * s.out_size * 1.0


def memory_rate(shapes: Shapes, constants: KernelConstants, *, cold: Number) -> Number:
    """Return the bytes per clock from memory; L2 helps unless the operands are `cold`."""
    limits = constants.warm_bytes_all, constants.warm_bytes_none
    lost = by_flag(cold, 1.0, between(shapes.moved_bytes, *limits))
    return constants.memory / (constants.warm + (1 - constants.warm) * lost)


def between(value: Number, least: float, most: float) -> Number:
    """Return the position of a value between `least` (0) and `most` (1)."""
    position = (value - least) / (most - least)
    if isinstance(position, np.ndarray):
        return np.clip(position, 0.0, 1.0)
    return min(1.0, max(0.0, position))
