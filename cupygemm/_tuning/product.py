"""Products described without arrays, for `warmup` and `tune`.

A shape is (m, n, k), with the extents of the batch before it, if any. A layout is two letters as in
BLAS: "N" for a C-ordered operand and "T" for a transposed view of one.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._records.formats import parse_dtype
from cupygemm._request.layout import Operand, contiguous
from cupygemm._request.options import Options
from cupygemm._request.request import Request, make_request

Shape = tuple[int, ...]
LAYOUTS = ("NN", "NT", "TN", "TT")


@dataclass(frozen=True)
class Product:
    """One product to compile or to measure.

    Attributes
    ----------
    shape : tuple of int
        (..., m, n, k).
    dtype : numpy.dtype
        The type of the operands.
    out_dtype : numpy.dtype or None
        The type of the result; None for the type that `matmul` would choose.
    layout : {"NN", "NT", "TN", "TT"}
    """

    shape: Shape
    dtype: np.dtype[Any]
    out_dtype: np.dtype[Any] | None
    layout: str

    def __str__(self) -> str:
        extents = "x".join(map(str, self.shape))
        return f"{extents} {self.dtype} {self.layout}"

    def operands(self) -> tuple[Operand, Operand]:
        """Describe the operands, each as a whole allocation."""
        *batch, m, n, k = self.shape
        first, second = ((m, k), (k, n))
        pair = []
        for extents, letter in ((first, self.layout[0]), (second, self.layout[1])):
            if letter == "N":
                pair.append(contiguous((*batch, *extents), self.dtype))
                continue
            base = contiguous((*batch, *extents[::-1]), self.dtype)
            *outer, rows, columns = base.strides
            strides = (*outer, columns, rows)
            pair.append(Operand((*batch, *extents), strides, self.dtype))
        return pair[0], pair[1]

    @property
    def request(self) -> Request:
        """Return the request for the product."""
        return make_request(*self.operands(), options=Options(dtype=self.out_dtype))


def products_of(
    function: str,
    shapes: Iterable[Sequence[int]],
    dtypes: Iterable[DTypeLike] | DTypeLike,
    out_dtype: DTypeLike | None,
    layouts: Iterable[str],
) -> list[Product]:
    """Return one product for each combination of shape, layout and type.

    Raises
    ------
    ValueError
        A shape has fewer than three extents or an extent below 1, or a layout is unknown.
    TypeError
        A dtype is unknown, or `layouts` is a string.
    """
    if isinstance(layouts, str):
        raise TypeError(f"{function}: layouts is {layouts!r}; pass a list, such as [{layouts!r}]")
    wanted = [dtypes] if isinstance(dtypes, (str, type, np.dtype)) else list(dtypes)  # type: ignore[arg-type]
    kinds = [dtype for dtype in map(parse_dtype, wanted) if dtype is not None]
    products = []
    for shape in shapes:
        try:
            extents = tuple(map(operator.index, shape))
        except TypeError:
            extents = ()
        if len(extents) < 3 or min(extents) < 1:
            raise ValueError(
                f"{function}: the shape {shape} is not (m, n, k), or (batch, m, n, k), of 1 or more"
            )
        for layout in layouts:
            if layout not in LAYOUTS:
                raise ValueError(
                    f"{function}: layout must be one of {', '.join(LAYOUTS)} (got {layout!r})"
                )
            products += [Product(extents, kind, parse_dtype(out_dtype), layout) for kind in kinds]
    return products


@contextlib.contextmanager
def progress_bar(title: str, count: int, *, shown: bool) -> Iterator[Callable[[str], None]]:
    """Show a progress bar on the standard error, if that is a terminal.

    Yields
    ------
    callable
        Call it once for each finished task, with the name of the task.
    """
    if not shown:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=count, what="")
        yield lambda what: progress.update(task, advance=1, what=what)
