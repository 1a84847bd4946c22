"""Copies of operands that TMA or wgmma cannot read in place, each by a separate kernel.

A padding copy has rows that begin at multiples of 16 bytes. A transposing copy has adjacent
elements along k, which wgmma requires of all but 16-bit operands. A splitting copy holds the tf32
terms of fp32 numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm._backends.hopper.compilation.compile import compile_cubin, load
from cupygemm._backends.hopper.compilation.source import pad_text, split_text, transpose_text
from cupygemm._backends.hopper.config import TMA_BYTES
from cupygemm._backends.hopper.cuda.enqueue import Enqueue, Parameters, offsets
from cupygemm._backends.hopper.operands.stack import TmaStack

PAD_ENTRY, TRANSPOSE_ENTRY = "cupygemm_pad_copy", "cupygemm_transpose_copy"
SPLIT_ENTRY = "cupygemm_split_copy"
NUM_TERMS = 3
"""Products of tf32 terms that are added for one product of fp32."""
_SOURCE = [  # a stack of matrices, and the address of its copy
    ("source", np.uint64),
    ("destination", np.uint64),
    ("pitch", np.int64),
    ("stride", np.int64, 3),
    ("batch", np.int32, 3),
    ("rows", np.uint32),
]
_PAD_OPERAND = np.dtype(
    [
        *_SOURCE,
        ("row_bytes", np.uint32),
        ("row_vectors", np.uint32),
    ],
    align=True,
)
PAD_ARGS = np.dtype([("operands", _PAD_OPERAND, 2), ("first_blocks", np.uint32)], align=True)
TRANSPOSE_ARGS = np.dtype([*_SOURCE, ("columns", np.uint32), ("out_pitch", np.uint32)], align=True)
SPLIT_ARGS = np.dtype([*_SOURCE, ("columns", np.uint32), ("part", np.uint32)], align=True)
_MAX_GRID_Y = 65535
_PAD_THREADS = 256
_PAD_VECTORS = 4  # that a thread copies
_PAIR_ALIGN = 256  # of a copy after another
_TRANSPOSE_THREADS = 256
_TRANSPOSE_TILE = (128, 128)  # rows and columns of the source
_SPLIT_TILE = (64, 32)
_SPLIT_THREADS = 256


@dataclass(frozen=True)
class OperandCopy:
    """How an operand is copied before it is multiplied.

    Attributes
    ----------
    reason : str
        Why the operand cannot be read in place.
    transposes : bool
        The copy is transposed, so that its elements along k are adjacent.
    num_terms : int
        Consecutive terms along k: 3 for fp32 as tf32 terms, otherwise 1.
    low_term : int
        Which of the three holds the low bits.
    """

    reason: str
    transposes: bool = False
    num_terms: int = 1
    low_term: int = 0

    def target(self, source: TmaStack) -> TmaStack:
        """Return the copy of a stack: what the kernel reads."""
        rows = source.transposed() if self.transposes else source
        return rows.padded() if self.num_terms == 1 else rows.widened(self.num_terms)

    @property
    def pads(self) -> bool:
        """Whether the copy changes the pitch of the rows only."""
        return not self.transposes and self.num_terms == 1

    def launch(self, source: TmaStack) -> CopyLaunch:
        """Return the launch that copies a stack, its kernel loaded."""
        if self.num_terms > 1 or (self.transposes and source.itemsize == 4):
            text = split_text(
                transposes=self.transposes, num_terms=self.num_terms, low_term=self.low_term
            )
            return SplitLaunch(load(compile_cubin(text, SPLIT_ENTRY)), source, self)
        if self.transposes:
            return TransposeLaunch(load(compile_cubin(transpose_text(), TRANSPOSE_ENTRY)), source)
        return PadLaunch(load(compile_cubin(pad_text(), PAD_ENTRY)), source)


class CopyLaunch:
    """The launch of a copy to `num_bytes` bytes."""

    __slots__ = ("_enqueue", "_parameters", "num_bytes")

    _enqueue: Enqueue
    _parameters: Parameters
    num_bytes: int

    def __call__(self, source: int, destination: int) -> None:
        """Enqueue the copy from one address to another."""
        self._enqueue(self._parameters[source, destination])


class PadLaunch(CopyLaunch):
    """The copy of an operand to rows that TMA can read."""

    __slots__ = ()

    def __init__(self, kernel: Any, source: TmaStack) -> None:
        self.num_bytes = source.padded().num_bytes
        arguments = np.zeros(1, PAD_ARGS)
        arguments["operands"][0, 0] = _pad_operand(source)
        arguments["first_blocks"] = blocks = _pad_blocks(source)
        self._parameters = Parameters(arguments, *offsets(_PAD_OPERAND, "source", "destination"))
        grid = (blocks, min(source.num_matrices, _MAX_GRID_Y), 1)
        self._enqueue = Enqueue(kernel, grid, _PAD_THREADS)


class PadPairLaunch:
    """The copies of both operands to rows that TMA can read, in one launch.

    Attributes
    ----------
    second_at : int
        The offset of the second copy, which follows the first one.
    num_bytes : int
        The bytes of both copies.
    """

    __slots__ = ("_enqueue", "_parameters", "num_bytes", "second_at")

    def __init__(self, kernel: Any, first: TmaStack, second: TmaStack) -> None:
        self.second_at = aligned_end(first.padded().num_bytes)
        self.num_bytes = self.second_at + second.padded().num_bytes
        arguments = np.zeros(1, PAD_ARGS)
        for place, source in enumerate((first, second)):
            arguments["operands"][0, place] = _pad_operand(source)
        arguments["first_blocks"] = blocks = _pad_blocks(first)
        addresses = offsets(_PAD_OPERAND, "source", "destination")
        behind_first = (_PAD_OPERAND.itemsize + offset for offset in addresses)
        self._parameters = Parameters(arguments, *addresses, *behind_first)
        matrices = max(first.num_matrices, second.num_matrices)
        grid = (blocks + _pad_blocks(second), min(matrices, _MAX_GRID_Y), 1)
        self._enqueue = Enqueue(kernel, grid, _PAD_THREADS)

    def __call__(self, first: int, second: int, destination: int) -> None:
        """Enqueue the copies, from two addresses to one."""
        key = first, destination, second, destination + self.second_at
        self._enqueue(self._parameters[key])


def pad_pair(
    first: TmaStack,
    first_copy: OperandCopy | None,
    second: TmaStack,
    second_copy: OperandCopy | None,
) -> PadPairLaunch | None:
    """Return the launch that pads both operands, its kernel loaded.

    None if an operand needs no copy, or another kind of copy.
    """
    if not all(copy is not None and copy.pads for copy in (first_copy, second_copy)):
        return None
    return PadPairLaunch(load(compile_cubin(pad_text(), PAD_ENTRY)), first, second)


def aligned_end(num_bytes: int) -> int:
    """Return the offset of a copy that follows one of `num_bytes` bytes in the same memory."""
    return -(-num_bytes // _PAIR_ALIGN) * _PAIR_ALIGN


def _pad_operand(source: TmaStack) -> Any:
    """Return the arguments of the padding copy for an operand, without the addresses."""
    size = source.itemsize
    operand = np.zeros((), _PAD_OPERAND)
    operand["pitch"] = source.pitch * size
    operand["stride"] = [s * size for s in source.strides]
    operand["batch"] = source.batch
    operand["rows"] = source.rows
    operand["row_bytes"] = source.adjacent * size
    operand["row_vectors"] = source.padded().pitch * size // TMA_BYTES
    return operand


def _pad_blocks(source: TmaStack) -> int:
    """Return the blocks that pad a matrix."""
    vectors = source.rows * (source.padded().pitch * source.itemsize // TMA_BYTES)
    return -(-vectors // (_PAD_THREADS * _PAD_VECTORS))


class TransposeLaunch(CopyLaunch):
    """The copy of an operand of bytes to its transpose, with rows that TMA can read."""

    __slots__ = ()

    def __init__(self, kernel: Any, source: TmaStack) -> None:
        result = source.transposed().padded()
        self.num_bytes = result.num_bytes
        arguments = np.zeros(1, TRANSPOSE_ARGS)
        arguments["pitch"] = source.pitch
        arguments["stride"] = source.strides
        arguments["batch"] = source.batch
        arguments["rows"] = source.rows
        arguments["columns"] = source.adjacent
        arguments["out_pitch"] = result.pitch
        self._parameters = Parameters(arguments, *offsets(TRANSPOSE_ARGS, "source", "destination"))
        batches = source.batch[0] * source.batch[1] * source.batch[2]
        rows, columns = _TRANSPOSE_TILE
        tiles = -(-source.rows // rows) * -(-source.adjacent // columns)
        grid = (tiles, min(batches, _MAX_GRID_Y), 1)
        self._enqueue = Enqueue(kernel, grid, _TRANSPOSE_THREADS)


class SplitLaunch(CopyLaunch):
    """The copy of an fp32 operand to its transpose, to its tf32 terms, or to both."""

    __slots__ = ()

    def __init__(self, kernel: Any, source: TmaStack, copy: OperandCopy) -> None:
        target = copy.target(source)
        self.num_bytes = target.num_bytes
        arguments = np.zeros(1, SPLIT_ARGS)
        pitch = target.pitch // copy.num_terms
        arguments["pitch"] = source.pitch
        arguments["stride"] = source.strides
        arguments["batch"] = source.batch
        arguments["rows"] = source.rows
        arguments["columns"] = source.adjacent
        arguments["part"] = pitch
        self._parameters = Parameters(arguments, *offsets(SPLIT_ARGS, "source", "destination"))
        batches = source.batch[0] * source.batch[1] * source.batch[2]
        if copy.transposes:
            rows, columns = _SPLIT_TILE
            blocks = -(-source.rows // rows) * -(-source.adjacent // columns)
        else:
            blocks = -(-source.rows * (pitch // 4) // _SPLIT_THREADS)
        grid = (blocks, min(batches, _MAX_GRID_Y), 1)
        self._enqueue = Enqueue(kernel, grid, _SPLIT_THREADS)
