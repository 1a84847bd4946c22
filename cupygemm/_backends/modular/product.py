"""A product by residues, on arrays: scale, multiply modulo several integers, reconstruct.

::

    rows of A, columns of B -> exponents -> residues, int8   (matrix, modulus, vector, k)
    residues of A @ residues of B        -> sums, int32      (matrix, modulus, m, n)
    C = alpha * (reconstructed sums, scaled back) + beta * C

The sums use the most memory, so the rows of A are multiplied in several passes. Sums of more than
`MOST_TERMS` products could overflow, so k is divided too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cupygemm._backends.modular.kernels import Kernels
from cupygemm._backends.protocol import Backend, Compiled, Runner
from cupygemm._numerics.residues import MOST_TERMS, constants, largest_norm
from cupygemm._request.arrays import Array
from cupygemm._request.layout import Operand
from cupygemm._request.options import Options
from cupygemm._request.promotion import I8, I32
from cupygemm._request.request import Request, make_request

_SUMS_BYTES = 1 << 30
_ROWS, _PER_THREAD = 128, 4
"""A divisor of the rows of a pass, and the elements that a thread reconstructs."""
_K = 32
"""Residues along k are padded with zeros to a multiple of this."""
_TILE_VECTORS, _TILE_K, _THREADS = 32, 128, 256
_VECTORS_ALONG_K, _VECTORS_ACROSS = 8, 16
"""The vectors of a workgroup of the kernel ``scales``."""


@dataclass(frozen=True)
class Residues:
    """The rows of A or the columns of B as integers modulo several others.

    Attributes
    ----------
    array : cupy.ndarray
        (matrices, moduli, vectors, k), int8.
    exponents : cupy.ndarray
        (matrices, vectors), int32: the powers of two by which they were scaled.
    """

    array: Array
    exponents: Array


class ModularProduct:
    """Multiplies stacks of matrices of one type by residues.

    Parameters
    ----------
    backends : sequence of Backend
        The backends that multiply int8, in order of priority.
    kernels : Kernels
        The kernels for the type of the matrices.
    """

    def __init__(self, backends: Sequence[Backend], kernels: Kernels) -> None:
        self._backends, self._kernels = backends, kernels
        self._moduli = kernels.moduli
        self._runners: dict[Request, Runner] = {}

    def __call__(
        self, a: Array, b: Array, c: Array, addend: Array | None, alpha: float, beta: float
    ) -> None:
        """Compute ``c = alpha * a @ b + beta * addend``.

        Parameters
        ----------
        a, b : cupy.ndarray
            (matrices, m, k) and (matrices, k, n); one matrix may serve all.
        c : cupy.ndarray
            (matrices, m, n), with any strides.
        addend : cupy.ndarray or None
            Of the shape of `c`; may be `c` itself.
        alpha, beta : float
        """
        if abs(c.strides[2]) > abs(c.strides[1]):  # elements of a column of C are adjacent
            a, b, c = (x.swapaxes(1, 2) for x in (b, a, c))
            addend = None if addend is None else addend.swapaxes(1, 2)
        for terms in _slices(a.shape[2], MOST_TERMS):
            right = self._residues(b[:, terms].swapaxes(1, 2))
            for rows in _slices(a.shape[1], rows_at_once(self._moduli, *c.shape)):
                left = self._residues(a[:, rows, terms])
                part = None if addend is None else addend[:, rows]
                self._combine(left, right, c[:, rows], part, alpha, beta)
            addend, beta = c, 1.0

    def _residues(self, x: Array) -> Residues:
        """Return the residues of vectors, (matrices, vectors, k)."""
        import cupy

        matrices, vectors, k = x.shape
        batch, vector, along = (stride // x.itemsize for stride in x.strides)
        along_k = abs(along) <= abs(vector)
        pitch = -(-k // _K) * _K
        residues = cupy.empty((matrices, self._moduli, vectors, pitch), I8)
        exponents = cupy.empty((matrices, vectors), I32)
        of_group = _VECTORS_ALONG_K if along_k else _VECTORS_ACROSS
        place = x.data.ptr, vector, along, batch, exponents.data.ptr
        norm = largest_norm(self._moduli, k)
        grid = -(-vectors // of_group), matrices
        self._kernels.scales(along_k=along_k)(grid, *place, norm, vectors, k)
        grid = -(-vectors // _TILE_VECTORS) * -(-pitch // _TILE_K), matrices
        launch = self._kernels.residues(along_k=along_k)
        launch(grid, *place, residues.data.ptr, vectors, k, pitch, 0)
        return Residues(residues, exponents)

    def _combine(
        self,
        left: Residues,
        right: Residues,
        c: Array,
        addend: Array | None,
        alpha: float,
        beta: float,
    ) -> None:
        """Multiply residues, reconstruct the sums, and add the product to C."""
        import cupy

        matrices, m, n = c.shape
        pitch = -(-n // _PER_THREAD) * _PER_THREAD
        sums = cupy.empty((matrices, self._moduli, m, pitch), I32)
        request = sums_request(left.array.shape, right.array.shape, sums.strides)
        run = self._runners.get(request)
        if run is None:
            backend, compiled = multiplier(request, self._backends)
            run = self._runners[request] = backend.launch(request, compiled)
        run(left.array, right.array.swapaxes(2, 3), sums[..., :n])
        across = min(64, 1 << max(-(-n // _PER_THREAD) - 1, 0).bit_length())
        added = c if addend is None else addend
        weights = constants(self._moduli)
        unused = (0.0,) * (16 - self._moduli)
        self._kernels.reconstruct(across)(
            (-(-n // (across * _PER_THREAD)) * -(-m // (_THREADS // across)), matrices),
            sums.data.ptr,
            left.exponents.data.ptr,
            right.exponents.data.ptr,
            added.data.ptr,
            c.data.ptr,
            *_elements(added),
            *_elements(c),
            m if len(left.exponents) > 1 else 0,
            n if len(right.exponents) > 1 else 0,
            alpha,
            0.0 if addend is None else beta,
            weights.inverse,
            weights.product_high,
            weights.product_low,
            *weights.high,
            *unused,
            *weights.low,
            *unused,
            m,
            n,
            pitch,
            0,
        )


def rows_at_once(moduli: int, matrices: int, m: int, n: int) -> int:
    """Return the number of rows of C whose sums are computed together, at least a few."""
    row_bytes = matrices * moduli * n * I32.itemsize
    return max(_SUMS_BYTES // max(row_bytes, 1) // _ROWS, 1) * _ROWS if m else _ROWS


def sums_request(
    left: tuple[int, ...], right: tuple[int, ...], sums_strides: tuple[int, ...]
) -> Request:
    """Return the request for the sums of products of residues.

    Parameters
    ----------
    left, right : tuple of int
        (matrices, moduli, vectors, k), C-contiguous.
    sums_strides : tuple of int
        The bytes between the elements of the result along each axis.
    """
    matrices, moduli, n, k = right
    strides = moduli * n * k, n * k, 1, k
    a = Operand(left, (left[1] * left[2] * k, left[2] * k, k, 1), I8, 0)
    b = Operand((matrices, moduli, k, n), strides, I8, 0)
    shape = (max(left[0], matrices), moduli, left[2], n)
    return make_request(a, b, Operand(shape, sums_strides, I32, 0), options=Options(dtype=I32))


def multiplier(request: Request, backends: Sequence[Backend]) -> tuple[Backend, Compiled]:
    """Return the first backend that computes a request, and its compiled kernels.

    Raises
    ------
    TypeError
        No backend computes it.
    """
    for backend in backends:
        if backend.supports(request):
            return backend, backend.compile(request)
    raise TypeError("matmul: no backend of this device multiplies int8")


def _elements(x: Array) -> Iterator[int]:
    """Yield the elements between rows, between columns and between matrices."""
    batch, row, column = (stride // x.itemsize for stride in x.strides)
    yield from (row, column, batch)


def _slices(extent: int, most: int) -> Iterator[slice]:
    for start in range(0, extent, most):
        yield slice(start, min(start + most, extent))


Compute = Callable[[Array, Array, Array, Array | None, float, float], None]
"""``compute(a, b, c, addend, alpha, beta)``, as `ModularProduct`."""
