"""`cupygemm.matmul` of `cupyx.distributed.array.DistributedArray`: several devices in one process.

The operands' chunks may be on any devices. As for processes, a plan (`sharded_plan`) says which
blocks each device multiplies. One thread enqueues everything: devices copy the blocks that others
lack on separate streams, panel by panel, and multiply on their current streams. Events order the
two.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from numpy.typing import DTypeLike

from cupygemm._backends.device import device
from cupygemm._distributed.arguments import checked_call
from cupygemm._distributed.layouts import Region
from cupygemm._distributed.sharded_plan import Move, Piece, ShardedPlan, make_plan
from cupygemm._distributed.sharded_work import Work
from cupygemm._distributed.sums import type_of_sums
from cupygemm._records.formats import container
from cupygemm._records.shapes import ProductShape, product_shape
from cupygemm._request.arrays import as_array, type_of
from cupygemm._request.epilogue import ARRAYS, as_result_shape

_REFUSED = {
    "out": "assign the result",
    "axes": "pass matrices",
    "order": "its chunks are C-contiguous",
    "stream": "each device computes on its current stream",
}


def matmul(
    x1: Any,
    x2: Any,
    out: Any = None,
    *,
    dtype: DTypeLike | None = None,
    casting: str = "same_kind",
    **options: Any,
) -> Any:
    """Return ``cupygemm.matmul(x1, x2, ...)`` of distributed arrays, as a distributed array."""
    from cupy.cuda import Device
    from cupyx.distributed.array import REPLICA, DistributedArray

    for name, remedy in _REFUSED.items():
        value = out if name == "out" else options.pop(name, None)
        if value is not None and not (name == "order" and value == "K"):
            raise TypeError(f"matmul of distributed arrays takes no {name}: {remedy}")
    operands = {"x1": x1, "x2": x2}
    for name, array in operands.items():
        _check_operand(name, array)
    devices = sorted({index for x in operands.values() for index in x.devices})
    replicas = [x.change_mode(REPLICA) for x in operands.values()]
    chunks = [_chunks(name, x) for name, x in zip(operands, replicas, strict=True)]
    shape = product_shape(x1.shape, x2.shape)
    with Device(devices[0]):
        stand_ins = _stand_ins(x1, x2)
        whole: dict[str, Any] = {
            name: value for name, value in options.items() if name not in ARRAYS
        }
        arrays = _epilogue_arrays(options, shape)
        ones = {name: _ones(array) for name, array in arrays.items()}
        whole |= {name: options[name] for name in options if name in ARRAYS and name not in ones}
        call = checked_call(*stand_ins, None, dtype=dtype, casting=casting, options=whole | ones)
    types = call.request.types
    sums = type_of_sums(types, epilogue=call.arguments is not None)
    a, b = ([Piece(devices.index(c.device), c.region, c.number) for c in own] for own in chunks)
    plan = make_plan(
        a,
        b,
        None,
        size=len(devices),
        itemsize=x1.dtype.itemsize,
        sum_itemsize=sums.itemsize,
        link=device(devices[0]).kernels.interconnect,
    )
    result = container(types.result)

    def work_of(rank: int, region: Region) -> Work:
        with Device(devices[rank]):
            return Work(
                plan,
                rank,
                (x1.dtype, x2.dtype, sums),
                _empty(region.shape, result),
                dtype=dtype,
                casting=casting,
                options=whole | _on_device(arrays, region),
            )

    works = [work_of(rank, region) for rank, region in enumerate(plan.owned)]
    by_number = [{(devices.index(c.device), c.number): c for c in own} for own in chunks]
    _Run(plan, works, devices, by_number).enqueue()
    results = {
        index: _result_chunks(work.out, region)
        for index, work, region in zip(devices, works, plan.owned, strict=True)
    }
    comms = replicas[0]._comms  # noqa: SLF001  # as CuPy's own functions do
    return DistributedArray(shape.result, result, results, REPLICA, comms)


def _refuse_others(*_: Any, **__: Any) -> NoReturn:
    raise TypeError("only matmul takes distributed arrays of cupyx, and they must be matrices")


tensordot = einsum = _refuse_others


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A chunk of a distributed array.

    Attributes
    ----------
    device : int
        The device that holds it.
    number : int
        Its index among the device's chunks.
    region : Region
        Its place in the array.
    array : cupy.ndarray
        Its contents.
    ready : cupy.cuda.Event
        The contents are complete when this event has been reached.
    """

    device: int
    number: int
    region: Region
    array: Any
    ready: Any


