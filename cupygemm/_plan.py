"""Plans: everything about a call that does not depend on the contents or the place of its arrays.

A plan is made once for each combination of shapes, strides, types, alignment and options on a
device. Making one selects, compiles and loads the kernel; running one is one allocation and one
launch, on the current stream, without synchronisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cupygemm import _fallback
from cupygemm._compile import CompiledKernel, compile_kernel
from cupygemm._copies import assign, copied
from cupygemm._device import Device
from cupygemm._explain import Explanation
from cupygemm._launch import GemmLaunch, grid_of
from cupygemm._layout import Operand
from cupygemm._pose import Posed
from cupygemm._select import Selection, select

Runner = Callable[[Any, Any, Any], Any]  # x1, x2, out or None -> the result


@dataclass(frozen=True)
class Plan:
    """A call, ready to run.

    Attributes
    ----------
    posed : Posed
    run : callable
        ``run(x1, x2, out)`` returns the result.
    extents : tuple of (int, int)
        Bytes that each of x1, x2 and out covers, from and to, relative to its first element.
    """

    posed: Posed
    run: Runner
    extents: tuple[tuple[int, int], ...]

    def overlaps(self, x1: Any, x2: Any, out: Any) -> bool:
        """Whether the memory of ``out`` may overlap that of an operand."""
        (start1, end1), (start2, end2), (start, end) = self.extents
        first, second, target = x1.data.ptr, x2.data.ptr, out.data.ptr
        start, end = target + start, target + end
        return bool(
            (first + start1 < end and start < first + end1)
            or (second + start2 < end and start < second + end2)
        )


def choose(posed: Posed, device: Device) -> tuple[Selection, CompiledKernel]:
    """Return the configuration for a posed product and its compiled kernel."""
    assert posed.layout is not None
    assert device.arch is not None
    problem = posed.layout.problem
    selection = select(problem, device.arch)
    return selection, compile_kernel(problem, selection.config, device.arch.name)


def make_plan(posed: Posed, device: Device, operands: tuple[Operand | None, ...]) -> Plan:
    """Return the plan of a posed call of x1, x2 and out on a device."""
    extents = tuple((0, 0) if operand is None else operand.extent() for operand in operands)
    return Plan(posed, _on_device(_runner(posed, device), device.index), extents)


def _runner(posed: Posed, device: Device) -> Runner:
    if posed.work == "fallback":
        _fallback.require(posed, device)
        return lambda x1, x2, out: _fallback.multiply(posed, device, x1, x2, out)
    if posed.work != "kernel":
        return _filling(posed)
    from cupy import RawModule

    selection, compiled = choose(posed, device)
    kernel = RawModule(path=str(compiled.path)).get_function(compiled.name)
    return launching(posed, kernel, selection)


def launching(posed: Posed, kernel: Any, selection: Selection) -> Runner:
    """Return the runner of a product by ``kernel(grid, block, args)``."""
    layout = posed.layout
    assert layout is not None
    launches = tuple(
        GemmLaunch(kernel, layout, segment, selection.config) for segment in layout.segments
    )
    if posed.copies or len(launches) > 1:
        return _staged(posed, launches)
    return _direct(posed, launches[0])


def _direct(posed: Posed, launch: GemmLaunch) -> Runner:
    """Return the runner of the common case: operands and result where they lie, one launch."""
    from cupy import ndarray

    assert posed.layout is not None
    shape, dtype, swapped = posed.shape.result, posed.types.result, posed.layout.swapped

    def run(x1: Any, x2: Any, out: Any) -> Any:
        if out is None:
            out = ndarray(shape, dtype)
        if swapped:
            x1, x2 = x2, x1
        launch(x1.data.ptr, x2.data.ptr, out.data.ptr)
        return out

    return run


def _staged(posed: Posed, launches: tuple[GemmLaunch, ...]) -> Runner:
    """Return the runner of a call with copies before or after its launches."""
    from cupy import ndarray

    assert posed.layout is not None
    types, swapped = posed.types, posed.layout.swapped

    def run(x1: Any, x2: Any, out: Any) -> Any:
        first, second = copied(x1, posed.x1_copy), copied(x2, posed.x2_copy)
        if swapped:
            first, second = second, first
        staged = out is None or posed.temporary is not None
        target = ndarray(posed.shape.result, types.stored) if staged else out
        for launch in launches:
            launch(first.data.ptr, second.data.ptr, target.data.ptr)
        if out is None:
            return target
        if staged:
            assign(out, target)
        return out

    return run


def _filling(posed: Posed) -> Runner:
    """Return the runner of a call without products: an empty result, or one of zeros."""
    import cupy

    zeros = posed.work == "zeros"

    def run(x1: Any, x2: Any, out: Any) -> Any:
        if out is None:
            out = cupy.ndarray(posed.shape.result, posed.types.result)
            if zeros:
                out.data.memset_async(0, out.nbytes)
        elif zeros:
            assign(out, cupy.zeros(posed.shape.result, posed.types.result))
        return out

    return run


def _on_device(run: Runner, index: int) -> Runner:
    """Return a runner that makes device `index` the current one where it is not."""
    from cupy.cuda import Device as CurrentDevice
    from cupy.cuda.runtime import getDevice

    def run_there(x1: Any, x2: Any, out: Any) -> Any:
        if getDevice() == index:
            return run(x1, x2, out)
        with CurrentDevice(index):
            return run(x1, x2, out)

    return run_there


def account(posed: Posed, device: Device, call: str) -> Explanation:
    """Return the account of a posed call, for people."""
    if posed.work == "fallback":
        _fallback.require(posed, device)
        return Explanation(call, device.name, "cupy.matmul", *_fallback.account(posed, device))
    if posed.work != "kernel":
        why = "k is 0: all sums are zero" if posed.work == "zeros" else "the result is empty"
        return Explanation(call, device.name, "none", why)
    selection, compiled = choose(posed, device)
    layout = posed.layout
    assert layout is not None
    return Explanation(
        call,
        device.name,
        "cupygemm",
        selection.reason,
        posed.copies,
        layout.problem,
        selection.config,
        compiled.resources,
        compiled.compiler,
        len(layout.segments),
        grid_of(layout, layout.segments[0], selection.config),
    )
