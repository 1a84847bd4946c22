"""The sweep: measure products within a time budget, while other processes compile ahead."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Protocol, Self

from benchmarks.fit.samples import Config, Product, Sample, SampleFile
from benchmarks.output import print_line

FIRST, OTHERS = 8, 4
"""Configurations of a product: those that the cost model ranks first, and random others."""
_AHEAD = 64  # products whose kernels are being compiled
_FLUSH_SECONDS = 5.0
_REPORT_SECONDS = 20.0


class Kernels(Protocol):
    """The kernels that a sweep measures; pickled for the processes that compile."""

    def machine(self) -> dict[str, Any]: ...

    def candidates(self, product: Product, first: int, others: int) -> list[Config]: ...

    def compile(self, product: Product, config: Config) -> None: ...

    def measure(self, product: Product, configs: Sequence[Config]) -> Sample: ...


def sweep(
    kernels: Kernels,
    products: Iterable[Product],
    out: SampleFile,
    seconds: float,
    *,
    first: int = FIRST,
    others: int = OTHERS,
    workers: int | None = None,
) -> int:
    """Measure products until none or no time is left; return the number of measured products.

    Products that are already in the file are skipped. The file is written every few seconds.
    """
    deadline = time.monotonic() + seconds
    todo = (product for product in products if product not in out.products)
    count, flushed, reported = 0, time.monotonic(), time.monotonic()
    out.add_machine(kernels.machine())
    with _Compiler(kernels, first, others, workers) as compiler:
        for product, configs in compiler.ready(todo, deadline):
            try:
                out.add(kernels.measure(product, configs))
            except Exception as err:
                if not _is_usable():
                    out.flush()
                    raise
                print_line(f"{product}: {type(err).__name__}: {err}")
                continue
            count += 1
            now = time.monotonic()
            if now - flushed > _FLUSH_SECONDS:
                out.flush()
                flushed = now
            if now - reported > _REPORT_SECONDS:
                print_line(f"{count} products, {deadline - now:.0f} s left; {product}")
                reported = now
    out.flush()
    return count


def dry_run(
    kernels: Kernels, products: Iterable[Product], count: int, *, first: int, others: int
) -> None:
    """Print the first products of a sweep with their kernels, and compile these."""
    for product in itertools.islice(products, count):
        configs = kernels.candidates(product, first, others)
        print_line(f"{product}: {len(configs)} kernels")
        for config in configs:
            begun = time.perf_counter()
            kernels.compile(product, config)
            fields = " ".join(f"{name}={value}" for name, value in config.items() if value)
            print_line(f"  {time.perf_counter() - begun:6.2f} s to compile  {fields}")


class _Compiler:
    """Processes that choose and compile the kernels of products before they are measured."""

    def __init__(self, kernels: Kernels, first: int, others: int, workers: int | None) -> None:
        self._job = (kernels, first, others)
        if workers is None:
            workers = max(1, (os.cpu_count() or 2) - 1)
        # Not fork: the children must not share the CUDA context of this process.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(workers, mp_context=context) if workers else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def ready(
        self, products: Iterable[Product], deadline: float
    ) -> Iterator[tuple[Product, list[Config]]]:
        """Yield each product with its compiled configurations, in order, until the deadline."""
        if self._pool is None:
            for product in products:
                if time.monotonic() >= deadline:
                    return
                yield from self._result(product, *compiled(product, *self._job, deadline))
            return
        queue: deque[tuple[Product, Future[Any]]] = deque()
        source = iter(products)
        while True:
            for product in itertools.islice(source, _AHEAD - len(queue)):
                job = self._pool.submit(compiled, product, *self._job, deadline)
                queue.append((product, job))
            left = deadline - time.monotonic()
            if not queue or left <= 0:
                return
            product, future = queue.popleft()
            try:
                configs, errors = future.result(left)
            except FutureTimeout:
                return
            yield from self._result(product, configs, errors)

    @staticmethod
    def _result(
        product: Product, configs: list[Config], errors: list[str]
    ) -> Iterator[tuple[Product, list[Config]]]:
        for error in errors:
            print_line(f"{product}: {error}")
        if configs:
            yield product, configs


def compiled(
    product: Product, kernels: Kernels, first: int, others: int, deadline: float
) -> tuple[list[Config], list[str]]:
    """Return the configurations of a product that compile in time, and the others' errors."""
    configs, errors = [], []
    try:
        candidates = kernels.candidates(product, first, others)
    except (ValueError, TypeError) as err:
        return [], [str(err)]
    for config in candidates:
        if time.monotonic() >= deadline:
            break
        try:
            kernels.compile(product, config)
        except (ValueError, RuntimeError) as err:
            errors.append(f"{config}: {type(err).__name__}: {err}")
        else:
            configs.append(config)
    return configs, errors


def _is_usable() -> bool:
    """Whether CuPy's device still works after an error; it does not after a kernel's fault."""
    import cupy as cp

    try:
        cp.get_default_memory_pool().free_all_blocks()
        cp.zeros(1).sum().item()
    except cp.cuda.runtime.CUDARuntimeError:
        return False
    return True
