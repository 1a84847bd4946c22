"""The CDNA backend: HIP kernels on AMD GPUs, and on the emulated device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cupygemm._backends.cdna.arch import ARCHS, Arch
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.config import GemmConfig, grid
from cupygemm._backends.cdna.kernel import Kernel, load
from cupygemm._backends.cdna.requests import (
    formats_of,
    place_request,
    precisions_of,
    supports,
    supports_types,
)
from cupygemm._backends.cdna.select import Candidate, Selection, select
from cupygemm._backends.interconnect import PCIE, XGMI_MI300X
from cupygemm._backends.no_extras import NoExtras
from cupygemm._backends.protocol import (
    Compiled,
    DeviceProperties,
    Group,
    KernelFile,
    Runner,
    Support,
)
from cupygemm._backends.runners import SharedLaunch, make_runner
from cupygemm._backends.scales_and_groups import BlockScaling
from cupygemm._records.problem import GemmProblem, sums_alike
from cupygemm._request.placement import Placement
from cupygemm._request.request import Request

INTERCONNECTS = {"gfx942": XGMI_MI300X}


def create(properties: DeviceProperties) -> CdnaBackend | None:
    """Return the backend of a device, or None if no kernel is built for its architecture."""
    target = properties.values["gcnArchName"].decode().split(":")[0]
    arch = ARCHS.get(target)
    return None if arch is None else CdnaBackend(arch)


class CdnaBackend(NoExtras):
    """Computes products by the kernels of ``kernels/cdna``.

    Parameters
    ----------
    arch : Arch
    """

    name = "cdna"
    config_type = GemmConfig
    wave_size = 64

    def __init__(self, arch: Arch) -> None:
        self.arch = arch
        self.formats = formats_of(arch)
        self.precisions = precisions_of(arch)
        self.interconnect = INTERCONNECTS.get(arch.name, PCIE)

    def supports(self, request: Request) -> Support:
        """Tell whether a kernel supports the types, and a configuration the extents and strides."""
        return supports(request, self.arch)

    def problem(self, request: Request) -> GemmProblem | None:
        """Return the problem that the kernel solves; None for unsupported types."""
        if not supports_types(request, self.arch):
            return None
        return place_request(request, self.arch).layout.problem

    def candidates(self, request: Request) -> Sequence[Candidate]:
        """Return the configurations that can run, ordered by their modelled cost."""
        return self._select(request, place_request(request, self.arch)).candidates

    def compile(self, request: Request, config: Any = None, *, reason: str = "") -> Compiled:
        """Compile the kernel for a request."""
        from cupygemm._backends.cdna.compile import compile_kernel  # needs more than the core does

        placement = place_request(request, self.arch)
        problem = placement.layout.problem
        if config is None:
            selection = self._select(request, placement)
        else:
            objection = check(config, problem, self.arch)
            if objection is not None:
                raise ValueError(objection)
            selection = Selection(config, reason)
        kernel = compile_kernel(problem, selection.config, self.arch.name)
        return Compiled(
            computed_by="cupygemm",
            reason=selection.reason,
            handle=Kernel(placement, selection.config, kernel),
            notes=placement.notes,
            problem=problem,
            config=selection.config,
            resources=lambda: kernel.resources,
            compiler=kernel.compiler,
            grid=grid(selection.config, problem),
            num_launches=len(placement.layout.launches),
            by_address=placement.is_in_place and placement.sources is None,
            file=KernelFile(path=kernel.path, name=kernel.name),
        )

    def launch(self, request: Request, compiled: Compiled) -> Runner:
        """Load the kernel and return the runner of the request."""
        kernel: Kernel = compiled.handle
        return make_runner(request, kernel.placement, load(kernel))

    def part(self, request: Request, whole: Compiled) -> Compiled | None:
        """Compile the kernel for some rows of a product: the same configuration, unless stream-k.

        How a persistent grid splits tiles along k depends on the number of tiles, and so on the
        rows.
        """
        config: Any = whole.config
        problem = self.problem(request)
        if config.stream_k or config.atomic or not sums_alike(problem, whole.problem):
            return None
        try:
            return self.compile(request, config, reason="its rows are part of another product")
        except ValueError:  # the configuration does not support their number or alignment
            return None

    def groups(self, requests: Mapping[int, Request]) -> Sequence[Group]:
        """Return groups of products that the same kernel can compute in one launch."""
        from cupygemm._backends.cdna.grouped import groups

        placements = {
            number: place_request(request, self.arch)
            for number, request in requests.items()
            if supports_types(request, self.arch)
        }
        return [SharedLaunch(group, requests) for group in groups(placements, self.arch)]

    def triangle(self, request: Request) -> Runner | None:
        """Return the runner that computes ``x @ x.T`` by panels up to the diagonal."""
        from cupygemm._backends.cdna.triangle import make_triangle

        return make_triangle(request, self.arch)

    def block_scaled(self, request: Request, scaling: BlockScaling) -> Runner | None:
        """Return the runner for operands with exponents for blocks of 32 along k."""
        from cupygemm._backends.cdna.block_scales import make_block_scaled

        return make_block_scaled(request, scaling, self.arch)

    def kernel(self, text: str, entry: str, shared_bytes: int = 0) -> Any:
        """Compile a translation unit and load its kernel."""
        from cupygemm._backends.cdna.compile import compile_source
        from cupygemm._backends.cdna.kernel import load_entry

        return load_entry(compile_source(text, self.arch.name, entry))

    def _select(self, request: Request, placement: Placement) -> Selection:
        problem = placement.layout.problem
        return select(problem, self.arch, reproducible=request.reproducible)
