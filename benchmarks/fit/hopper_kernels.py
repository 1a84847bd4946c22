"""Hopper's kernels as a sweep measures them: their choice, compilation and times.

This is the only module of the sweep that uses the backend's functions. Without a GPU, everything
except `machine` and `measure` works.
"""

from __future__ import annotations

import datetime as dt
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from benchmarks.fit.layouts import DTYPES, layout_of
from benchmarks.fit.samples import Config, Product, Sample, Timing
from benchmarks.fit.timing import bound, draw, operand, result, times
from benchmarks.models.measure import COLD_BYTES, operands_of
from benchmarks.models.peers import Case
from benchmarks.models.rotation import Arena, Rotating
from cupygemm._backends.hopper.choice.select import select
from cupygemm._backends.hopper.config import HopperArch, HopperConfig
from cupygemm._backends.hopper.plan import HopperChoice, choose
from cupygemm._backends.hopper.product import make_preparation, make_product
from cupygemm._request.layout import Layout

H200 = HopperArch(part="NVIDIA H200")
ORDER_OF = {"NT": "(n, k)", "NN": "(k, n)"}
"""How W is stored, by the layout of a product that is measured cold."""
ARENAS: dict[Any, Arena] = {}
_OF_KIND = 2  # number of kernels for each way to share k and operands


class HopperKernels:
    """The kernels for an NVIDIA GPU of compute capability 9.0.

    Parameters
    ----------
    arch : HopperArch, optional
        The GPU, if it is not this machine's; by default, CuPy's current device.
    cold : bool
        Whether to measure with cold operands too.
    by_sm : bool
        Whether kernels give each SM the tile of its number, or none does.
    kinds : bool
        Whether to measure also the best two kernels of each way to share k and operands, and each
        kernel only as it would run: without `by_sm`, none that would run by SM.
    """

    unit = "us"

    def __init__(
        self,
        arch: HopperArch | None = None,
        *,
        cold: bool = False,
        by_sm: bool = False,
        kinds: bool = False,
    ) -> None:
        self.arch = _arch_at_hand() if arch is None else arch
        self.cold, self.by_sm, self.kinds = cold, by_sm, kinds

    def machine(self) -> dict[str, Any]:
        """Return the facts on which the times depend."""
        import cupy as cp

        from cupygemm._backends.hopper.cuda.nvrtc import find_nvrtc

        properties = cp.cuda.runtime.getDeviceProperties(0)
        return {
            "device": properties["name"].decode(),
            "driver": _driver(),
            "date": dt.datetime.now(dt.UTC).date().isoformat(),
            "unit": self.unit,
            "num_sms": properties["multiProcessorCount"],
            "hbm_bytes_per_clock": self.arch.hbm_bytes_per_clock,
            "cuda": cp.cuda.runtime.driverGetVersion(),
            "compiler": f"NVRTC {find_nvrtc().version}",
            "cupy": cp.__version__,
            "caches": "as repeated calls with the same operands leave them",
        }

    def candidates(self, product: Product, first: int, others: int) -> list[Config]:
        """Return configurations: the highest-ranked by the cost model, and random others."""
        layout = layout_of(product)
        ranked = select(layout.problem, self.arch).candidates
        if self.by_sm or self.kinds:
            arch, by_sm = self.arch, self.by_sm
            ranked = tuple(
                each for each in ranked if choose(layout, arch, each.config).by_sm == by_sm
            )
        chosen = [each.config for each in draw(ranked, first, others, str(product))]
        if self.kinds:
            chosen += _best_of_kinds([each.config for each in ranked])
        return [asdict(config) for config in dict.fromkeys(chosen)]

    def compile(self, product: Product, config: Config) -> None:
        """Compile the kernel into the cache."""
        _ = self._choice(layout_of(product), config).gemm

    def measure(self, product: Product, configs: Sequence[Config]) -> Sample:
        """Return the times of kernels, medians over rounds in which they take turns."""
        import cupy as cp

        layout = layout_of(product)
        *batch, m, n, k = product.shape
        x1 = operand((*batch, m, k), DTYPES[product.operands], product.layout[0])
        x2 = operand((*batch, k, n), DTYPES[product.operands], product.layout[1])
        out = result((*batch, m, n), DTYPES[product.result])
        a, b = (x2, x1) if layout.swapped else (x1, x2)
        choices = [self._choice(layout, config) for config in configs]
        calls = [bound(make_product(choice), a, b, out) for choice in choices]
        turned = {choice.config.transposed_c: choice for choice in choices}
        copies = {key: _copies(choice, a, b) for key, choice in turned.items()}
        calls += [call for call in copies.values() if call is not None]
        has_vendor = product.operands in ("f64", "tf32x3")
        if has_vendor:
            calls.append(lambda: cp.matmul(x1, x2, out=out))
        taken = iter(times(calls))
        kernels = [next(taken) for _ in choices]
        of_copies = {key: 0.0 if call is None else next(taken) for key, call in copies.items()}
        colds = self._cold(product, choices) if self.cold else [None] * len(choices)
        timings = tuple(
            Timing(config, time, of_copies[choice.config.transposed_c], cold)
            for config, choice, time, cold in zip(configs, choices, kernels, colds, strict=True)
        )
        return Sample(product, timings, next(taken) if has_vendor else None)

    def _cold(self, product: Product, choices: Sequence[HopperChoice]) -> list[float]:
        """Return the times of kernels with operands that rotate; see `benchmarks.models`."""
        dtype, swapped = DTYPES[product.operands], layout_of(product).swapped
        case = Case(*product.shape, dtype, ORDER_OF[product.layout])
        sets = ARENAS.setdefault(dtype, Arena(dtype)).sets(*operands_of(case), COLD_BYTES)
        addresses = [tuple(array.data.ptr for array in each) for each in sets]
        if swapped:
            addresses = [(b, a, c) for a, b, c in addresses]
        calls = [Rotating(make_product(choice), addresses) for choice in choices]
        for call in calls:
            call.warm_up(2)
        return times(calls)

    def _choice(self, layout: Layout, config: Config) -> HopperChoice:
        return replace(choose(layout, self.arch, HopperConfig(**config)), by_sm=self.by_sm)


