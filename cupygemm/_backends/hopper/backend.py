"""The Hopper backend: CUDA kernels with wgmma and TMA, on NVIDIA GPUs of compute capability 9.0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

from cupygemm._backends.hopper.choice import tf32x3
from cupygemm._backends.hopper.choice.by_sm import SHARED_BYTES
from cupygemm._backends.hopper.choice.check import check
from cupygemm._backends.hopper.choice.orientation import as_computed
from cupygemm._backends.hopper.choice.select import (
    HopperCandidate,
    best_in_one_order,
    in_other_orders,
    select,
    sums_in_one_order,
)
from cupygemm._backends.hopper.compilation.compile import compile_cubin, load
from cupygemm._backends.hopper.config import FLOAT8, HopperArch, HopperConfig
from cupygemm._backends.hopper.cuda.enqueue import in_order, plain_kernel
from cupygemm._backends.hopper.launch import launch_grid
from cupygemm._backends.hopper.plan import HopperChoice, choose
from cupygemm._backends.hopper.product import make_launches
from cupygemm._backends.hopper.requests import (
    KNOWN_PRECISIONS,
    place_request,
    precision_of,
    supports_types,
)
from cupygemm._backends.hopper.small.launch import small_cubin, small_grid, small_launches
from cupygemm._backends.hopper.small.select import (
    SmallCandidate,
    SmallSelection,
    select_small,
    small_candidates,
)
from cupygemm._backends.hopper.small_config import SMALL_PRODUCTS, SmallConfig, check_small
from cupygemm._backends.interconnect import NVLINK_H200
from cupygemm._backends.no_extras import NoExtras
from cupygemm._backends.product_table import why_types_unsupported
from cupygemm._backends.protocol import (
    SUPPORTED,
    Compiled,
    DeviceProperties,
    Group,
    Runner,
    Support,
)
from cupygemm._backends.runners import SharedLaunch, make_runner
from cupygemm._backends.scales_and_groups import BlockScaling, RowGroups
from cupygemm._records.problem import GemmProblem, sums_alike
from cupygemm._request.placement import Placement
from cupygemm._request.request import Request


def config_of(**fields: Any) -> HopperConfig | SmallConfig:
    """Return the configuration with these fields, from the database of tuned configurations."""
    kind = SmallConfig if "num_teams" in fields else HopperConfig
    return kind(**fields)


_SMS_OF_WHOLE_GPCS = 128
"""With at least this number of SMs, a cluster of 16 thread blocks fits in a GPC."""
MIN_TRIANGLE_ROWS = 512
"""Both triangles of symmetric products with fewer rows are computed."""


def create(properties: DeviceProperties) -> HopperBackend:
    """Return the backend of a device."""
    return HopperBackend(HopperArch.of_device(properties.name, properties.values))


class SmallKernel(NamedTuple):
    """The kernel for small matrices, and the placement that it was chosen for."""

    placement: Placement
    config: SmallConfig


class Kernels(NamedTuple):
    """The kernels of a request, and the placement that they were chosen for."""

    placement: Placement
    choice: HopperChoice


class HopperBackend(NoExtras):
    """Computes products by the kernels of ``kernels/hopper``.

    Parameters
    ----------
    arch : HopperArch
    beside : bool
        Whether other kernels run concurrently. Kernels then do not start before the previous work
        of their stream has ended, since they would wait on SMs that the others need.
    """

    name = "hopper"
    config_type = staticmethod(config_of)
    formats = FLOAT8
    precisions = KNOWN_PRECISIONS
    solves_tiles = frozenset("df")
    interconnect = NVLINK_H200

    def __init__(self, arch: HopperArch, *, beside: bool = False) -> None:
        self.arch = arch
        self._beside = beside
        # Clusters of more than 8 thread blocks are not portable: smaller GPUs have fewer SMs per
        # GPC.
        self.max_cluster = 16 if arch.num_sms >= _SMS_OF_WHOLE_GPCS else 8

    def supports(self, request: Request) -> Support:
        """Tell whether a kernel supports the request, and the model prefers it to cuBLAS's."""
        if self._small(request) is not None:
            return SUPPORTED
        support = supports_types(request)
        if not support:
            return support
        try:
            choose(place_request(request).layout, self.arch)
        except ValueError as err:
            return Support(str(err))
        return SUPPORTED

    def problem(self, request: Request) -> GemmProblem | None:
        """Return the problem that the kernel solves; None for unsupported types."""
        if supports_types(request) or not _why_not_small(request):
            return place_request(request).layout.problem
        return None

    def candidates(self, request: Request) -> Sequence[HopperCandidate | SmallCandidate]:
        """Return the configurations that can run, ordered by their modelled cost."""
        problem = place_request(request).layout.problem
        small = small_candidates(problem, self.arch)
        if not supports_types(request):
            return small
        both: list[HopperCandidate | SmallCandidate] = [
            *small,
            *select(problem, self.arch).candidates,
        ]
        return sorted(both, key=lambda candidate: candidate.cycles)

    def compile(self, request: Request, config: Any = None, *, reason: str = "") -> Compiled:
        """Compile the kernels for a request."""
        small = self._small(request) if config is None else None
        if small is not None:
            return self._compile_small(request, small.config, small.reason)
        if isinstance(config, SmallConfig):
            return self._compile_small(request, config, reason)
        placement = place_request(request)
        choice = choose(placement.layout, self.arch, config, reason=reason)
        if config is not None:
            objection = check(config, choice.problem, self.arch)
            if objection is not None:
                raise ValueError(objection)
            if choice.asked.a_dtype == "tf32x3":
                tf32x3.require(choice.asked, choice.selection, self.arch)
        gemm, its = choice.gemm, choice.config
        shared = its.shared_bytes(choice.a.itemsize, choice.problem.b_major)
        shared += SHARED_BYTES if choice.by_sm else 0
        return Compiled(
            computed_by="cupygemm",
            reason=choice.selection.reason,
            handle=Kernels(placement, choice),
            notes=placement.notes + choice.notes,
            problem=choice.asked,
            config=its,
            resources=lambda: gemm.resources(shared),
            compiler=gemm.compiler,
            grid=launch_grid(
                its, its.num_units(choice.problem), choice.num_sms, by_sm=choice.by_sm
            ),
            num_launches=len(placement.layout.launches),
            by_address=placement.is_in_place and placement.sources is None,
        )

    def launch(self, request: Request, compiled: Compiled) -> Runner:
        """Load the kernels and return the runner of the request."""
        kernels: Kernels | SmallKernel = compiled.handle
        if isinstance(kernels, SmallKernel):
            placement = kernels.placement
            with self._order():
                launches = small_launches(placement.layout, kernels.config)
            return make_runner(request, placement, launches)
        return self.run(request, kernels.placement, kernels.choice)

    def part(self, request: Request, whole: Compiled) -> Compiled | None:
        """Compile the kernels for some rows of a product: the same configuration, unless stream-k.

        How a persistent grid splits tiles along k depends on the number of tiles, and so on the
        rows. All tiles sum 16-bit operands in the same order, so the best one for the rows is used.
        """
        config: Any = whole.config
        problem = self.problem(request)
        if getattr(config, "stream_k", 0) or not sums_alike(problem, whole.problem):
            return None
        if problem is not None and sums_in_one_order(config, problem):
            config = best_in_one_order(problem, self.arch) or config
        try:
            return self.compile(request, config, reason="its rows are part of another product")
        except ValueError:  # the configuration does not support their number or alignment
            return None

    def variants(self, request: Request, config: Any) -> Sequence[HopperConfig]:
        """Return the configuration with the other orders of tiles."""
        if isinstance(config, SmallConfig):
            return ()
        asked = place_request(request).layout.problem
        problem = as_computed(asked, transposed_c=config.transposed_c)
        return in_other_orders(config, problem, self.arch)

    def groups(self, requests: Mapping[int, Request]) -> Sequence[Group]:
        """Return the groups of products that take less time in a common launch, by the model."""
        from cupygemm._backends.hopper.other_products.grouped import groups

        placements = {
            number: place_request(request)
            for number, request in requests.items()
            if supports_types(request)
        }
        return [SharedLaunch(group, requests) for group in groups(placements, self.arch)]

    def triangle(self, request: Request) -> Runner | None:
        """Return the runner that computes ``x @ x.T`` by the tiles of one triangle."""
        from cupygemm._backends.hopper.other_products.triangle import choose_triangle

        if request.shape.m < MIN_TRIANGLE_ROWS or not supports_types(request):
            return None
        placement = place_request(request)
        choice = choose_triangle(placement.layout, self.arch)
        return None if choice is None else self.run(request, placement, choice)

    def block_scaled(self, request: Request, scaling: BlockScaling) -> Runner | None:
        """Return the runner for 8-bit floats with scales for blocks of 128 along k."""
        from cupygemm._backends.hopper.other_products.block_scales import make_block_scaled

        return make_block_scaled(request, scaling, self.arch)

    def row_groups(self, request: Request, groups: RowGroups) -> Runner | None:
        """Return the runner for groups of rows, whose sizes the kernel reads."""
        from cupygemm._backends.hopper.other_products.row_groups import make_row_groups

        return make_row_groups(request, groups, self.arch)

    def sparing(self, units: int) -> HopperBackend:
        """Return this backend with persistent grids that leave some SMs to other kernels."""
        beside = self._beside or units > 0
        arch = replace(self.arch, num_sms=self.arch.num_sms - units, places_by_sm=not beside)
        return HopperBackend(arch, beside=beside)

    def kernel(self, text: str, entry: str, shared_bytes: int = 0) -> Any:
        """Compile a translation unit and load its kernel."""
        return plain_kernel(load(compile_cubin(text, entry)), shared_bytes)

    def _small(self, request: Request) -> SmallSelection | None:
        """Return the configuration for small matrices if the model prefers it."""
        if _why_not_small(request):
            return None
        return select_small(place_request(request).layout.problem, self.arch)

    def _compile_small(self, request: Request, config: SmallConfig, reason: str) -> Compiled:
        placement = place_request(request)
        layout = placement.layout
        objection = check_small(config, layout.problem)
        if objection is not None:
            raise ValueError(objection)
        cubin = small_cubin(layout, config)
        shared = config.shared_bytes(layout.problem)
        return Compiled(
            computed_by="cupygemm",
            reason=reason,
            handle=SmallKernel(placement, config),
            notes=placement.notes,
            problem=layout.problem,
            config=config,
            resources=lambda: cubin.resources(shared),
            compiler=cubin.compiler,
            grid=small_grid(layout, config),
            num_launches=len(layout.launches),
            by_address=placement.is_in_place and placement.sources is None,
        )

    def run(self, request: Request, placement: Placement, choice: HopperChoice) -> Runner:
        """Load the kernels of a choice and return the runner of the request."""
        with self._order():
            launches = make_launches(placement.layout, choice)
        return make_runner(request, placement, launches)

    def _order(self) -> AbstractContextManager[None]:
        """Return the context in which launches are made."""
        return in_order() if self._beside else nullcontext()


def _why_not_small(request: Request) -> str | None:
    """Return why the kernel for small matrices does not support the types, or None if it does."""
    if precision_of(request) != "ieee":
        return "it multiplies float32 exactly"
    return why_types_unsupported(request, SMALL_PRODUCTS, FLOAT8, "ieee")
