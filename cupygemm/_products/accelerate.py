"""`accelerate`: CuPy's own spelling of products, computed by this library, inside a ``with`` block.

While any thread is in a block, CuPy's functions and the ``@`` of its arrays are stand-ins, which
look at a context variable: set, the call is ours, else CuPy's, so threads and asynchronous tasks do
not affect one another. When the last block ends, CuPy is as it was. What this library cannot take
(sparse matrices, CuPy's options that it lacks, types without a product) goes to CuPy as before.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cupygemm._products.einsum import einsum
from cupygemm._products.matmul import matmul
from cupygemm._products.products import dot, tensordot

Function = Callable[..., Any]
_active: contextvars.ContextVar[bool] = contextvars.ContextVar("accelerated", default=False)
_lock = threading.Lock()
_blocks = 0
_replaced: list[Replaced] = []
FUNCTIONS: dict[str, tuple[Function, frozenset[str]]] = {
    "matmul": (matmul, frozenset({"out", "dtype", "casting"})),
    "dot": (dot, frozenset({"out"})),
    "tensordot": (tensordot, frozenset({"axes"})),
    "einsum": (einsum, frozenset({"out", "dtype", "casting", "order", "optimize"})),
}
"""CuPy's functions: ours of the same name, and the keywords that both have."""


@contextlib.contextmanager
def accelerate() -> Iterator[None]:
    """Compute CuPy's products by this library inside a ``with`` block.

    It covers ``a @ b`` of CuPy arrays, `cupy.matmul`, `cupy.dot`, `cupy.tensordot`
    and `cupy.einsum`, in this thread (or asynchronous task) only, and also in libraries that call
    them. Blocks may be nested. What this library does not take is left to CuPy.

    Yields
    ------
    None

    Notes
    -----
    A name bound before the block, as by ``from cupy import matmul``, stays CuPy's own.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> a = cp.ones((2, 3), "float16")
    >>> with cupygemm.accelerate():
    ...     c = a @ a.T
    >>> c
    array([[3., 3.],
           [3., 3.]], dtype=float16)
    """
    _enter()
    token = _active.set(True)
    try:
        yield
    finally:
        _active.reset(token)
        _leave()


@dataclass(frozen=True)
class Replaced:
    """An attribute that holds a stand-in, and what to put back."""

    owner: Any
    name: str
    original: Any
    own: bool  # the attribute was the owner's, not inherited

    def restore(self) -> None:
        """Put the original back."""
        if self.own:
            setattr(self.owner, self.name, self.original)
        else:
            delattr(self.owner, self.name)


def _enter() -> None:
    global _blocks  # noqa: PLW0603
    with _lock:
        if _blocks == 0:
            _install()
        _blocks += 1


def _leave() -> None:
    global _blocks  # noqa: PLW0603
    with _lock:
        _blocks -= 1
        if _blocks == 0:
            while _replaced:
                _replaced.pop().restore()


def _install() -> None:
    """Put the stand-ins in place."""
    import cupy

    for name, (ours, keywords) in FUNCTIONS.items():
        _replace(cupy, name, _function(getattr(cupy, name), ours, keywords))
    _replace(cupy.ndarray, "__matmul__", _operator(cupy.ndarray.__matmul__))


def _replace(owner: Any, name: str, stand_in: Function) -> None:
    own = name in vars(owner)
    _replaced.append(Replaced(owner, name, vars(owner).get(name), own))
    setattr(owner, name, stand_in)


def _function(theirs: Any, ours: Function, keywords: frozenset[str]) -> Function:
    """Return a stand-in for one of CuPy's functions."""
    from cupy import ndarray

    def stand_in(*args: Any, **options: Any) -> Any:
        if not _active.get() or not options.keys() <= keywords:
            return theirs(*args, **options)
        arrays = [x for x in (*args, options.get("out")) if hasattr(x, "shape")]
        if not arrays or not all(type(x) is ndarray for x in arrays):
            return theirs(*args, **options)
        with _paused():
            with contextlib.suppress(TypeError):  # types that have no product here
                return ours(*args, **options)
            return theirs(*args, **options)

    with contextlib.suppress(AttributeError):  # a ufunc has no __qualname__
        functools.update_wrapper(stand_in, theirs)
    return stand_in


def _operator(theirs: Any) -> Function:
    """Return a stand-in for ``@`` of CuPy's arrays."""
    from cupy import ndarray

    def stand_in(self: Any, other: Any) -> Any:
        if not _active.get() or type(self) is not ndarray or type(other) is not ndarray:
            return theirs(self, other)
        with _paused():
            with contextlib.suppress(TypeError):  # types that have no product here
                return matmul(self, other)
            return theirs(self, other)

    return functools.wraps(theirs)(stand_in)


@contextlib.contextmanager
def _paused() -> Iterator[None]:
    """Leave CuPy's functions to CuPy where this library calls them."""
    token = _active.set(False)
    try:
        yield
    finally:
        _active.reset(token)