class _Run:
    """Enqueues one product.

    Parameters
    ----------
    plan : ShardedPlan
    works : sequence of Work
        By rank.
    devices : sequence of int
        By rank.
    chunks : sequence of mapping
        Of x1 and x2, by rank and number.
    """

    def __init__(
        self,
        plan: ShardedPlan,
        works: Sequence[Work],
        devices: Sequence[int],
        chunks: Sequence[Mapping[tuple[int, int], Chunk]],
    ) -> None:
        from cupy.cuda import get_current_stream

        self.plan, self.works, self.devices, self.chunks = plan, works, devices, chunks
        self.streams = [get_current_stream(index) for index in devices]
        self.copies = [copy_stream(index) for index in devices]

    def enqueue(self) -> None:
        """Enqueue the copies and the products on all devices."""
        self._order_copies()
        for chunk in itertools.chain(*(own.values() for own in self.chunks)):
            self.copies[self.devices.index(chunk.device)].wait_event(chunk.ready)
        panels = list(zip(self.plan.a_moves, self.plan.b_moves, strict=True))
        for panel, moves in enumerate(panels):
            arrived = []
            for name, chunks, own in zip("ab", self.chunks, moves, strict=True):
                for move in own:
                    chunk = chunks[move.source.rank, move.source.number]
                    source = chunk.array[move.region.within(chunk.region)]
                    target = self.works[move.target].target(name, panel, move)
                    arrived.append(self._copy(move, source, target))
            self._place(arrived)
            self._on_each(lambda work, panel=panel: work.multiply(panel))
        if self.plan.sums:
            self._order_copies()
            self._place(
                [
                    self._copy(
                        move,
                        self.works[move.source.rank].part_source(move),
                        self.works[move.target].part_target(move),
                    )
                    for move in self.plan.sums
                ]
            )
        self._on_each(Work.finish)
        for rank, copies in enumerate(self.copies):  # the caller may write to the operands
            self._wait(rank, record(copies, self.devices[rank]))

    def _wait(self, rank: int, event: Any) -> None:
        """Make the current stream of a device wait; the default stream is that of the device."""
        from cupy.cuda import Device

        with Device(self.devices[rank]):
            self.streams[rank].wait_event(event)

    def _on_each(self, do: Any) -> None:
        from cupy.cuda import Device

        for index, work in zip(self.devices, self.works, strict=True):
            with Device(index):
                do(work)

    def _order_copies(self) -> None:
        """Make all copies wait for the devices' work so far, which fills and frees buffers."""
        for stream, index in zip(self.streams, self.devices, strict=True):
            event = record(stream, index)
            for copies in self.copies:
                copies.wait_event(event)

    def _copy(self, move: Move, source: Any, target: Any) -> tuple[Move, Any, Any, Any]:
        """Enqueue a copy on the device that has the data.

        Returns
        -------
        tuple
            The move, an event at the end, the target, and the copy to place there; None if it is in
            place.
        """
        import cupy
        from cupy.cuda import Device

        own, peer = move.source.rank, move.target
        placed = target
        if not target.flags.c_contiguous:
            with Device(self.devices[peer]):
                placed = cupy.empty(target.shape, target.dtype)
            self.copies[own].wait_event(record(self.streams[peer], self.devices[peer]))
        with Device(self.devices[own]), self.copies[own] as stream:
            source = cupy.ascontiguousarray(source)
            placed.data.copy_from_device_async(source.data, source.nbytes, stream)
            return move, stream.record(), target, None if placed is target else placed

    def _place(self, arrived: Sequence[tuple[Move, Any, Any, Any]]) -> None:
        """Make the devices wait for copies, and move the copied data into place."""
        from cupy.cuda import Device

        for move, event, target, copy in arrived:
            self._wait(move.target, event)
            if copy is not None:
                with Device(self.devices[move.target]):
                    target[...] = copy


