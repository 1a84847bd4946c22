"""The backend of ``precision="int8x14"`` and similar, on devices whose kernels multiply int8.

It multiplies float32 and float64 by residues (product.py). The other backends of the device, which
it receives as an argument, multiply the residues. Every process has this backend, so it imports
what products of residues need only for them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cupygemm._backends.no_extras import NoExtras
from cupygemm._backends.protocol import (
    NOT_ASKED,
    SUPPORTED,
    Backend,
    Candidate,
    Compiled,
    Runner,
    Support,
)
from cupygemm._records.shapes import Shape
from cupygemm._request.arrays import Array
from cupygemm._request.copies import assign, in_type
from cupygemm._request.epilogue import EpilogueRequest
from cupygemm._request.promotion import I8, I32
from cupygemm._request.request import Request

if TYPE_CHECKING:
    from cupygemm._backends.modular.kernels import Kernels
    from cupygemm._backends.modular.product import Compute

    KernelsByType = dict[tuple[np.dtype[Any], int], Kernels]


def create(others: Sequence[Backend]) -> Backend:
    """Return the backend of a device, given the other backends of the device."""
    return ModularBackend(others)


class ModularBackend(NoExtras):
    """Computes products of float32 and float64 by int8 products modulo several integers.

    Parameters
    ----------
    others : sequence of Backend
        The other backends of the device.
    kernels : dict, optional
        Kernels that are already loaded.
    """

    name = "modular"

    def __init__(self, others: Sequence[Backend], kernels: KernelsByType | None = None) -> None:
        self._others = tuple(others)
        self._kernels: KernelsByType = {} if kernels is None else kernels

    def supports(self, request: Request) -> Support:
        """Tell whether the request is for residues, with at most alpha, beta and c as epilogue."""
        if not request.moduli:
            return NOT_ASKED
        if not self._has_int8:
            return Support("no kernel for this device multiplies int8")
        epilogue, types = request.epilogue, request.types
        if epilogue is None:
            return SUPPORTED
        addend = epilogue.c
        simple = EpilogueRequest(alpha=epilogue.alpha, c=addend)
        if epilogue != simple or (addend is not None and addend.dtype != types.operand):
            return Support("with products of int8, only alpha, beta and c are applied by a kernel")
        if types.stored != types.operand:
            return Support("with products of int8, the result is rounded after the epilogue")
        return SUPPORTED

    def candidates(self, request: Request) -> Sequence[Candidate]:
        """Return no candidates: the other backends choose."""
        return ()

    def compile(self, request: Request, config: Any = None, *, reason: str = "") -> Compiled:
        """Compile the product of the residues of the first rows."""
        from cupygemm._backends.modular.product import multiplier, rows_at_once, sums_request
        from cupygemm._numerics.residues import MOST_TERMS

        shape, moduli = request.shape, request.moduli
        matrices = int(np.prod(shape.batch, dtype=np.int64))
        rows = min(shape.m, rows_at_once(moduli, matrices, shape.m, shape.n))
        k = -(-min(shape.k, MOST_TERMS) // 32) * 32
        pitch = -(-shape.n // 4) * 4
        strides = tuple(
            I32.itemsize * each for each in (moduli * rows * pitch, rows * pitch, pitch, 1)
        )
        sums = sums_request((matrices, moduli, rows, k), (matrices, moduli, shape.n, k), strides)
        _, inner = multiplier(sums, self._others)
        return Compiled(
            computed_by=inner.computed_by,
            reason=f"precision={request.precision!r} asks for products of {moduli} residues, which "
            f"are computed as follows: {inner.reason}",
            handle=None,
            notes=(f"x1 and x2 are scaled and rounded to integers, as {moduli} residues of {I8}",),
            problem=inner.problem,
            config=inner.config,
            resources=inner.resources,
            compiler=inner.compiler,
            grid=inner.grid,
            num_launches=inner.num_launches,
        )

    def launch(self, request: Request, compiled: Compiled) -> Runner:
        """Load the kernels and return the runner of the request."""
        from cupygemm._backends.modular.kernels import Kernels
        from cupygemm._backends.modular.product import ModularProduct

        dtype, moduli = request.types.operand, request.moduli
        kernels = self._kernels.get((dtype, moduli))
        if kernels is None:
            kernels = self._kernels[dtype, moduli] = Kernels(self._others[0], dtype, moduli)
        return _runner(request, ModularProduct(self._others, kernels))

    @functools.cached_property
    def _has_int8(self) -> bool:
        """Whether the first of the others multiplies residues; the check takes milliseconds."""
        from cupygemm._backends.modular.product import sums_request

        shape = (1, 1, 64, 64)
        residues = sums_request(shape, shape, (1, 1, 64 * I32.itemsize, I32.itemsize))
        return bool(self._others[0].supports(residues))

    def sparing(self, units: int) -> Backend:
        """Return this backend, whose products of residues leave compute units to other work."""
        return ModularBackend([each.sparing(units) for each in self._others], self._kernels)


def _runner(request: Request, compute: Compute) -> Runner:
    """Return the runner that reshapes arrays to stacks of matrices, and copies if necessary."""
    import cupy

    shape, types = request.shape, request.types
    stacked = -1, shape.m, shape.n

    def run(x1: Any, x2: Any, out: Any, arguments: Any = None) -> Any:
        a = _stack(in_type(x1, types.x1), shape.batch, (shape.m, shape.k))
        b = _stack(in_type(x2, types.x2), shape.batch, (shape.k, shape.n))
        target = None
        if out is not None and out.dtype == types.operand and not request.aliased:
            target = out.reshape(stacked)
            if target.data.ptr != out.data.ptr:  # a copy
                target = None
        staged = target is None
        if target is None:
            target = cupy.empty((*shape.batch, shape.m, shape.n), types.operand).reshape(stacked)
        addend, alpha, beta = None, 1.0, 0.0
        if arguments is not None:
            alpha, beta = arguments.factors.alpha, arguments.factors.beta
            addend = arguments.array("c")
            if addend is not None:
                addend = cupy.broadcast_to(addend, shape.result).reshape(stacked)
        compute(a, b, target, addend, alpha, beta)
        if not staged:
            return out
        result = target.reshape(shape.result)
        if out is None:
            return result.astype(types.stored, copy=False)
        assign(out, result.astype(types.stored, copy=False))
        return out

    return run


def _stack(x: Array, batch: Shape, matrix: tuple[int, int]) -> Array:
    """Return an operand as (matrices, rows, columns), with one matrix if it serves all."""
    import cupy

    leading = x.shape[:-2]
    if all(extent == 1 for extent in leading):
        return x.reshape(1, *matrix)
    return cupy.broadcast_to(x.reshape(*leading, *matrix), (*batch, *matrix)).reshape(-1, *matrix)
