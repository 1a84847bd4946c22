"""The backend of cuBLASLt: fp32, fp64, complex64 and complex128 on NVIDIA GPUs.

`cupy.matmul` uses the algorithm that cuBLAS prefers, and cannot be captured into a CUDA graph. This
backend ranks the algorithms that the library offers by a model, `tune` can measure them, and
calls can be captured. Every process has this backend, so it imports what products need only for
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from cupygemm._backends.blas import too_large
from cupygemm._backends.no_extras import NoExtras
from cupygemm._backends.protocol import (
    SUPPORTED,
    Backend,
    Compiled,
    DeviceProperties,
    Runner,
    Support,
)
from cupygemm._backends.runners import make_runner
from cupygemm._records.dtypes import ELEMENT_OF, FLOAT8_DTYPES
from cupygemm._records.problem import GemmProblem
from cupygemm._request.placement import Placement, place
from cupygemm._request.request import Request

if TYPE_CHECKING:
    from cupygemm._backends.cublaslt.algorithm import LtConfig
    from cupygemm._backends.cublaslt.library import HeuristicResult, LtProduct
    from cupygemm._backends.cublaslt.product import Stack
    from cupygemm._backends.cublaslt.select import LtCandidate


def create(properties: DeviceProperties) -> Backend:
    """Return the backend of a device."""
    return CublasLtBackend(properties)


class Chosen(NamedTuple):
    """The algorithm of a request, and the placement that it was chosen for."""

    placement: Placement
    product: LtProduct
    stack: Stack
    algorithm: HeuristicResult


class CublasLtBackend(NoExtras):
    """Computes products by cuBLASLt.

    Parameters
    ----------
    properties : DeviceProperties
    """

    name = "cublaslt"

    def __init__(self, properties: DeviceProperties) -> None:
        self._device = properties

    @property
    def config_type(self) -> type[LtConfig]:  # type: ignore[override]
        """Return the type of its configurations."""
        from cupygemm._backends.cublaslt.algorithm import LtConfig

        return LtConfig

    def supports(self, request: Request) -> Support:
        """Tell whether the library is installed and supports the types and extents."""
        from cupygemm._backends.cublaslt.library import library
        from cupygemm._backends.cublaslt.product import COMPUTE

        types = request.types
        if request.moduli:
            return Support("precision asks for products of int8")
        if request.epilogue is not None:
            return Support("cuBLASLt's products have no epilogue here")
        if ELEMENT_OF.get(types.operand) not in COMPUTE:
            return Support(f"cuBLASLt is not asked for products of {types.operand}")
        if types.stored in FLOAT8_DTYPES:
            return Support("cuBLASLt is not asked to round to 8-bit floats")
        if reason := too_large(request):
            return Support(reason)
        try:
            library()
        except OSError as err:
            return Support(str(err))
        return SUPPORTED

    def problem(self, request: Request) -> GemmProblem | None:
        """Return the problem that the library solves; None for unsupported types."""
        if not self.supports(request):
            return None
        return place(_unrounded(request), row_bytes=1).layout.problem

    def candidates(self, request: Request) -> Sequence[LtCandidate]:
        """Return the algorithms that the library offers, ordered by their modelled cost."""
        from cupygemm._backends.cublaslt.product import describe, stack_of
        from cupygemm._backends.cublaslt.select import ranked

        placement = place(_unrounded(request), row_bytes=1)
        stack = stack_of(placement.layout)
        product = describe(placement.layout, stack, self._device.index)
        return ranked(product, placement.layout.problem, self._device)

    def compile(self, request: Request, config: Any = None, *, reason: str = "") -> Compiled:
        """Choose the algorithm; nothing is compiled."""
        from cupygemm._backends.cublaslt.algorithm import algorithm_of
        from cupygemm._backends.cublaslt.product import describe, stack_of
        from cupygemm._backends.cublaslt.select import ranked

        placement = place(_unrounded(request), row_bytes=1)
        problem = placement.layout.problem
        stack = stack_of(placement.layout)
        product = describe(placement.layout, stack, self._device.index)
        if config is None:
            best = ranked(product, problem, self._device)[0]
            config, algorithm = best.config, best.algorithm
        else:
            algorithm = algorithm_of(config, product)
        notes = placement.notes
        if _rounds(request):
            types = request.types
            notes += (f"the product is converted from {types.operand} to {types.stored}",)
        return Compiled(
            computed_by="cuBLASLt",
            reason=reason or "cuBLASLt multiplies these types on NVIDIA GPUs",
            handle=Chosen(placement, product, stack, algorithm),
            notes=notes,
            problem=problem,
            config=config,
            num_launches=len(stack.offsets),
            by_address=placement.is_in_place and not _rounds(request),
        )

    def launch(self, request: Request, compiled: Compiled) -> Runner:
        """Return the runner, which rounds the product if it has another type than the operands."""
        from cupygemm._backends.cublaslt.product import launch_of

        chosen: Chosen = compiled.handle
        launch = launch_of(
            chosen.product,
            chosen.algorithm.algorithm,
            chosen.algorithm.workspace_bytes,
            chosen.stack,
            request.types.operand.itemsize,
        )
        product = _unrounded(request)
        sums = make_runner(product, chosen.placement, [launch])
        if not _rounds(request):
            return sums
        stored = request.types.stored

        def run(x1: Any, x2: Any, out: Any) -> Any:
            result = sums(x1, x2, None).astype(stored)
            if out is None:
                return result
            out[...] = result
            return out

        return run


def _rounds(request: Request) -> bool:
    """Whether the product is rounded to another type than that of the operands."""
    return request.types.stored != request.types.operand


def _unrounded(request: Request) -> Request:
    """Return the request for the product in the type of the operands."""
    if not _rounds(request):
        return request
    types = replace(request.types, stored=request.types.operand, result=request.types.operand)
    return replace(request, types=types, out=None, aliased=False)
