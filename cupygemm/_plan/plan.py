"""Plans: everything about a call that does not depend on the contents or addresses of its arrays.

A plan is made once for each combination of shapes, strides, types, alignment and options on a
device: a backend that supports the request is chosen, and its kernel is compiled and loaded.
Running a plan is one allocation and one launch, on the current stream, without synchronisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cupygemm._backends.device import Device
from cupygemm._backends.protocol import Backend, Compiled, Runner
from cupygemm._backends.unfused import applied
from cupygemm._plan.binding import Binding
from cupygemm._plan.explanation import Explanation
from cupygemm._plan.winners import Winner, winner
from cupygemm._records.dtypes import FLOAT8, FLOAT8_DTYPES
from cupygemm._records.formats import container
from cupygemm._request.copies import assign
from cupygemm._request.epilogue import ARRAYS, EpilogueArguments
from cupygemm._request.layout import Operand
from cupygemm._request.promotion import F32
from cupygemm._request.request import Request

Result = TypeVar("Result")
Reach = tuple[int, int]
"""The bytes that an array covers, from and to, relative to its first element."""


@dataclass(frozen=True, slots=True)
class ReadArray:
    """What decides whether an array that an epilogue reads may overlap the result.

    Attributes
    ----------
    reach : tuple of int
    like_out : bool
        Whether it has the shape, strides and type of ``out``, and each element is read before it is
        overwritten by the result.
    """

    reach: Reach
    like_out: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A call, ready to run.

    Attributes
    ----------
    run : callable
        ``run(x1, x2, out)`` returns the result; ``run(x1, x2, out, arguments)`` where the call has
        an epilogue.
    reaches : tuple of (int, int)
        Of x1, x2 and out.
    epilogue_reads : tuple of ReadArray or None
        In the order of the epilogue's arrays.
    binding : Binding or None
        How the keywords become the epilogue's arguments; None without an epilogue.
    by_address : bool
        Whether `run` with ``out`` uses only the addresses of the arrays' first elements, so that it
        accepts any views that begin there.
    """

    run: Runner
    reaches: tuple[Reach, Reach, Reach]
    epilogue_reads: tuple[ReadArray | None, ...] = ()
    binding: Binding | None = None
    by_address: bool = False

    def run_again(self, x1: Any, x2: Any, out: Any, options: Mapping[str, Any], *more: Any) -> Any:
        """Run a call like the first one; return None if ``out`` overlaps what is read.

        Parameters
        ----------
        x1, x2 : cupy.ndarray
        out : cupy.ndarray or None
        options : mapping of str to value
            The keywords of the call.
        *more
            Arguments of `run` before those of the epilogue.
        """
        arguments = () if self.binding is None else (self.binding(options),)
        if out is not None and (
            self.overlaps(x1, x2, out) or (arguments and self.overlaps_epilogue(arguments[0], out))
        ):
            return None
        return self.run(x1, x2, out, *more, *arguments)

    def overlaps(self, x1: Any, x2: Any, out: Any) -> bool:
        """Whether the memory of ``out`` may overlap that of an operand."""
        (start1, end1), (start2, end2), (start, end) = self.reaches
        first, second, target = x1.data.ptr, x2.data.ptr, out.data.ptr
        start, end = target + start, target + end
        return bool(
            (first + start1 < end and start < first + end1)
            or (second + start2 < end and start < second + end2)
        )

    def overlaps_epilogue(self, arguments: EpilogueArguments, out: Any) -> bool:
        """Whether writing ``out`` may change elements that the epilogue reads later."""
        target = out.data.ptr
        start, end = (target + offset for offset in self.reaches[2])
        for read, array in zip(self.epilogue_reads, arguments.arrays, strict=True):
            if read is not None:
                place = array.data.ptr
                in_place = read.like_out and place == target
                if not in_place and place + read.reach[0] < end and start < place + read.reach[1]:
                    return True
        return False


def make_plan(
    request: Request,
    device: Device,
    options: Mapping[str, Any] | None = None,
    arguments: EpilogueArguments | None = None,
) -> Plan:
    """Return the plan of a request on a device.

    Parameters
    ----------
    request : Request
    device : Device
    options : mapping of str to value, optional
        The keywords of the call, from which later calls take their arguments.
    arguments : EpilogueArguments, optional
        Their validated values.
    """
    run, by_address = on_device(device, lambda: _runner_of(request, device))
    return plan_of(run, request, device, options, arguments, by_address=by_address)


def plan_of(
    run: Runner,
    request: Request,
    device: Device,
    options: Mapping[str, Any] | None,
    arguments: EpilogueArguments | None,
    *,
    by_address: bool = False,
) -> Plan:
    """Return the plan of a request that `run` computes; see `make_plan`."""
    return Plan(
        run=_bound_to_device(run, device.index),
        reaches=(request.x1.extent(), request.x2.extent(), _extent(request.out)),
        epilogue_reads=_epilogue_reads(request),
        binding=None if arguments is None else Binding(options or {}, arguments),
        by_address=by_address,
    )


def on_device(device: Device, make: Callable[[], Result]) -> Result:
    """Call a function while a device is the current one, so that it loads kernels there."""
    from cupy.cuda import Device as CurrentDevice

    with CurrentDevice(device.index):
        return make()


def choose(request: Request, device: Device) -> tuple[Backend, Compiled]:
    """Return the backend that computes a product, and the kernels that it compiled.

    Raises
    ------
    TypeError
        No backend of the device supports the request.
    """
    for backend in device.backends:
        tuned = _compile_tuned(request, backend, device)
        if tuned is not None:
            return backend, tuned
    found, reasons = _supporting(request, device)
    if found is None:
        raise TypeError(f"matmul: {'; '.join(reasons)}")
    return found, found.compile(request, reason="; ".join(reasons))


