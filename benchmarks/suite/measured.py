"""Measured on a GPU. ``python -m benchmarks.history add`` enters the figures, by commit.

asv runs none of these benchmarks. They describe the entered figures: this library and the others
are values of one parameter, so a graph shows them together. The device, its driver, its clocks and
the date are in the kept result file; docs/explanation/hopper_measured.rst describes how each table
was measured.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

sys.path.append(str(Path(__file__).parents[1]))  # asv imports only the suite
import solvers
from contenders import CASES, COLUMN_MAJOR, ROW_MAJOR

PRODUCTS = tuple(f"{dtype} {case.name}" for dtype, cases in CASES.items() for case in cases)
LIBRARIES = (
    "cupygemm",
    "torch",
    "cupy",
    "cupygemm" + ROW_MAJOR,
    "cupygemm" + COLUMN_MAJOR,
    "torch" + COLUMN_MAJOR,
)
_LAYERS = "72 linear layers of eight models"
_TOKENS = ("1 to 8", "33", "128 to 197", "512", "2048", "6304 to 8192")


class _Entered:
    """Benchmarks whose results come from `benchmarks.history add`."""

    version = "1"

    def setup(self, *case: str) -> None:
        raise NotImplementedError("measured runs are entered, not run by asv")


class Measured(_Entered):
    """Seconds of a product in `benchmarks.compare`."""

    params = (PRODUCTS, LIBRARIES)
    param_names = ("product", "library")

    def track_device_time(self, *case: str) -> None: ...

    def track_call_time(self, *case: str) -> None: ...

    track_device_time.unit = track_call_time.unit = "seconds"
    track_device_time.pretty_name = "Measured: time of a product on the device"
    track_call_time.pretty_name = "Measured: time of a call, host and device"


class MeasuredRatio(_Entered):
    """Our time divided by a peer's in bf16, geometric mean over shapes. Below 1, ours is less."""

    params = (
        (
            "100 random aligned shapes",
            _LAYERS,
            *(f"{_LAYERS}, {tokens} tokens" for tokens in _TOKENS),
        ),
        ("torch", "cuBLASLt, all heuristics", "DeepGEMM", "fastest peer of each shape"),
        ("warm", "cold"),
    )
    param_names = ("shapes", "peer", "operands")

    def track_ratio(self, *case: str) -> None: ...

    track_ratio.unit = "times the peer's time"
    track_ratio.pretty_name = "Measured: our time over a peer's"


class MeasuredEpilogue(_Entered):
    """Seconds of a bf16 product with an epilogue."""

    params = (
        ("4096x4096x4096", "8192x8192x8192", "4096x14336x4096"),
        ("plain", "bias", "bias, relu", "bias, gelu", "c", "torch addmm", "torch addmm, c"),
    )
    param_names = ("product", "epilogue")

    def track_device_time(self, *case: str) -> None: ...

    track_device_time.unit = "seconds"
    track_device_time.pretty_name = "Measured: time of a product with an epilogue"


class MeasuredGroup(_Entered):
    """Seconds of groups and symmetric products in bf16."""

    params = (
        (
            "32 of (64 to 2048)x2048x2048",
            "32 of (64 to 2048) rows, n and k of 2048 to 4096",
            "8 of (16 to 256)x4096x4096",
            "4 of 128x256x512",
            "syrk of 1536x2048",
            "syrk of 4096x4096",
            "syrk of 8192x8192",
        ),
        ("cupygemm", "cupygemm, by matmul", "torch", "torch _grouped_mm"),
    )
    param_names = ("products", "library")

    def track_device_time(self, *case: str) -> None: ...

    track_device_time.unit = "seconds"
    track_device_time.pretty_name = "Measured: time of groups and symmetric products"


class MeasuredUnaligned(_Entered):
    """Seconds of products whose rows do not start at multiples of 16 bytes."""

    params: ClassVar[tuple[tuple[str, ...], ...]] = (
        tuple(
            f"{dtype} {case}"
            for dtype in ("bf16", "fp16")
            for case in (
                "1023x1025x1027",
                "2047x2049x2051",
                "4095x4097x4099",
                "8191x8193x8191",
                "4096x4096x4099, A copied",
                "4096x4097x4096, B copied",
                "4095x4097x4099, B column-major",
                "4095x4097x4099, A column-major",
                "4095x4097x4099, both column-major",
            )
        ),
        ("cupygemm", "cupygemm, copies alone", "cupygemm, padded operands", "torch"),
    )
    param_names = ("product", "part")

    def track_device_time(self, *case: str) -> None: ...

    track_device_time.unit = "seconds"
    track_device_time.pretty_name = "Measured: time of products with unaligned rows"


class MeasuredSolver(_Entered):
    """Seconds of a call of a solver in `benchmarks.solvers`."""

    params = (tuple(solvers.CASES), solvers.LIBRARIES)
    param_names = ("computation", "library")

    def track_call_time(self, *case: str) -> None: ...

    track_call_time.unit = "seconds"
    track_call_time.pretty_name = "Measured: time of a factorisation or a solution"
