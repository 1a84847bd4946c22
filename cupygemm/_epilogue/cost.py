"""What an epilogue costs, for the cost model: the bytes that it reads and its instructions.

Bytes are counted from the record of the epilogue. Instructions are computed: those that a kernel
for gfx942 has more with a part than without it, for each element. The test
``tests/epilogue/test_epilogue_cost.py`` counts them again. Most of them belong to activations.
"""

from __future__ import annotations

from cupygemm._epilogue.activations import ACTIVATIONS
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import Epilogue, GemmProblem

LANES_PER_CLOCK = 64
"""Of a CU's vector instructions: four SIMDs, each of which takes four cycles for 64 lanes."""
_ADDEND, _CLAMP = 5, 4  # instructions to add beta * c, and to clamp


def read_bytes(epilogue: Epilogue | None, rows: int, columns: int) -> int:
    """Return the bytes that the epilogue of a block of C reads."""
    if epilogue is None:
        return 0
    counts = {"one": 1, "row": rows, "column": columns, "matrix": rows * columns}
    return sum(counts[s.along] * ITEMSIZE[s.dtype] for s in epilogue.sources.values())


def instructions(epilogue: Epilogue | None, out_dtype: DType) -> int:
    """Return the vector instructions of an element."""
    if epilogue is None:
        return 0
    count = epilogue.alpha + epilogue.scale + _CLAMP * epilogue.clamp
    count += sum(_ADDEND if name == "c" else 1 for name in epilogue.sources)
    if epilogue.activation is None:
        return count
    narrow, wide = ACTIVATIONS[epilogue.activation].instructions
    return count + (wide if ITEMSIZE[out_dtype] > 2 else narrow)


def cycles(problem: GemmProblem, elements: float) -> float:
    """Return the cycles of a CU's vector units for the epilogue of that many elements."""
    return instructions(problem.epilogue, problem.out_dtype) * elements / LANES_PER_CLOCK