def _compile_tuned(request: Request, backend: Backend, device: Device) -> Compiled | None:
    """Return the kernels of the configuration measured as the fastest; None if there is none.

    It takes precedence even if the model predicts that another backend is faster.
    """
    problem = None if device.is_emulated else backend.problem(request)
    if problem is None or backend.config_type is None:
        return None
    found: tuple[Any, Winner] | None = winner(device.name, problem, backend.config_type)
    if found is None:
        return None
    config, measured = found
    try:
        return backend.compile(request, config, reason=measured.describe(device.name))
    except ValueError:  # the kernels no longer accept it
        return None


def _supporting(request: Request, device: Device) -> tuple[Backend | None, list[str]]:
    """Return the first backend that supports a product, and why the previous ones do not."""
    reasons = []
    if len(device.backends) == 1:
        reasons.append(f"no kernel of cupygemm runs on {device.name} yet")
    for backend in device.backends:
        support = backend.supports(request)
        if support:
            return backend, reasons
        if support.reason:
            reasons.append(support.reason)
    return None, reasons


def _is_fused(request: Request, device: Device) -> bool:
    """Whether a kernel applies the epilogue of a request."""
    return request.work == "product" and _supporting(request, device)[0] is not None


def _runner_of(request: Request, device: Device) -> tuple[Runner, bool]:
    """Return the runner of a request, and whether it uses only addresses."""
    if request.work != "product":
        _check_float8(request, device)
    if request.work == "empty":
        return _filling(request), False
    if request.epilogue is not None and not _is_fused(request, device):
        return applied(request, _runner_of(request.sums, device)[0]), False
    if request.work == "zeros":
        return _filling(request), False
    backend, compiled = choose(request, device)
    return backend.launch(request, compiled), compiled.by_address


def _check_float8(request: Request, device: Device) -> None:
    """Raise TypeError if a request without products has 8-bit floats that the device lacks."""
    types = request.types
    known = {FLOAT8[name] for backend in device.backends for name in backend.formats}
    if FLOAT8_DTYPES & {types.x1, types.x2, types.stored} - known:
        _, reasons = _supporting(replace(request, epilogue=None), device)
        raise TypeError(f"matmul: {'; '.join(reasons)}")


def explain_request(request: Request, device: Device) -> Explanation:
    """Return an explanation of how a request is computed, and why."""
    call, name = request.summary, device.name
    if request.work != "product":
        _check_float8(request, device)
    if request.work == "empty":
        return Explanation(call=call, device=name, backend="none", why="the result is empty")
    if request.epilogue is not None and not _is_fused(request, device):
        sums = explain_request(request.sums, device)
        what = f"{request.epilogue.summary}; of {request.types.accumulator} sums, by CuPy"
        return replace(sums, call=call, epilogue=what)
    if request.work == "zeros":
        why = "k is 0: all sums are zero"
        return Explanation(call=call, device=name, backend="none", why=why)
    _, compiled = choose(request, device)
    problem = compiled.problem
    epilogue = request.epilogue if problem is None else problem.epilogue
    return Explanation(
        call=call,
        device=name,
        backend=compiled.computed_by,
        why="; ".join((compiled.reason, *_precision_notes(request, device))),
        copies=compiled.notes,
        problem=problem,
        config=compiled.config,
        resources=None if compiled.resources is None else compiled.resources(),
        compiler=compiled.compiler,
        num_launches=compiled.num_launches,
        grid=compiled.grid,
        epilogue=None if epilogue is None else epilogue.summary,
    )


def _precision_notes(request: Request, device: Device) -> tuple[str, ...]:
    """Return the notes on a precision that has no effect."""
    asked = request.precision
    if (
        request.moduli
        or asked in ("ieee", *device.kernels.precisions)
        or request.types.operand != F32
    ):
        return ()
    return (f"{device.name} has no {asked}: float32 is multiplied exactly",)


def _filling(request: Request) -> Runner:
    """Return the runner of a call without products, whose result is empty or zero."""
    import cupy

    shape, dtype = request.shape.result, container(request.types.result)
    zeros = request.work == "zeros"

    def run(x1: Any, x2: Any, out: Any, *_epilogue: Any) -> Any:
        if out is None:
            return cupy.zeros(shape, dtype)
        if zeros:
            assign(out, cupy.zeros(shape, dtype))
        return out

    return run


def _bound_to_device(run: Runner, index: int) -> Runner:
    """Return a runner that first makes device `index` the current one, if it is not."""
    from cupy.cuda import Device as CurrentDevice
    from cupy.cuda.runtime import getDevice

    def run_there(x1: Any, x2: Any, out: Any, *epilogue: Any) -> Any:
        if getDevice() == index:
            return run(x1, x2, out, *epilogue)
        with CurrentDevice(index):
            return run(x1, x2, out, *epilogue)

    return run_there


def _extent(operand: Operand | None) -> Reach:
    return (0, 0) if operand is None else operand.extent()


def _epilogue_reads(request: Request) -> tuple[ReadArray | None, ...]:
    """Return, for each array of an epilogue, what decides whether ``out`` may overlap it."""
    out, epilogue = request.out, request.epilogue
    if out is None or epilogue is None:
        return ()
    reads: list[ReadArray | None] = []
    for name in ARRAYS:
        operand: Operand | None = getattr(epilogue, name)
        if operand is None:
            reads.append(None)
            continue
        lies = (operand.shape, operand.strides, operand.dtype)
        like_out = name == "c" and lies == (out.shape, out.strides, out.dtype)
        reads.append(ReadArray(operand.extent(), like_out))
    return tuple(reads)
