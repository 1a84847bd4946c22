"""`accelerate`: compute CuPy's own products and solvers by this library inside a ``with`` block.

While any thread is inside a block, stand-ins replace CuPy's functions. A stand-in reads a context
variable: if it is set, this library computes the call; otherwise CuPy does. Threads and
asynchronous tasks therefore do not affect one another. When the last block ends, CuPy is restored.
Calls that this library does not support (sparse matrices, keywords that it lacks, types without a
product) go to CuPy as before.

This module lists the products. The solvers `register` their functions here.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from cupygemm._products.chains import multi_dot
from cupygemm._products.einsum import einsum
from cupygemm._products.gufuncs import matvec, vecdot, vecmat
from cupygemm._products.matmul import matmul
from cupygemm._products.products import dot, inner, tensordot, vdot

Function = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class CupyFunction:
    """A function of CuPy, and the function of this library that replaces it.

    Attributes
    ----------
    owner : str
        The module or class that has the function, e.g. ``"cupy.linalg"``.
    name : str
        Name of the attribute of `owner`. CuPy versions that lack it are left as they are.
    ours : callable
        The function of this library.
    keywords : frozenset of str
        The keywords that both functions have; a call with another one goes to CuPy.
    operands : tuple of str
        CuPy's names of the operands, if a call may pass them by keyword.
    arrays : str
        The type of the arrays: CuPy's, or Dask's, whose chunks are CuPy arrays.
    """

    owner: str
    name: str
    ours: Function
    keywords: frozenset[str] = frozenset()
    operands: tuple[str, ...] = ()
    arrays: str = "cupy:ndarray"

    @property
    def is_loaded(self) -> bool:
        """Whether the program has imported the owner; CuPy itself is imported if it is not yet."""
        return self.owner in ("cupy", "cupy.linalg", "cupy.ndarray") or self.owner in sys.modules


_DASK = "dask.array:Array"
GUFUNC_KEYWORDS = frozenset({"out", "dtype", "casting", "axes", "order"})
VECDOT_KEYWORDS = GUFUNC_KEYWORDS | {"axis", "keepdims"}
EINSUM_KEYWORDS = frozenset({"out", "dtype", "casting", "order", "optimize"})
PRODUCTS = (
    CupyFunction(owner="cupy", name="matmul", ours=matmul, keywords=GUFUNC_KEYWORDS),
    CupyFunction(owner="cupy", name="vecdot", ours=vecdot, keywords=VECDOT_KEYWORDS),
    CupyFunction(owner="cupy", name="matvec", ours=matvec, keywords=GUFUNC_KEYWORDS),
    CupyFunction(owner="cupy", name="vecmat", ours=vecmat, keywords=GUFUNC_KEYWORDS),
    CupyFunction(
        owner="cupy", name="dot", ours=dot, keywords=frozenset({"out"}), operands=("a", "b")
    ),
    CupyFunction(owner="cupy", name="vdot", ours=vdot, operands=("a", "b")),
    CupyFunction(owner="cupy", name="inner", ours=inner, operands=("a", "b")),
    CupyFunction(
        owner="cupy",
        name="tensordot",
        ours=tensordot,
        keywords=frozenset({"axes"}),
        operands=("a", "b"),
    ),
    CupyFunction(owner="cupy", name="einsum", ours=einsum, keywords=EINSUM_KEYWORDS),
    CupyFunction(owner="cupy.linalg", name="matmul", ours=matmul, keywords=GUFUNC_KEYWORDS),
    CupyFunction(
        owner="cupy.linalg", name="tensordot", ours=tensordot, keywords=frozenset({"axes"})
    ),
    CupyFunction(owner="cupy.linalg", name="vecdot", ours=vecdot, keywords=frozenset({"axis"})),
    CupyFunction(
        owner="cupy.linalg", name="multi_dot", ours=multi_dot, keywords=frozenset({"out"})
    ),
    CupyFunction(owner="cupy.ndarray", name="__matmul__", ours=matmul),
    CupyFunction(
        owner="cupy.ndarray", name="dot", ours=dot, keywords=frozenset({"out"}), operands=("b",)
    ),
    CupyFunction(owner="dask.array", name="matmul", ours=matmul, arrays=_DASK),
    CupyFunction(owner="dask.array.routines", name="matmul", ours=matmul, arrays=_DASK),
    CupyFunction(
        owner="dask.array",
        name="tensordot",
        ours=tensordot,
        keywords=frozenset({"axes"}),
        arrays=_DASK,
    ),
    CupyFunction(
        owner="dask.array.routines",
        name="tensordot",
        ours=tensordot,
        keywords=frozenset({"axes"}),
        arrays=_DASK,
    ),
    CupyFunction(
        owner="dask.array",
        name="einsum",
        ours=einsum,
        keywords=frozenset({"dtype", "optimize", "casting"}),
        arrays=_DASK,
    ),
)
"""The products that a block replaces. Functions that call them by name use ours, too.

