"""`warmup`: compile what products will need before they are asked for, in parallel."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from numpy.typing import DTypeLike

from cupygemm._backends.device import Device, device
from cupygemm._plan.plan import choose
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
    """Compile the kernels of products ahead, so that their first call does not wait for it.

    Parameters
    ----------
    shapes : iterable of (m, n, k)
        Extents of the products, with those of a stack before them where there is one.
    dtypes : dtype or iterable of dtype
        Types of the operands.
    dtype : dtype, optional
        Type of the results, as for `matmul`.
    layouts : iterable of {"NN", "NT", "TN", "TT"}
        How the operands lie: "N" is C order, "T" a transposed view.
    workers : int, optional
        Compilations at a time: the number of processors if it is not given.
    progress : bool
        Show a progress bar, if the standard error is a terminal.

    Returns
    -------
    int
        How many products have a kernel of this library.

    Raises
    ------
    ValueError
        A shape or a layout is none.
    TypeError
        The device has no product of a type.

    Notes
    -----
    Kernels are kept on disk (see ``python -m cupygemm info``), so this can be done in another
    process than the one that multiplies. Products that share a kernel compile it once.

    Examples
    --------
    >>> import cupygemm
    >>> cupygemm.warmup([(256, 256, 512), (4, 64, 64, 64)], "float16", layouts=["NN", "NT"])
    4
    """
    from cupy.cuda.runtime import getDevice

    products = products_of("warmup", shapes, dtypes, dtype, layouts)
    place = device(getDevice())
    count = workers or os.cpu_count() or 1
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
    """Compile what a product needs; return whether it is a kernel of this library."""
    _, compiled = choose(product.request, place)
    return compiled.config is not None
