"""Plans: everything about a call that does not depend on the contents or the place of its arrays.

A plan is made once for each combination of shapes, strides, types, alignment and options on a
device. Making one selects, compiles and loads the kernel; running one is one allocation and one
launch, on the current stream, without synchronisation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cupygemm._backends.cdna.arch import Arch
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.config import GemmConfig, grid
from cupygemm._backends.cdna.launch import GemmLaunch, PartedLaunch
from cupygemm._backends.cdna.select import Selection, select
from cupygemm._backends.cdna.source import ADD_ENTRY
from cupygemm._backends.cupy.product import Fallback, why_no_kernel
from cupygemm._backends.device import Device
from cupygemm._backends.hopper.config import HopperArch
from cupygemm._backends.runners import Runner, runner
from cupygemm._epilogue.unfused import applied
from cupygemm._plan.explanation import Explanation
from cupygemm._records.formats import container
from cupygemm._records.problem import GemmProblem
from cupygemm._request.copies import assign
from cupygemm._request.layout import Layout, Operand
from cupygemm._request.request import Posed
from cupygemm._tuning.database import winner

if TYPE_CHECKING:
    from cupygemm._backends.cdna.compile import CompiledKernel
    from cupygemm._backends.hopper.plan import HopperChoice


@dataclass(frozen=True)
class Plan:
    """A call, ready to run.

    Attributes
    ----------
    run : callable
        ``run(x1, x2, out)`` returns the result; ``run(x1, x2, out, arguments)`` where the call has
        an epilogue.
    extents : tuple of (int, int)
        Bytes that each of x1, x2 and out covers, from and to, relative to its first element.
    by_address : bool
        Of the arrays, `run` with ``out`` takes only the addresses of their first elements, so that
        other views from there on do as well.
    """

    run: Runner
    extents: tuple[tuple[int, int], ...]
    by_address: bool = False

    def overlaps(self, x1: Any, x2: Any, out: Any) -> bool:
        """Whether the memory of ``out`` may overlap that of an operand."""
        (start1, end1), (start2, end2), (start, end) = self.extents
        first, second, target = x1.data.ptr, x2.data.ptr, out.data.ptr
        start, end = target + start, target + end
        return bool(
            (first + start1 < end and start < first + end1)
            or (second + start2 < end and start < second + end2)
        )


@dataclass(frozen=True)
class Choice:
    """The configuration for a product, and its kernel.

    Attributes
    ----------
    selection : Selection
    compiled : CompiledKernel
    """

    selection: Selection
    compiled: CompiledKernel


def make_plan(posed: Posed, device: Device, operands: tuple[Operand | None, ...]) -> Plan:
    """Return the plan of a posed call of x1, x2 and out on a device."""
    extents = tuple((0, 0) if operand is None else operand.extent() for operand in operands)
    from cupy.cuda import Device as CurrentDevice

    with CurrentDevice(device.index):  # kernels are loaded on the device that is current
        run = _runner_of(posed, device)
    by_address = posed.work == "kernel" and posed.sources is None and not posed.copies
    return Plan(_on_device(run, device.index), extents, by_address)


def _runner_of(posed: Posed, device: Device) -> Runner:
    if posed.sums is not None:
        return applied(posed, _runner_of(posed.sums, device))
    return make_runner(posed, choose(posed, device))


def choose(posed: Posed, device: Device) -> Choice | HopperChoice | Fallback | None:
    """Return what multiplies: a kernel, `cupy.matmul`, or nothing where nothing needs to.

    Raises
    ------
    TypeError
        Nothing on the device can.
    """
    if posed.work in ("empty", "zeros"):
        return None
    why = why_no_kernel(posed, device)
    if posed.layout is not None and device.arch is not None:
        problem = posed.layout.problem
        try:
            if isinstance(device.arch, HopperArch):
                from cupygemm._backends.hopper import plan as hopper_plan

                return hopper_plan.choose(posed.layout, device.arch, tuned_on=device.name)
            selection = _tuned(problem, device) or select(
                problem, device.arch, reproducible=posed.reproducible
            )
        except ValueError as err:  # one of its limits, such as rows that are gigabytes apart
            why = str(err)
        else:
            from cupygemm._backends.cdna.compile import (
                compile_kernel,  # needs more than the core does
            )

            compiled = compile_kernel(problem, selection.config, device.arch.name)
            return Choice(selection, compiled)
    fallback = Fallback(posed, device, why)
    fallback.require()
    return fallback


def _tuned(problem: GemmProblem, device: Device) -> Selection | None:
    """Return the configuration that was measured fastest, if one was that can run."""
    found = None if device.is_emulated else winner(device.name, problem, GemmConfig)
    if found is None:
        return None
    config, row = found
    assert isinstance(device.arch, Arch)
    if check(config, problem, device.arch) is not None:
        return None
    return Selection(config, row.describe(device.name))


def explain_plan(posed: Posed, device: Device, call: str) -> Explanation:
    """Return the account of a posed call, for people."""
    if posed.sums is not None:
        sums = explain_plan(posed.sums, device, call)
        assert posed.epilogue is not None
        return replace(
            sums, epilogue=f"{posed.epilogue.summary}; of {posed.types.accumulator} sums, by CuPy"
        )
    choice = choose(posed, device)
    if choice is None:
        why = "k is 0: all sums are zero" if posed.work == "zeros" else "the result is empty"
        return Explanation(call, device.name, "none", why)
    if isinstance(choice, Fallback):
        return Explanation(call, device.name, "cupy.matmul", choice.why, choice.copies)
    layout = posed.layout
    assert layout is not None
    if not isinstance(choice, Choice):
        return choice.explain(call, device.name, posed.copies, len(layout.launches))
    config = choice.selection.config
    return Explanation(
        call,
        device.name,
        "cupygemm",
        choice.selection.reason,
        posed.copies,
        layout.problem,
        config,
        choice.compiled.resources,
        choice.compiled.compiler,
        len(layout.launches),
        grid(config, layout.problem),
        None if layout.problem.epilogue is None else layout.problem.epilogue.summary,
    )


def make_runner(posed: Posed, choice: Choice | HopperChoice | Fallback | None) -> Runner:
    """Return what computes a posed call, its kernel loaded."""
    if choice is None:
        return _filling(posed)
    if isinstance(choice, Fallback):
        return choice
    if not isinstance(choice, Choice):
        from cupygemm._backends.hopper import product as hopper_product

        return hopper_product.make_runner(posed, choice)
    assert posed.layout is not None
    return runner(posed, launches_of(posed.layout, choice))


def launches_of(layout: Layout, choice: Choice) -> tuple[GemmLaunch, ...]:
    """Return the launches of a product, their kernel loaded."""
    from cupy import RawModule

    module = RawModule(path=str(choice.compiled.path))
    kernel = module.get_function(choice.compiled.name)
    config = choice.selection.config
    if config.partition == "tiles":
        return tuple(GemmLaunch(kernel, layout, offsets, config) for offsets in layout.launches)
    add = module.get_function(ADD_ENTRY)
    return tuple(PartedLaunch(kernel, add, layout, offsets, config) for offsets in layout.launches)


def _filling(posed: Posed) -> Runner:
    """Return the runner of a call without products: an empty result, or one of zeros."""
    import cupy

    shape, zeros, dtype = posed.shape.result, posed.work == "zeros", container(posed.types.result)

    def run(x1: Any, x2: Any, out: Any, *_epilogue: Any) -> Any:
        if out is None:
            return cupy.zeros(shape, dtype)
        if zeros:
            assign(out, cupy.zeros(shape, dtype))
        return out

    return run


def _on_device(run: Runner, index: int) -> Runner:
    """Return a runner that makes device `index` the current one where it is not."""
    from cupy.cuda import Device as CurrentDevice
    from cupy.cuda.runtime import getDevice

    def run_there(x1: Any, x2: Any, out: Any, *epilogue: Any) -> Any:
        if getDevice() == index:
            return run(x1, x2, out, *epilogue)
        with CurrentDevice(index):
            return run(x1, x2, out, *epilogue)

    return run_there