def record(stream: Any, index: int) -> Any:
    """Return an event recorded on a device's stream; the default stream is that of the device."""
    from cupy.cuda import Device

    with Device(index):
        return stream.record()


@functools.cache
def copy_stream(index: int) -> Any:
    """Return the stream on which a device copies to others."""
    from cupy.cuda import Device, Stream

    with Device(index):
        return Stream(non_blocking=True)


# -- arguments and results -------------------------------------------------------------------------


def _check_operand(name: str, array: Any) -> None:
    from cupyx.distributed.array import DistributedArray

    if not isinstance(array, DistributedArray):
        raise TypeError(
            f"matmul: {name} is {type_of(array)}, next to a distributed array; make one of it with "
            "cupyx.distributed.array.distributed_array"
        )
    if array.ndim != 2:
        raise ValueError(
            f"matmul: {name} has shape {array.shape}; distributed arrays are multiplied as "
            "matrices, so it needs two axes"
        )


def _chunks(name: str, array: Any) -> list[Chunk]:
    """Return the chunks of a distributed array, with all updates applied."""
    array.all_chunks()
    found = []
    for index, chunks in array._chunks_map.items():  # noqa: SLF001  # only chunks have the events
        for number, chunk in enumerate(chunks):
            ranges = [s.indices(extent) for s, extent in zip(chunk.index, array.shape, strict=True)]
            if any(step != 1 for _, _, step in ranges):
                raise ValueError(
                    f"matmul: {name} has the chunk {chunk.index}; chunks must have no steps"
                )
            region = Region(*((start, stop) for start, stop, _ in ranges))
            found.append(
                Chunk(
                    device=index, number=number, region=region, array=chunk.array, ready=chunk.ready
                )
            )
    if not found:
        raise ValueError(f"matmul: {name} has no chunks")
    return found


def _stand_ins(x1: Any, x2: Any) -> tuple[Any, Any]:
    """Return arrays with the shapes and types of the operands, but almost no memory."""
    import cupy
    from cupy.lib.stride_tricks import as_strided

    a, b = (as_strided(cupy.empty(1, x.dtype), x.shape, (0, 0)) for x in (x1, x2))
    return a, b


def _ones(array: Any) -> Any:
    """Return a broadcast array of a shape and type on the current device, with one element."""
    import cupy
    from cupy.lib.stride_tricks import as_strided

    return as_strided(cupy.empty(1, array.dtype), array.shape, (0,) * array.ndim)


def _epilogue_arrays(options: Mapping[str, Any], shape: ProductShape) -> dict[str, Any]:
    """Return the arrays of the epilogue as matrices that broadcast to the result."""
    arrays = {}
    for name in ARRAYS:
        value = options.get(name)
        if value is not None and getattr(value, "ndim", None):
            array = as_array("matmul", name, value)
            whole = as_result_shape(name, array.shape, shape)
            if whole is None:
                raise ValueError(
                    f"matmul: {name} has shape {array.shape}, which does not broadcast to the "
                    f"result's, {shape.result}"
                )
            arrays[name] = array.reshape(whole)
    return arrays


def _on_device(arrays: Mapping[str, Any], region: Region) -> dict[str, Any]:
    """Return, on the current device, the parts of arrays that a block of the result needs."""
    from cupy.cuda import get_current_stream

    found = {}
    for name, array in arrays.items():
        axes = zip(array.shape, region, strict=True)
        part = array[tuple(slice(None) if e == 1 else slice(*ends) for e, ends in axes)]
        index = array.device.id
        get_current_stream().wait_event(record(get_current_stream(index), index))
        found[name] = part.copy()
    return found


def _empty(shape: tuple[int, int], dtype: Any) -> Any:
    import cupy

    return cupy.empty(shape, dtype)


def _result_chunks(array: Any, region: Region) -> list[Any]:
    """Return the chunks of a device: its block of the result, or an empty list."""
    from cupy.cuda import get_current_stream
    from cupyx.distributed.array._chunk import _Chunk

    if not region.size:
        return []
    ready = record(get_current_stream(array.device.id), array.device.id)
    return [_Chunk(array, ready, tuple(slice(*ends) for ends in region))]
