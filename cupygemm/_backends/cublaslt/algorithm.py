"""`LtConfig`: an algorithm of cuBLASLt as numbers, for the database of tuned configurations."""

from __future__ import annotations

import ctypes
import dataclasses
from dataclasses import dataclass

from cupygemm._backends.cublaslt.library import Algorithm, HeuristicResult, LtProduct, library

_ATTRIBUTES = {
    "algorithm": (0, ctypes.c_int32),
    "tile": (1, ctypes.c_uint32),
    "split_k": (2, ctypes.c_int32),
    "reduction": (3, ctypes.c_uint32),
    "swizzle": (4, ctypes.c_uint32),
    "custom": (5, ctypes.c_uint32),
    "stages": (6, ctypes.c_uint32),
    "inner_shape": (7, ctypes.c_uint16),
    "cluster_shape": (8, ctypes.c_uint16),
}
"""``cublasLtMatmulAlgoConfigAttributes_t``, with the types of their values."""


@dataclass(frozen=True, kw_only=True)
class LtConfig:
    """An algorithm of cuBLASLt with its settings, as values of its enumerations.

    Attributes
    ----------
    algorithm : int
    tile : int
        A ``cublasLtMatmulTile_t``.
    split_k : int
    reduction : int
        How parts of k are added.
    swizzle, custom : int
    stages : int
        A ``cublasLtMatmulStages_t``.
    inner_shape, cluster_shape : int
    """

    algorithm: int
    tile: int
    split_k: int
    reduction: int
    swizzle: int
    custom: int
    stages: int
    inner_shape: int
    cluster_shape: int

    @property
    def brief(self) -> str:
        """Return the algorithm, its tile, and the parts of k."""
        return f"cuBLASLt {self.algorithm}, tile {self.tile}, stages {self.stages}" + (
            f", k in {self.split_k} parts" if self.split_k > 1 else ""
        )

    @property
    def summary(self) -> str:
        """Return the settings by name."""
        values = dataclasses.asdict(self)
        return "cuBLASLt: " + ", ".join(f"{name} {value}" for name, value in values.items())


def config_of(algorithm: Algorithm) -> LtConfig:
    """Return the settings of an algorithm; 0 for settings that it lacks."""
    lib, values = library(), {}
    for name, (attribute, kind) in _ATTRIBUTES.items():
        value, written = kind(), ctypes.c_size_t()
        status = lib.cublasLtMatmulAlgoConfigGetAttribute(
            ctypes.byref(algorithm),
            attribute,
            ctypes.byref(value),
            ctypes.c_size_t(ctypes.sizeof(value)),
            ctypes.byref(written),
        )
        values[name] = 0 if status else int(value.value)
    return LtConfig(**values)


def algorithm_of(config: LtConfig, product: LtProduct) -> HeuristicResult:
    """Return the algorithm with these settings, and the workspace that it needs for a product.

    Raises
    ------
    ValueError
        The library cannot compute the product in this way.
    """
    lib, result = library(), HeuristicResult()
    types = product.types
    status = lib.cublasLtMatmulAlgoInit(
        product.handle,
        product.compute,
        product.scale,
        *types,
        config.algorithm,
        ctypes.byref(result.algorithm),
    )
    for name, (attribute, kind) in _ATTRIBUTES.items():
        if status:
            break
        value = getattr(config, name)
        if name == "algorithm" or not value:  # an algorithm starts with zeros
            continue
        status = lib.cublasLtMatmulAlgoConfigSetAttribute(
            ctypes.byref(result.algorithm),
            attribute,
            ctypes.byref(kind(value)),
            ctypes.c_size_t(ctypes.sizeof(kind)),
        )
    if not status:
        status = product.check(result)
    if status:
        raise ValueError(f"cuBLASLt does not support {config.summary} (status {status})")
    return result
