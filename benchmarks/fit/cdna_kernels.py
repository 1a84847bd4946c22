"""CDNA's kernels as a sweep measures them: on an AMD GPU, or modelled on the emulated device.

The emulated device has no clock. Its samples are cycles of the timing model: deterministic, the
same on every machine, and without the time between two kernels.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.fit.layouts import DTYPES, layout_of
from benchmarks.fit.samples import Config, Product, Sample, Timing
from benchmarks.fit.timing import bound, draw, is_emulated, operand, result, times
from cupygemm._backends.cdna.arch import ARCHS, Arch
from cupygemm._backends.cdna.compile import compile_kernel
from cupygemm._backends.cdna.config import GemmConfig
from cupygemm._backends.cdna.launch import GemmLaunch, PartedLaunch
from cupygemm._backends.cdna.select import select
from cupygemm._backends.cdna.source import ADD_ENTRY
from cupygemm._request.layout import Layout

MODELLED, MEASURED = "modelled cycles", "us"
# Products that the emulated device computes in well under a second.
_MOST_MULTIPLY_ADDS = 1 << 25
_EXTENTS = (16, 32, 48, 64, 96, 128, 192, 256, 320, 512)
_DEPTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
_WHOLE = 2  # kernels that do not split k


class CdnaKernels:
    """The kernels for CuPy's first device, an AMD GPU or the emulated one."""

    def __init__(self) -> None:
        from cupy.cuda import runtime

        if not runtime.is_hip:
            raise SystemExit("sweep: CuPy is built for CUDA; CDNA's kernels need cupy-rocm-7-0")
        self.name = _target(runtime)

    @property
    def arch(self) -> Arch:
        """Return the record of the target."""
        return ARCHS[self.name]

    def machine(self) -> dict[str, Any]:
        """Return the facts on which the times depend."""
        import cupy as cp

        date = dt.datetime.now(dt.UTC).date().isoformat()
        if is_emulated():
            driver = "none: the timing model of the emulated device"
            device = f"{self.name} (emulated)"
            return {"device": device, "driver": driver, "date": date, "unit": MODELLED}
        properties = cp.cuda.runtime.getDeviceProperties(0)
        return {
            "device": f"{properties['name'].decode()} ({self.name})",
            "driver": str(cp.cuda.runtime.driverGetVersion()),
            "date": date,
            "unit": MEASURED,
            "cupy": cp.__version__,
            "caches": "as repeated calls with the same operands leave them",
        }

    def candidates(self, product: Product, first: int, others: int) -> list[Config]:
        """Return configurations: the highest-ranked by the cost model, and random others."""
        if product.operands not in self.arch.mfma_cycles:
            return []
        ranked = select(layout_of(product).problem, self.arch).candidates
        chosen = draw(ranked, first, others, str(product))
        # A long k is usually best split; without unsplit kernels a fit would see few long loops.
        whole = [each for each in ranked if each.config.partition == "tiles"]
        chosen += [each for each in whole[:_WHOLE] if each not in chosen]
        return [asdict(candidate.config) for candidate in chosen]

    def compile(self, product: Product, config: Config) -> None:
        """Compile the kernel into the cache."""
        compile_kernel(layout_of(product).problem, GemmConfig(**config), self.name)

    def measure(self, product: Product, configs: Sequence[Config]) -> Sample:
        """Return the times of kernels, or their modelled cycles."""
        layout = layout_of(product)
        *batch, m, n, k = product.shape
        x1 = operand((*batch, m, k), DTYPES[product.operands], product.layout[0])
        x2 = operand((*batch, k, n), DTYPES[product.operands], product.layout[1])
        out = result((*batch, m, n), DTYPES[product.result])
        a, b = (x2, x1) if layout.swapped else (x1, x2)
        launches = [self._launch(layout, GemmConfig(**config)) for config in configs]
        calls = [bound(launch, a, b, out) for launch in launches]
        taken = [modelled_cycles(call) for call in calls] if is_emulated() else times(calls)
        pairs = zip(configs, taken, strict=True)
        return Sample(product, tuple(Timing(config, time) for config, time in pairs))

    def _launch(self, layout: Layout, config: GemmConfig) -> GemmLaunch:
        from cupy import RawModule

        compiled = compile_kernel(layout.problem, config, self.name)
        module = RawModule(path=str(compiled.path))
        kernel, (offsets,) = module.get_function(compiled.name), layout.launches
        if config.partition == "tiles":
            return GemmLaunch(kernel, layout, offsets, config)
        return PartedLaunch(kernel, module.get_function(ADD_ENTRY), layout, offsets, config=config)


def modelled_cycles(call: Callable[[], Any]) -> float:
    """Return the cycles of the launches of a call by the timing model."""
    from cupygemm import emulator

    with emulator.profile() as profile:
        call()
    return sum(launch.timing.cycles for launch in profile.launches if launch.timing)


def emulated_design(seed: int = 0) -> Iterator[Product]:
    """Yield products that the emulated device computes quickly: few tiles, short and long k."""
    rng, seen = random.Random(seed), set()  # noqa: S311
    while True:
        shape = rng.choice(_EXTENTS), rng.choice(_EXTENTS), rng.choice(_DEPTHS)
        dtype, layout = rng.choice(("bf16", "bf16", "f16")), rng.choice(("NN", "NT"))
        product = Product(
            shape=shape, operands=dtype, result=dtype, layout=layout, group="few tiles"
        )
        if product.multiply_adds <= _MOST_MULTIPLY_ADDS and product not in seen:
            seen.add(product)
            yield product


def _target(runtime: Any) -> str:
    """Return the target of CuPy's first device."""
    name = str(runtime.getDeviceProperties(0)["gcnArchName"].decode().split(":")[0])
    if name not in ARCHS:
        raise SystemExit(f"sweep: no kernels for {name}; those are {', '.join(ARCHS)}")
    return name
