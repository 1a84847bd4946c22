"""Running a posed call: what every backend does around its launches, copies and the result.

A launch is called with the addresses of A, B and C, and, of a kernel with an epilogue, the packed
arguments of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cupygemm._backends.cdna.launch import EpiloguePacker
from cupygemm._epilogue.options import EpilogueArguments
from cupygemm._request.copies import assign, copied
from cupygemm._request.request import Posed

Runner = Callable[..., Any]  # x1, x2, out or None, an epilogue's arguments -> the result


def runner(posed: Posed, launches: Sequence[Callable[..., None]]) -> Runner:
    """Return what computes a posed call by launches, those of ``posed.layout.launches``."""
    if posed.sources is not None:
        return _with_epilogue(posed, launches)
    if posed.copies or len(launches) > 1:
        return _staged(posed, launches)
    return _direct(posed, launches[0])


def _direct(posed: Posed, launch: Callable[..., None]) -> Runner:
    """Return the runner of the common case: operands and result where they lie, one launch."""
    from cupy import ndarray

    assert posed.layout is not None
    shape, dtype, swapped = posed.shape.result, posed.types.container, posed.layout.swapped

    def run(x1: Any, x2: Any, out: Any) -> Any:
        if out is None:
            out = ndarray(shape, dtype)
        if swapped:
            x1, x2 = x2, x1
        launch(x1.data.ptr, x2.data.ptr, out.data.ptr)
        return out

    return run


def _staged(posed: Posed, launches: Sequence[Callable[..., None]]) -> Runner:
    """Return the runner of a call with copies before or after its launches."""

    def launch_all(a: int, b: int, c: int) -> None:
        for launch in launches:
            launch(a, b, c)

    return around(posed, launch_all)


def _with_epilogue(posed: Posed, launches: Sequence[Callable[..., None]]) -> Runner:
    """Return the runner of a call whose kernels have an epilogue."""
    layout, sources = posed.layout, posed.sources
    assert layout is not None
    assert sources is not None
    packed = [
        (launch, EpiloguePacker(layout, offsets))
        for launch, offsets in zip(launches, layout.launches, strict=True)
    ]

    staged = posed.x1_copy or posed.x2_copy or posed.temporary is not None
    if not staged and not sources.copies and len(packed) == 1:
        return _directly_with_epilogue(posed, *packed[0])

    def launch_all(a: int, b: int, c: int, arguments: EpilogueArguments) -> None:
        arrays = sources.arrays(arguments)
        for launch, packer in packed:
            launch(a, b, c, packer(arguments, arrays))

    return around(posed, launch_all)


def _directly_with_epilogue(
    posed: Posed, launch: Callable[..., None], packer: EpiloguePacker
) -> Runner:
    """Return the runner of the common case of these: all arrays where they lie, one launch."""
    from cupy import ndarray

    assert posed.layout is not None
    shape, dtype, swapped = posed.shape.result, posed.types.container, posed.layout.swapped

    def run(x1: Any, x2: Any, out: Any, arguments: EpilogueArguments) -> Any:
        if out is None:
            out = ndarray(shape, dtype)
        if swapped:
            x1, x2 = x2, x1
        epilogue = packer(arguments, arguments.arrays)
        launch(x1.data.ptr, x2.data.ptr, out.data.ptr, epilogue)
        return out

    return run


def around(posed: Posed, launch_all: Callable[..., None]) -> Runner:
    """Return a runner that copies operands where needed, and the result to where it is wanted."""
    from cupy import ndarray

    assert posed.layout is not None
    shape, dtype, swapped = posed.shape.result, posed.types.container, posed.layout.swapped

    def run(x1: Any, x2: Any, out: Any, *epilogue: EpilogueArguments) -> Any:
        first, second = copied(x1, posed.x1_copy), copied(x2, posed.x2_copy)
        if swapped:
            first, second = second, first
        staged = out is None or posed.temporary is not None
        target = ndarray(shape, dtype) if staged else out
        launch_all(first.data.ptr, second.data.ptr, target.data.ptr, *epilogue)
        if out is None:
            return target
        if staged:
            assign(out, target)
        return out

    return run
