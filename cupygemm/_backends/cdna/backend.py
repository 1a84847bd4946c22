"""The CDNA backend: HIP kernels on AMD GPUs, and on the emulated device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cupygemm._backends.cdna.arch import ARCHS, Arch
from cupygemm._backends.cdna.check import PRODUCTS, check
from cupygemm._backends.cdna.config import GemmConfig, grid
from cupygemm._backends.cdna.launch import GemmLaunch, PartedLaunch
from cupygemm._backends.cdna.select import Candidate, Selection, select
from cupygemm._backends.cdna.source import ADD_ENTRY
from cupygemm._backends.product_table import why_types_unsupported
from cupygemm._backends.protocol import (
    SUPPORTED,
    BlockScaling,
    Compiled,
    Group,
    NoExtras,
    Runner,
    Support,
)
from cupygemm._backends.registry import DeviceProperties
from cupygemm._backends.runners import make_runner
from cupygemm._records.dtypes import FLOAT8_NAMES
from cupygemm._records.formats import PRECISIONS, Precision
from cupygemm._records.problem import GemmProblem
from cupygemm._request.layout import Layout
from cupygemm._request.placement import Placement, place
from cupygemm._request.request import Request


def create(properties: DeviceProperties) -> CdnaBackend | None:
    """Return the backend of a device, by the name of its instruction set."""
    target = properties.values["gcnArchName"].decode().split(":")[0]
    arch = ARCHS.get(target)
    return None if arch is None else CdnaBackend(arch)


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel with the placement that it was compiled for."""

    placement: Placement
    config: GemmConfig
    path: str
    name: str


class CdnaBackend(NoExtras):
    """Computes products by the kernels of ``kernels/cdna``.

    Parameters
    ----------
    arch : Arch
    """

    name = "cdna"
    config_type = GemmConfig

    def __init__(self, arch: Arch) -> None:
        self.arch = arch
        self.formats = tuple(name for name in FLOAT8_NAMES if name in arch.mfma_cycles)
        self.precisions = frozenset(name for name in PRECISIONS if name in arch.mfma_cycles)

    def supports(self, request: Request) -> Support:
        """Tell whether a kernel takes the types, and a configuration the extents and strides."""
        support = self.supports_types(request)
        if not support:
            return support
        try:
            self._select(request, self.place(request).layout.problem)
        except ValueError as err:  # a limit, such as rows that are gigabytes apart
            return Support(str(err))
        return SUPPORTED

    def supports_types(self, request: Request) -> Support:
        """Tell whether the kernels take the types of a request."""
        precision = self.precision(request)
        return Support(why_types_unsupported(request, PRODUCTS, self.formats, precision))

    def problem(self, request: Request) -> GemmProblem | None:
        """Return what the kernel solves; None for types that no kernel takes."""
        return self.place(request).layout.problem if self.supports_types(request) else None

    def candidates(self, request: Request) -> Sequence[Candidate]:
        """Return the configurations that can run, by their modelled cost."""
        return self._select(request, self.place(request).layout.problem).candidates

    def compile(self, request: Request, config: Any = None, *, reason: str = "") -> Compiled:
        """Compile the kernel for a request."""
        from cupygemm._backends.cdna.compile import compile_kernel  # needs more than the core does

        placement = self.place(request)
        problem = placement.layout.problem
        if config is None:
            selection = self._select(request, problem)
        else:
            objection = check(config, problem, self.arch)
            if objection is not None:
                raise ValueError(objection)
            selection = Selection(config, reason)
        kernel = compile_kernel(problem, selection.config, self.arch.name)
        return Compiled(
            computed_by="cupygemm",
            reason=selection.reason,
            handle=Kernel(placement, selection.config, str(kernel.path), kernel.name),
            notes=placement.notes,
            problem=problem,
            config=selection.config,
            resources=lambda: kernel.resources,
            compiler=kernel.compiler,
            grid=grid(selection.config, problem),
            num_launches=len(placement.layout.launches),
        )

    def launch(self, request: Request, compiled: Compiled) -> Runner:
        """Load the kernel, and return what computes the request."""
        kernel: Kernel = compiled.handle
        return make_runner(request, kernel.placement, load(kernel, kernel.placement.layout))

    def groups(self, requests: Mapping[int, Request]) -> Sequence[Group]:
        """Return the products whose kernels read and write alike, each such set in one launch."""
        from cupygemm._backends.cdna.grouped import groups

        placements = {
            number: self.place(request)
            for number, request in requests.items()
            if self.supports_types(request)
        }
        return groups(placements, self.arch)

    def triangle(self, request: Request) -> Runner | None:
        """Return what computes ``x @ x.T`` by panels up to the diagonal."""
        from cupygemm._backends.cdna.triangle import make_triangle

        return make_triangle(self, request)

    def block_scaled(self, request: Request, scaling: BlockScaling) -> Runner | None:
        """Return what multiplies operands with exponents for blocks of 32 along k."""
        from cupygemm._backends.cdna.block_scales import make_block_scaled

        return make_block_scaled(self, request, scaling)

    def precision(self, request: Request) -> Precision:
        """Return the precision in which float32 is multiplied: what is asked for, or more."""
        return request.precision if request.precision in self.precisions else "ieee"

    def place(self, request: Request) -> Placement:
        """Return where the kernel finds the arrays of a request."""
        return place(request, precision=self.precision(request))

    def _select(self, request: Request, problem: GemmProblem) -> Selection:
        return select(problem, self.arch, reproducible=request.reproducible)


def load(kernel: Kernel, layout: Layout) -> tuple[GemmLaunch, ...]:
    """Return the launches of a product, with their kernel loaded."""
    from cupy import RawModule

    module = RawModule(path=kernel.path)
    gemm, config = module.get_function(kernel.name), kernel.config
    if config.partition == "tiles":
        return tuple(GemmLaunch(gemm, layout, offsets, config) for offsets in layout.launches)
    add = module.get_function(ADD_ENTRY)
    return tuple(
        PartedLaunch(gemm, add, layout=layout, offsets=offsets, config=config)
        for offsets in layout.launches
    )
