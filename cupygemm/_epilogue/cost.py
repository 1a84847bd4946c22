"""What an epilogue costs, for the cost model: the bytes that it reads and its instructions.

Bytes are counted from the record of the epilogue. Instructions are computed: those that a kernel
for gfx942 has more with a part than without it, for each element. The test
``tests/epilogue/test_epilogue_cost.py`` counts them again. Most of them belong to activations.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cupygemm._records.problem import ITEMSIZE, Activation, DType, Epilogue, GemmProblem, Source

LANES_PER_CLOCK = 64
"""Of a CU's vector instructions: four SIMDs, each of which takes four cycles for 64 lanes."""
INSTRUCTIONS: Mapping[Activation, tuple[int, int]] = MappingProxyType(
    {"relu": (2, 2), "gelu": (18, 33), "gelu_tanh": (15, 24), "silu": (12, 22), "sigmoid": (11, 20)}
)
"""Vector instructions of an activation for each element; exp and reciprocal count as four.

The first where at most 16 bits of a result are kept, the second where 32 are.
"""
_OF_C, _OF_CLAMP = 5, 4


def read_bytes(epilogue: Epilogue | None, rows: int, columns: int) -> int:
    """Return the bytes that the epilogue of a block of C reads."""
    if epilogue is None:
        return 0
    counts = {"one": 1, "row": rows, "column": columns, "matrix": rows * columns}
    sources = (
        epilogue.scale_a, epilogue.scale_b, epilogue.c, epilogue.bias, epilogue.scale_out,
    )  # fmt: skip
    return sum(counts[s.along] * ITEMSIZE[s.dtype] for s in sources if s is not None)


def instructions(epilogue: Epilogue | None, out_dtype: DType) -> int:
    """Return the vector instructions of an element."""
    if epilogue is None:
        return 0
    factors = [epilogue.alpha, epilogue.scale, epilogue.scale_a, epilogue.scale_b, epilogue.bias]
    count = sum(1 for part in (*factors, epilogue.scale_out) if part)
    count += _of_matrix(epilogue.c) + _OF_CLAMP * epilogue.clamp
    if epilogue.activation is None:
        return count
    return count + INSTRUCTIONS[epilogue.activation][ITEMSIZE[out_dtype] > 2]


def _of_matrix(source: Source | None) -> int:
    return 0 if source is None else _OF_C


def cycles(problem: GemmProblem, elements: float) -> float:
    """Return the cycles of a CU's vector units for the epilogue of that many elements."""
    return instructions(problem.epilogue, problem.out_dtype) * elements / LANES_PER_CLOCK
