"""Half a QR panel, factored by products of all its columns.

R is the Cholesky factor of A^T A, and an LU factorisation of the first rows finds the reflections
that give it (``kernels/common/solvers/qr_top.hpp``)::

    G = A^T A | G = R^T R | V1 W = A1 - S R, and a flag | V2 = A2 W^-1

So products replace most small steps, and no launch needs a cluster. The launches that factor block
by block (blocks.py) follow as a fallback: they do nothing if the flag is set, and otherwise factor
the half, because this method would be inaccurate.
"""

from __future__ import annotations

from cupygemm._products.matmul import matmul
from cupygemm._solvers.common import blocks, tiles
from cupygemm._solvers.common.kernels import QR_TOP, load
from cupygemm._solvers.common.matrices import Matrices, adjoint, empty
from cupygemm._solvers.qr.reflectors import Reflector

_LEAST_ROWS = 4
"""The fewest rows per column. With fewer random rows, columns are far from orthogonal."""
_GROUPS, _ROWS = 16, 4
"""The groups of 32 threads, and the rows of a lane."""


class Halves:
    """Factors halves of the panels of a matrix, except for their T.

    Parameters
    ----------
    a : Matrices
    columns : int
        The columns that are factored.
    """

    def __init__(self, a: Matrices, columns: int) -> None:
        import cupy

        self._a = a
        count = -(-columns // tiles.TILE) if self.suits(range(min(tiles.TILE, columns))) else 0
        self._flags = cupy.empty(count, "uint32")

    def suits(self, half: range) -> bool:
        """Tell whether to factor half a panel by this method."""
        a = self._a
        return (
            a.batches == 1
            and a.dtype.kind == "f"
            and len(half) == tiles.TILE
            and half.start % tiles.TILE == 0
            and a.m - half.start >= _LEAST_ROWS * len(half)
            and blocks.has_tile_kernels(a.dtype)
        )

    def factor(self, reflector: Reflector, half: range) -> int:
        """Factor half a panel, if this method is accurate.

        If so, R is stored in its columns of the matrix. Other columns do not change.

        Parameters
        ----------
        reflector : Reflector
            Receives V. If the method is inaccurate, it has arbitrary numbers below the first rows.
        half : range

        Returns
        -------
        int
            The address of a flag, an unsigned word: whether the method was accurate.
        """
        import cupy

        a, n, at = self._a, len(half), half.start - reflector.columns.start
        columns = slice(half.start, half.stop)
        own, v = a.block(slice(half.start, a.m), columns), reflector.v_of(half)
        flag = self._flags.data.ptr + half.start // n * self._flags.itemsize
        gram = matmul(adjoint(own), own)
        factor, w = empty(1, n, n, a.dtype), cupy.empty((n, n), a.dtype)
        tiles.factor(factor, gram[None], info=0)  # the next kernel finds NaN
        load(QR_TOP, a.dtype, 32 * _GROUPS, rows=_ROWS, groups=_GROUPS)(
            (1, 1),
            a.address(half.start, half.start),
            a.pitch,
            gram.data.ptr,
            n,
            factor.address(0, 0),
            factor.pitch,
            reflector.v.address(at, at),
            reflector.v.pitch,
            w.data.ptr,
            n,
            flag,
        )
        tiles.divide(v[n:], w, own[n:])
        return int(flag)
