"""Make the runner of a request from launches that take addresses.

A runner copies operands where needed, calls the launches, and returns the result. A launch is
called with the addresses of A, B and C and, if its kernel has an epilogue, the packed arguments of
the epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cupygemm._backends.epilogue_args import EpiloguePacker
from cupygemm._backends.protocol import Places, Runner
from cupygemm._request.copies import assign, copied
from cupygemm._request.epilogue import EpilogueArguments
from cupygemm._request.placement import Placement
from cupygemm._request.request import Request

Launch = Callable[..., None]
Addresses = Sequence[tuple[int, int, int]]
"""The addresses of A, B and C of each product of a group."""


def make_runner(request: Request, placement: Placement, launches: Sequence[Launch]) -> Runner:
    """Return the runner of a request, given one launch for each of the layout's launches."""
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
    """Return a runner that copies operands if needed, and the result to `out` if given."""
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


@dataclass(frozen=True, kw_only=True)
class AddressGroup:
    """Products that share a launch by addresses.

    Attributes
    ----------
    numbers : tuple of int
        The numbers of the requests, in the order of the launch.
    placements : tuple of Placement
        The placement of each product's arrays, in the same order.
    enqueue : callable
        ``enqueue(addresses)`` launches the kernel on the current stream.
    """

    numbers: tuple[int, ...]
    placements: tuple[Placement, ...]
    enqueue: Callable[[Addresses], None]


class SharedLaunch:
    """Runs a group: copies of operands before the launch, and new arrays where needed.

    Parameters
    ----------
    group : AddressGroup
    requests : mapping of int to Request
        Requests by number, including all of the group.
    """

    def __init__(self, group: AddressGroup, requests: Mapping[int, Request]) -> None:
        self.numbers = group.numbers
        self._enqueue = group.enqueue
        self._members = tuple(zip(group.numbers, group.placements, strict=True))
        in_order = group.numbers == tuple(range(len(group.numbers)))
        self._is_in_order = in_order and not any(p.layout.swapped for p in group.placements)
        self._requests = requests
        self._is_in_place = all(
            placement.is_in_place and requests[number].out is not None
            for number, placement in self._members
        )

    def __call__(
        self, x1s: Sequence[Any], x2s: Sequence[Any], outs: Sequence[Any], places: Places | None
    ) -> list[Any]:
        """Enqueue the launch; return the arrays to which it writes the products, in its order."""
        if self._is_in_place and places is not None:
            a, b, out = places
            if self._is_in_order and len(a) == len(self.numbers):
                self._enqueue(list(zip(a, b, out, strict=True)))
                return list(outs)
            self._enqueue(
                [
                    (b[i], a[i], out[i]) if placement.layout.swapped else (a[i], b[i], out[i])
                    for i, placement in self._members
                ]
            )
            return [outs[number] for number in self.numbers]
        return self._with_copies(x1s, x2s, outs)

    def _with_copies(
        self, x1s: Sequence[Any], x2s: Sequence[Any], outs: Sequence[Any]
    ) -> list[Any]:
        """Enqueue the launch, with copies of operands before it, to new arrays where needed."""
        from cupy import ndarray

        addresses, results, kept = [], [], []
        for number, placement in self._members:
            first, second = copied(x1s[number], placement.x1_copy), x2s[number]
            second, target = copied(second, placement.x2_copy), outs[number]
            kept.append((first, second))  # copies live until the launch is enqueued
            if target is None or placement.temporary is not None:
                request = self._requests[number]
                target = ndarray(request.shape.result, request.types.container)
            if placement.layout.swapped:
                first, second = second, first
            addresses.append((first.data.ptr, second.data.ptr, target.data.ptr))
            results.append(target)
        self._enqueue(addresses)
        return results


class BlockScaledLaunch:
    """Launches a product with scales along k.

    Parameters
    ----------
    placement : Placement
        The placement of a product with a single launch.
    launch : callable
        ``launch(a, b, c, epilogue, rows, columns)`` takes the addresses of the kernel's operands,
        the packed arguments of the epilogue, and the arrays of both scales.
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
