"""A plugin for the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin
from numpy.typing import DTypeLike

from cupygemm._distributed.serialization import register_serializer
from cupygemm._tuning.product import products_of
from cupygemm._tuning.warmup import warmup


class Warmup(WorkerPlugin):  # type: ignore[misc]  # distributed publishes no types
    """A plugin that compiles the kernels of products on each worker of a Dask cluster.

    The first product of a new kernel waits for a compiler. With this plugin, a worker compiles the
    kernels when it starts, or when the plugin is registered. Workers that share a kernel cache
    compile each kernel once.

    The plugin also lets workers exchange CuPy arrays where neither Numba nor RMM is installed, for
    example on AMD GPUs.

    Parameters
    ----------
    shapes : iterable of (m, n, k), optional
        The extents of the products of chunks, as for `cupygemm.warmup`.
    dtypes : dtype or iterable of dtype
        The types of the operands.
    dtype : dtype, optional
        The type of the results. Products that are summed over several chunks along k are computed
        in the type of their sums, e.g. ``"float32"`` for 16-bit operands.
    layouts : iterable of {"NN", "NT", "TN", "TT"}
        The order of the operands: "N" for C order, "T" for a transposed view.

    Raises
    ------
    ValueError
        A shape or a layout is invalid.
    TypeError
        A type is unknown.

    Examples
    --------
    >>> import cupygemm.distributed
    >>> from distributed import Client
    >>> client = Client(n_workers=2)  # doctest: +SKIP
    >>> plugin = cupygemm.distributed.Warmup([(4096, 4096, 4096)], "bfloat16", dtype="float32")
    >>> client.register_plugin(plugin)  # doctest: +SKIP
    """

    name = "cupygemm-warmup"
    idempotent = False

    def __init__(
        self,
        shapes: Iterable[Sequence[int]] = (),
        dtypes: Iterable[DTypeLike] | DTypeLike = "bfloat16",
        *,
        dtype: DTypeLike | None = None,
        layouts: Iterable[str] = ("NN",),
    ) -> None:
        self.shapes = [tuple(shape) for shape in shapes]
        self.dtypes = dtypes
        self.dtype = dtype
        self.layouts = layouts if isinstance(layouts, str) else tuple(layouts)
        products_of("Warmup", self.shapes, self.dtypes, self.dtype, self.layouts)  # errors come now

    def setup(self, worker: Any) -> None:
        """Prepare a worker.

        Parameters
        ----------
        worker : distributed.Worker
            The worker that starts.
        """
        register_serializer()
        threads = worker.state.nthreads
        warmup(
            self.shapes,
            self.dtypes,
            dtype=self.dtype,
            layouts=self.layouts,
            workers=threads,
            progress=False,
        )