Dask's are replaced where the program has imported Dask. They build the graph of a product, so it is
the block around that call which counts, wherever the graph is computed.
"""
_registered: list[str] = []


def register(module: str) -> None:
    """Register a module whose ``FUNCTIONS`` blocks replace; the first block imports the module."""
    _registered.append(module)


def replaced_functions() -> tuple[CupyFunction, ...]:
    """Return the functions of CuPy that a block replaces."""
    functions: list[CupyFunction] = list(PRODUCTS)
    for module in _registered:
        functions += importlib.import_module(module).FUNCTIONS
    return tuple(functions)


@contextlib.contextmanager
def accelerate() -> Iterator[None]:
    """Compute CuPy's products and solvers by this library inside a ``with`` block.

    The block covers ``a @ b`` and ``a.dot(b)`` of CuPy arrays, `cupy.matmul`, `cupy.dot`,
    `cupy.vdot`, `cupy.inner`, `cupy.tensordot`, `cupy.einsum`, `cupy.linalg.matmul`,
    `cupy.linalg.solve`, `cupy.linalg.cholesky` and most others of `cupy.linalg`,
    `cupyx.scipy.linalg.lu_factor`, and the functions of other modules that call them, such as
    `cupy.cov` and `cupyx.scipy.linalg.expm`. The how-to guide "Use more than matmul" lists what it
    covers and what it does not. It affects only the current thread or asynchronous task. Blocks may
    be nested.

    Yields
    ------
    None

    Notes
    -----
    CuPy computes the calls that this library does not support, and raises its own errors for those
    that are wrong.

    For a matrix that is singular or not positive definite, `cupyx.errstate` decides as outside the
    block: `numpy.linalg.LinAlgError` is raised with ``linalg="raise"`` only, and otherwise the
    result has NaN or infinities and the call does not wait for the device.

    `cupyx.scipy.linalg`, and products of Dask arrays of CuPy chunks, are covered if they are
    imported before the block begins. A block must surround the call that builds the product of Dask
    arrays, not the one that computes it.

    A name that was bound before the block, as by ``from cupy import matmul``, still refers to
    CuPy's function.

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
    before = _active.get()
    _BLOCKS.enter()
    _active.set(True)
    try:
        yield
    finally:
        _active.set(before)  # not reset(token): generators may end in another context
        _BLOCKS.leave()


_active: contextvars.ContextVar[bool] = contextvars.ContextVar("accelerated", default=False)


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """An attribute that holds a stand-in, and what restores it.

    Attributes
    ----------
    owner : module or type
    name : str
    original : object
    inherited : bool
        Whether `owner` inherits the attribute, so that deleting the stand-in restores it.
    """

    owner: Any
    name: str
    original: Any
    inherited: bool

    def restore(self) -> None:
        """Restore the original."""
        if self.inherited:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.original)


class Blocks:
    """The blocks that threads are in: the first replaces CuPy's functions, the last restores."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._replaced: list[Replaced] = []

    def enter(self) -> None:
        """Enter a block; replace CuPy's functions if it is the first."""
        with self._lock:
            if self._count == 0:
                for function in replaced_functions():
                    if function.is_loaded:
                        self._replace(function)
            self._count += 1

    def leave(self) -> None:
        """Leave a block; restore CuPy's functions if it was the last."""
        with self._lock:
            self._count -= 1
            if self._count == 0:
                while self._replaced:
                    self._replaced.pop().restore()

    def _replace(self, function: CupyFunction) -> None:
        owner, name = pkgutil.resolve_name(function.owner), function.name
        if not hasattr(owner, name):
            return
        original = getattr(owner, name)
        self._replaced.append(
            Replaced(owner=owner, name=name, original=original, inherited=name not in vars(owner))
        )
        setattr(owner, name, _stand_in(original, function))


_BLOCKS = Blocks()


def _stand_in(theirs: Any, function: CupyFunction) -> Function:
    """Return a function that takes the place of one of CuPy's."""
    array_type = pkgutil.resolve_name(function.arrays)
    ours, keywords, operands = function.ours, function.keywords, function.operands

    def stand_in(*args: Any, **options: Any) -> Any:
        if not _active.get():
            return theirs(*args, **options)
        values = args
        if options:
            args, options = _by_position(args, options, operands)
            if not options.keys() <= keywords:
                return theirs(*args, **options)
            values = (*args, options.get("out"))
        if not _are_arrays(array_type, values):
            return theirs(*args, **options)
        token = _active.set(False)  # inside our function, CuPy's functions are CuPy's
        try:
            try:
                return ours(*args, **options)
            except LinAlgError:  # invalid matrix: CuPy's function would fail, or not detect it
                raise
            except (TypeError, ValueError):  # what CuPy may still support
                return theirs(*args, **options)
        finally:
            _active.reset(token)

    with contextlib.suppress(AttributeError):  # objects without a __dict__ cannot be copied from
        functools.update_wrapper(stand_in, theirs)
    return stand_in


def _by_position(
    args: tuple[Any, ...], options: dict[str, Any], operands: tuple[str, ...]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a call's arguments with operands that were passed by keyword as positional ones."""
    named = [name for name in operands if name in options]
    if not named or named != list(operands[-len(named) :]):
        return args, options
    rest = {name: value for name, value in options.items() if name not in named}
    return (*args, *(options[name] for name in named)), rest


def _are_arrays(array_type: type, values: Iterable[Any]) -> bool:
    """Whether all arrays among the values, and in lists of them, are of exactly this type."""
    found = False
    for value in values:
        if type(value) is array_type:
            found = True
        elif isinstance(value, np.generic):  # a number, though it has a shape
            continue
        elif isinstance(value, (list, tuple)):
            listed = [each for each in value if hasattr(each, "shape")]
            if listed:
                if any(type(each) is not array_type for each in listed):
                    return False
                found = True
        elif hasattr(value, "shape"):
            return False
    return found
