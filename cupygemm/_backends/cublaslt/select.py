"""Order the algorithms that cuBLASLt offers for a product by their modelled cost."""

from __future__ import annotations

from dataclasses import dataclass

from cupygemm._backends.cublaslt.algorithm import LtConfig, config_of
from cupygemm._backends.cublaslt.library import HeuristicResult, LtProduct

MOST_ALGORITHMS = 16
WORKSPACE_BYTES = 32 << 20
"""The most memory that an algorithm may use."""


@dataclass(frozen=True)
class LtCandidate:
    """An algorithm with its modelled cost.

    Attributes
    ----------
    config : LtConfig
    cycles : float
    algorithm : HeuristicResult
    """

    config: LtConfig
    cycles: float
    algorithm: HeuristicResult


def ranked(product: LtProduct) -> tuple[LtCandidate, ...]:
    """Return the algorithms for a product, the cheapest first."""
    found = product.algorithms(MOST_ALGORITHMS, workspace_bytes=WORKSPACE_BYTES)
    return tuple(
        LtCandidate(config_of(each.algorithm), float(number), each)
        for number, each in enumerate(found)
    )