def _best_of_kinds(ranked: Sequence[HopperConfig]) -> list[HopperConfig]:
    """Return the first two kernels of each way to share k and operands."""
    counts: Counter[tuple[bool, ...]] = Counter()
    found = []
    for config in ranked:
        shares_operands = config.cluster_m * config.cluster_n > 1
        kind = config.split_k > 1, config.stream_k > 0, config.cluster_k > 1, shares_operands
        counts[kind] += 1
        if counts[kind] <= _OF_KIND:
            found.append(config)
    return found


def _arch_at_hand() -> HopperArch:
    """Return the selector's record of CuPy's first device."""
    import cupy as cp

    if cp.cuda.runtime.is_hip:
        raise SystemExit("sweep: CuPy is built for ROCm; --device cuda needs cupy-cuda13x")
    properties = cp.cuda.runtime.getDeviceProperties(0)
    name, capability = properties["name"].decode(), (properties["major"], properties["minor"])
    if capability != (9, 0):
        raise SystemExit(f"sweep: {name} has compute capability {capability}; Hopper has (9, 0)")
    return HopperArch.of_device(name, properties)


def _copies(choice: HopperChoice, a: Any, b: Any) -> Callable[[], None] | None:
    """Return the call that copies the operands for the kernel; None if it needs no copies."""
    prepare = make_preparation(choice)
    if prepare is None or (choice.a_copy is None and choice.b_copy is None):
        return None
    return bound(prepare, a, b)


def _driver() -> str:
    """Return the version of the driver, which CuPy does not provide."""
    try:
        command = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return text.splitlines()[0].strip()
