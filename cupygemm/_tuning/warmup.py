"""`warmup`: compile the kernels of products ahead of time, in parallel."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from numpy.typing import DTypeLike

from cupygemm._backends.device import Device, device
from cupygemm._plan.plan import choose
from cupygemm._request.options import require_positive
from cupygemm._tuning.product import Product, products_of, progress_bar


def warmup(
    shapes: Iterable[Sequence[int]],
    dtypes: Iterable[DTypeLike] | DTypeLike = "bfloat16",
    *,
    dtype: DTypeLike | None = None,
    layouts: Iterable[str] = ("NN",),
    workers: int | None = None,
    progress: bool = True,
) -> int:
    """Compile the kernels of products ahead of time, so that first calls need not wait.

    Parameters
    ----------
    shapes : iterable of (m, n, k)
        The extents of the products. The extents of a batch, if any, come before them.
    dtypes : dtype or iterable of dtype
        The types of the operands. Short names such as ``"bf16"`` are accepted.
    dtype : dtype, optional
        The type of the results; by default, the type that `matmul` would choose.
    layouts : iterable of {"NN", "NT", "TN", "TT"}
        The order of the operands: "N" for C order, "T" for a transposed view.
    workers : int, optional
        The number of compilations at a time; by default, the number of processors.
    progress : bool
        Show a progress bar if the standard error is a terminal.

    Returns
    -------
    int
        The number of products for which this library has a kernel.

    Raises
    ------
    ValueError
        A shape, a layout or the number of workers is invalid.
    TypeError
        A type is unknown, or the device does not multiply it.

    Notes
    -----
    Kernels are kept on disk (see ``python -m cupygemm info``), so one process can compile them for
    others. A kernel that several products share is compiled once.

    Examples
    --------
    >>> import cupygemm
    >>> cupygemm.warmup([(256, 256, 512), (4, 64, 64, 64)], "float16", layouts=["NN", "NT"])
    4
    """
    from concurrent.futures import ThreadPoolExecutor, as_completed

    from cupy.cuda.runtime import getDevice

    products = products_of("warmup", shapes, dtypes, dtype, layouts)
    place = device(getDevice())
    count = os.cpu_count() or 1 if workers is None else workers
    require_positive("warmup", "workers", count)
    with (
        progress_bar("compiling", len(products), shown=progress) as done,
        ThreadPoolExecutor(count) as pool,
    ):
        tasks = {pool.submit(_compile, product, place): product for product in products}
        made = 0
        try:
            for task in as_completed(tasks):
                made += task.result()
                done(str(tasks[task]))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return made


def _compile(product: Product, place: Device) -> bool:
    """Compile the kernels of a product; return whether this library has any for it."""
    _, compiled = choose(product.request, place)
    return compiled.config is not None
