"""Order the algorithms that cuBLASLt offers for a product by their modelled cost."""

from __future__ import annotations

from dataclasses import dataclass

from cupygemm._backends.cublaslt.algorithm import LtConfig, config_of
from cupygemm._backends.cublaslt.library import HeuristicResult, LtProduct
from cupygemm._backends.cublaslt.model import knows, modelled_cycles
from cupygemm._backends.protocol import DeviceProperties
from cupygemm._records.problem import GemmProblem

MOST_ALGORITHMS = 16
WORKSPACE_BYTES = 32 << 20
"""The most memory that an algorithm may use."""
_HOPPER = 9  # the major compute capability


@dataclass(frozen=True)
class LtCandidate:
    """An algorithm with its modelled cost.

    Attributes
    ----------
    config : LtConfig
    cycles : float
        Modelled, or its number in the order of the heuristics if the model lacks the product.
    algorithm : HeuristicResult
    """

    config: LtConfig
    cycles: float
    algorithm: HeuristicResult


def ranked(
    product: LtProduct, problem: GemmProblem, device: DeviceProperties
) -> tuple[LtCandidate, ...]:
    """Return the algorithms for a product, the cheapest first."""
    found = product.algorithms(MOST_ALGORITHMS, workspace_bytes=WORKSPACE_BYTES)
    configs = [config_of(each.algorithm) for each in found]
    costs = [float(number) for number in range(len(found))]
    if device.values.get("major") == _HOPPER and knows(problem) and found:
        waves = [each.waves for each in found]
        num_sms = device.values["multiProcessorCount"]
        costs = modelled_cycles(problem, configs, waves, num_sms).tolist()
    candidates = map(LtCandidate, configs, costs, found)
    return tuple(sorted(candidates, key=lambda candidate: candidate.cycles))
