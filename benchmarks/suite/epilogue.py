"""Emulated: the savings of a fused epilogue, counted while the emulated device runs both ways.

A product of 256 x 256 x 64 in bf16 with a bias and GELU, a residual and ReLU, or both scales of
quantised operands: by one kernel, and by the product in fp32 followed by CuPy's functions, as a
user would write it. Bytes are those to and from HBM by the cache model, the sum over all launches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

TARGET = "gfx942"
M, N, K = 256, 256, 64


@dataclass(frozen=True)
class Figures:
    """The figures of one computation, summed over its launches."""

    launches: int
    instructions: int
    hbm_bytes: int


def _computations() -> dict[str, tuple[Any, Any]]:
    """Return each computation, fused and not."""
    import cupy
    from cupyx.scipy.special import erfc

    import cupygemm

    a, b = cupy.ones((M, K), "bfloat16"), cupy.ones((K, N), "bfloat16")
    bias, residual = cupy.ones(N, "float32"), cupy.ones((M, N), "float32")
    row, column = cupy.ones((M, 1), "float32"), cupy.ones((1, N), "float32")

    def product() -> Any:
        return cupygemm.matmul(a, b, dtype="float32")

    def gelu(x: Any) -> Any:
        return x * 0.5 * erfc(x * np.float32(-(0.5**0.5)))

    return {
        "bias_gelu": (
            lambda: cupygemm.matmul(a, b, bias=bias, activation="gelu"),
            lambda: gelu(product() + bias).astype(a.dtype),
        ),
        "residual_relu": (
            lambda: cupygemm.matmul(a, b, c=residual, activation="relu"),
            lambda: cupy.maximum(product() + residual, 0).astype(a.dtype),
        ),
        "scales": (
            lambda: cupygemm.matmul(a, b, scale_a=row, scale_b=column),
            lambda: (product() * row * column).astype(a.dtype),
        ),
    }


def measure() -> dict[tuple[str, str], Figures]:
    """Return the figures of each computation, fused and unfused."""
    from cupygemm import emulator

    emulator.enable(TARGET)
    found = {}
    for name, ways in _computations().items():
        for way, compute in zip(("fused", "unfused"), ways, strict=True):
            compute()  # compile, and make the plan
            with emulator.profile() as profile:
                compute()
            launches = profile.launches
            found[name, way] = Figures(
                len(launches),
                sum(launch.executed for launch in launches),
                sum(launch.hbm_read + launch.hbm_written for launch in launches),
            )
    return found


class Epilogue:
    """Launches, wave-instructions and bytes of HBM of a product with an epilogue."""

    params = (("bias_gelu", "residual_relu", "scales"), ("fused", "unfused"))
    param_names = ("epilogue", "way")
    timeout = 300

    def setup_cache(self) -> dict[tuple[str, str], Figures]:
        return measure()

    def track_launches(self, cache: dict, name: str, way: str) -> int:
        return cache[name, way].launches

    def track_instructions(self, cache: dict, name: str, way: str) -> int:
        return cache[name, way].instructions

    def track_hbm_bytes(self, cache: dict, name: str, way: str) -> int:
        return cache[name, way].hbm_bytes

    track_launches.unit = "launches"
    track_instructions.unit = "wave-instructions"
    track_hbm_bytes.unit = "bytes"
    track_launches.pretty_name = "Emulated: launches of an epilogue"
    track_instructions.pretty_name = "Emulated: instructions of an epilogue"
    track_hbm_bytes.pretty_name = "Emulated: HBM bytes of an epilogue"
