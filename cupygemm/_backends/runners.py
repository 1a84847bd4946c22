"""Run a request by launches that take addresses: copies before, the launches, the result after.

A launch is called with the addresses of A, B and C and, where its kernel has an epilogue, with the
packed arguments of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cupygemm._backends.epilogue_args import EpiloguePacker
from cupygemm._backends.protocol import Runner
from cupygemm._request.copies import assign, copied
from cupygemm._request.epilogue import EpilogueArguments
from cupygemm._request.placement import Placement
from cupygemm._request.request import Request

Launch = Callable[..., None]


def make_runner(request: Request, placement: Placement, launches: Sequence[Launch]) -> Runner:
    """Return what computes a request by launches, those of ``placement.layout.launches``."""
    if placement.sources is not None:
        return _with_epilogue(request, placement, launches)
    if len(launches) == 1 and placement.is_in_place:
        return _direct(request, placement, launches[0])

    def launch_all(a: int, b: int, c: int) -> None:
        for launch in launches:
            launch(a, b, c)

    return around(request, placement, launch_all)


def _direct(request: Request, placement: Placement, launch: Launch) -> Runner:
    """Return the runner of the common case: one launch on the caller's own arrays."""
    from cupy import ndarray

    shape, dtype = request.shape.result, request.types.container
    swapped = placement.layout.swapped

    def run(x1: Any, x2: Any, out: Any) -> Any:
        if out is None:
            out = ndarray(shape, dtype)
        if swapped:
            x1, x2 = x2, x1
        launch(x1.data.ptr, x2.data.ptr, out.data.ptr)
        return out

    return run


def _with_epilogue(request: Request, placement: Placement, launches: Sequence[Launch]) -> Runner:
    """Return the runner of a request whose kernel has an epilogue."""
    layout, sources = placement.layout, placement.sources
    assert sources is not None
    packed = [
        (launch, EpiloguePacker(layout, offsets))
        for launch, offsets in zip(launches, layout.launches, strict=True)
    ]
    if len(packed) == 1 and placement.is_in_place:
        return _directly_with_epilogue(request, placement, *packed[0])

    def launch_all(a: int, b: int, c: int, arguments: EpilogueArguments) -> None:
        arrays = sources.arrays(arguments)
        for launch, packer in packed:
            launch(a, b, c, packer(arguments, arrays))

    return around(request, placement, launch_all)


def _directly_with_epilogue(
    request: Request, placement: Placement, launch: Launch, packer: EpiloguePacker
) -> Runner:
    """Return the runner of the common case: one launch on the caller's own arrays."""
    from cupy import ndarray

    shape, dtype = request.shape.result, request.types.container
    swapped = placement.layout.swapped

    def run(x1: Any, x2: Any, out: Any, arguments: EpilogueArguments) -> Any:
        if out is None:
            out = ndarray(shape, dtype)
        if swapped:
            x1, x2 = x2, x1
        epilogue = packer(arguments, arguments.arrays)
        launch(x1.data.ptr, x2.data.ptr, out.data.ptr, epilogue)
        return out

    return run


def around(request: Request, placement: Placement, launch_all: Launch) -> Runner:
    """Return a runner that copies operands where needed, and the result to where it is wanted."""
    from cupy import ndarray

    shape, dtype = request.shape.result, request.types.container
    swapped = placement.layout.swapped

    def run(x1: Any, x2: Any, out: Any, *more: Any) -> Any:
        first, second = copied(x1, placement.x1_copy), copied(x2, placement.x2_copy)
        if swapped:
            first, second = second, first
        staged = out is None or placement.temporary is not None
        target = ndarray(shape, dtype) if staged else out
        launch_all(first.data.ptr, second.data.ptr, target.data.ptr, *more)
        if out is None:
            return target
        if staged:
            assign(out, target)
        return out

    return run


class BlockScaledLaunch:
    """Launches a product with scales along k, given those scales and an epilogue's arguments.

    Parameters
    ----------
    placement : Placement
        Of a product with a single launch.
    launch : callable
        ``launch(a, b, c, epilogue, rows, columns)`` of the kernel's own operands: the packed
        arguments of the epilogue, and the arrays of both scales.
    """

    def __init__(self, placement: Placement, launch: Launch) -> None:
        layout = placement.layout
        self._launch, self._swapped, self._sources = launch, layout.swapped, placement.sources
        self._packer = EpiloguePacker(layout, layout.launches[0])

    def __call__(
        self, a: int, b: int, c: int, rows: Any, columns: Any, *epilogue: EpilogueArguments
    ) -> None:
        """Enqueue the launch; the scales are those of x1 and x2."""
        if self._swapped:
            rows, columns = columns, rows
        packed = b""
        if self._sources is not None:
            (arguments,) = epilogue
            packed = self._packer(arguments, self._sources.arrays(arguments))
        self._launch(a, b, c, packed, rows, columns)
