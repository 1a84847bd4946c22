"""Copies of operands that TMA or wgmma cannot read where they lie, each by a kernel of its own.

Padding gives rows that begin at multiples of 16 bytes; transposing, elements that are adjacent
along k, which wgmma requires of all but 16-bit operands; splitting, the tf32 parts of fp32 numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm._hopper.compile import compile_cubin, load
from cupygemm._hopper.config import TMA_BYTES
from cupygemm._hopper.enqueue import Enqueue, pointed
from cupygemm._hopper.source import pad_source, split_source, transpose_source
from cupygemm._hopper.stack import Stack

PAD_ENTRY, TRANSPOSE_ENTRY = "cupygemm_pad_copy", "cupygemm_transpose_copy"
SPLIT_ENTRY = "cupygemm_split_copy"
SPLIT_PARTS = 3  # products of tf32 parts that make one of fp32
PAD_ARGS = np.dtype(
    [
        ("source", np.uint64),
        ("destination", np.uint64),
        ("pitch", np.int64),
        ("stride", np.int64, 3),
        ("batch", np.int32, 3),
        ("rows", np.uint32),
        ("row_bytes", np.uint32),
        ("row_vectors", np.uint32),
    ],
    align=True,
)
TRANSPOSE_ARGS = np.dtype(
    [
        ("source", np.uint64),
        ("destination", np.uint64),
        ("pitch", np.int64),
        ("stride", np.int64, 3),
        ("batch", np.int32, 3),
        ("rows", np.uint32),
        ("columns", np.uint32),
        ("out_pitch", np.uint32),
    ],
    align=True,
)
SPLIT_ARGS = np.dtype(
    [
        ("source", np.uint64),
        ("destination", np.uint64),
        ("pitch", np.int64),
        ("stride", np.int64, 3),
        ("batch", np.int32, 3),
        ("rows", np.uint32),
        ("columns", np.uint32),
        ("part", np.uint32),
    ],
    align=True,
)
_MAX_GRID_Y = 65535
_PAD_THREADS = 256
_PAD_VECTORS = 4  # that a thread copies
_TRANSPOSE_THREADS = 256
_TRANSPOSE_TILE = (128, 64)  # rows and columns of the source
_SPLIT_TILE = (64, 32)
_SPLIT_THREADS = 256


@dataclass(frozen=True)
class OperandCopy:
    """How an operand is copied before the product.

    Attributes
    ----------
    reason : str
    turned : bool
        It is transposed, after which the elements along k are adjacent.
    parts : int
        Parts along k, one behind the other: 3 for fp32 as tf32 parts, else 1.
    low_part : int
        Which of the three holds the low bits.
    """

    reason: str
    turned: bool = False
    parts: int = 1
    low_part: int = 0

    def target(self, source: Stack) -> Stack:
        """Return the copy of a stack: what the kernel reads."""
        turned = source.transposed() if self.turned else source
        return turned.padded() if self.parts == 1 else turned.widened(self.parts)

    def launch(self, source: Stack) -> CopyLaunch:
        """Return the launch that copies a stack, its kernel loaded."""
        if self.parts > 1 or (self.turned and source.itemsize == 4):
            text = split_source(turned=self.turned, parts=self.parts, low_part=self.low_part)
            return SplitLaunch(load(compile_cubin(text, SPLIT_ENTRY)), source, self)
        if self.turned:
            return TransposeLaunch(load(compile_cubin(transpose_source(), TRANSPOSE_ENTRY)), source)
        return PadLaunch(load(compile_cubin(pad_source(), PAD_ENTRY)), source)


class CopyLaunch:
    """The launch of a copy to `num_bytes` bytes."""

    __slots__ = ("_arguments", "_enqueue", "num_bytes")

    _arguments: Any
    _enqueue: Enqueue
    num_bytes: int

    def __call__(self, source: int, destination: int) -> None:
        """Enqueue the copy, from an address to another."""
        arguments = self._arguments.copy()
        arguments["source"], arguments["destination"] = source, destination
        parameters, _alive = pointed(arguments)
        self._enqueue(parameters)


class PadLaunch(CopyLaunch):
    """The copy of an operand to rows that TMA can read."""

    __slots__ = ()

    def __init__(self, kernel: Any, source: Stack) -> None:
        padded = source.padded()
        size = source.itemsize
        vectors = padded.pitch * size // TMA_BYTES
        self.num_bytes = padded.num_bytes
        self._arguments = arguments = np.zeros(1, PAD_ARGS)
        arguments["pitch"] = source.pitch * size
        arguments["stride"] = [s * size for s in source.strides]
        arguments["batch"] = source.batch
        arguments["rows"] = source.rows
        arguments["row_bytes"] = source.adjacent * size
        arguments["row_vectors"] = vectors
        batches = source.batch[0] * source.batch[1] * source.batch[2]
        blocks = -(-source.rows * vectors // (_PAD_THREADS * _PAD_VECTORS))
        grid = (blocks, min(batches, _MAX_GRID_Y), 1)
        self._enqueue = Enqueue(kernel, grid, _PAD_THREADS)


class TransposeLaunch(CopyLaunch):
    """The copy of an operand of bytes to its transpose, with rows that TMA can read."""

    __slots__ = ()

    def __init__(self, kernel: Any, source: Stack) -> None:
        turned = source.transposed().padded()
        self.num_bytes = turned.num_bytes
        self._arguments = arguments = np.zeros(1, TRANSPOSE_ARGS)
        arguments["pitch"] = source.pitch
        arguments["stride"] = source.strides
        arguments["batch"] = source.batch
        arguments["rows"] = source.rows
        arguments["columns"] = source.adjacent
        arguments["out_pitch"] = turned.pitch
        batches = source.batch[0] * source.batch[1] * source.batch[2]
        rows, columns = _TRANSPOSE_TILE
        tiles = -(-source.rows // rows) * -(-source.adjacent // columns)
        grid = (tiles, min(batches, _MAX_GRID_Y), 1)
        self._enqueue = Enqueue(kernel, grid, _TRANSPOSE_THREADS)


class SplitLaunch(CopyLaunch):
    """The copy of an operand of fp32 to its transpose, or to its tf32 parts, or both."""

    __slots__ = ()

    def __init__(self, kernel: Any, source: Stack, copy: OperandCopy) -> None:
        target = copy.target(source)
        self.num_bytes = target.num_bytes
        self._arguments = arguments = np.zeros(1, SPLIT_ARGS)
        part = target.pitch // copy.parts
        arguments["pitch"] = source.pitch
        arguments["stride"] = source.strides
        arguments["batch"] = source.batch
        arguments["rows"] = source.rows
        arguments["columns"] = source.adjacent
        arguments["part"] = part
        batches = source.batch[0] * source.batch[1] * source.batch[2]
        if copy.turned:
            rows, columns = _SPLIT_TILE
            blocks = -(-source.rows // rows) * -(-source.adjacent // columns)
        else:
            blocks = -(-source.rows * (part // 4) // _SPLIT_THREADS)
        grid = (blocks, min(batches, _MAX_GRID_Y), 1)
        self._enqueue = Enqueue(kernel, grid, _SPLIT_THREADS)
