"""The cost of an epilogue in the cost model: the bytes that it reads, and its instructions.

Bytes follow from the record of the epilogue. Instructions are computed: the vector instructions per
element that a part adds to a kernel for CDNA3. Most of them belong to activations.
``tests/backends/cdna/test_epilogue_cost.py`` verifies the counts.
"""

from __future__ import annotations

from cupygemm._epilogue.activations import ACTIVATIONS
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import Epilogue, GemmProblem

LANES_PER_CLOCK = 64
"""Lanes for which a CU executes a vector instruction: four SIMDs take four cycles for 64 each."""
_ADDEND, _CLAMP = 5, 4  # instructions to add beta * c, and to clamp


def read_bytes(epilogue: Epilogue | None, rows: int, columns: int) -> int:
    """Return the bytes that the epilogue of a block of C reads."""
    if epilogue is None:
        return 0
    counts = {"one": 1, "row": rows, "column": columns, "matrix": rows * columns}
    return sum(counts[s.along] * ITEMSIZE[s.dtype] for s in epilogue.sources.values())


def instructions(epilogue: Epilogue | None, out_dtype: DType) -> int:
    """Return the number of vector instructions for each element."""
    if epilogue is None:
        return 0
    count = epilogue.alpha + epilogue.scale + _CLAMP * epilogue.clamp
    count += sum(_ADDEND if name == "c" else 1 for name in epilogue.sources)
    if epilogue.activation is None:
        return count
    narrow, wide = ACTIVATIONS[epilogue.activation].instructions
    return count + (wide if ITEMSIZE[out_dtype] > 2 else narrow)


def cycles(problem: GemmProblem, elements: float) -> float:
    """Return the cycles that the vector units of a CU take for the epilogue of some elements."""
    return instructions(problem.epilogue, problem.out_dtype) * elements / LANES_PER_CLOCK
