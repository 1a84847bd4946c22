"""A rank of `benchmarks.several_gpus`, which meets the others, checks results and times calls.

The ranks are processes with one GPU each. A time is the mean over consecutive calls, between two
events of the rank's stream; the slowest rank's counts. Contenders take turns, and the median over
the rounds is the result. Every result is compared with the product of the whole operands on one
GPU.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import cupygemm
from benchmarks.models.peers import tensor_of
from benchmarks.several_gpus.cases import GATHER, Case
from benchmarks.several_gpus.contenders import (
    BF16,
    Arrays,
    Call,
    Rank,
    arrays_of,
    contenders,
    one_stream,
)
from cupygemm import distributed as cd

BATCH_SECONDS, LEAST_CALLS, MOST_CALLS = 0.02, 4, 50
QUEUED_CALLS = 8  # number of calls that streams queue without making the host wait
TOLERANCE = 0.02  # relative to the largest element; the parts of a sum are rounded to bfloat16

Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """Objects that the processes of all ranks share.

    Attributes
    ----------
    unique_id : tuple of int
        The identifier of NCCL's communicator.
    port : int
        For torch's store.
    barrier : multiprocessing.Barrier
    times : multiprocessing.Array
        A number for each rank.
    results : multiprocessing.Queue
        Receives the records of rank 0, and then None.
    """

    unique_id: Any
    port: int
    barrier: Any
    times: Any
    results: Any

    def slowest(self, rank: int, seconds: float) -> float:
        """Return the largest number of all ranks."""
        self.times[rank] = seconds
        self.barrier.wait()
        found = max(self.times[:])
        self.barrier.wait()
        return found


def run(
    rank: int,
    size: int,
    meeting: Meeting,
    cases: Sequence[Case],
    exchanges: Sequence[cd.Exchange],
    rounds: int,
    *,
    with_torch: bool,
) -> None:
    """Measure all cases; rank 0 puts a record of each into the queue."""
    import cupy as cp
    from cupy.cuda import nccl

    try:
        cp.cuda.Device(rank).use()
        torch_group = _torch_group(rank, size, meeting.port) if with_torch else None
        communicator = nccl.NcclCommunicator(size, meeting.unique_id, rank)
        groups = {each: cd.connect(communicator, exchange=each) for each in exchanges}
        place = Rank(
            rank=rank, size=size, communicator=communicator, groups=groups, torch_group=torch_group
        )
        with one_stream(with_torch=torch_group is not None) as stream:
            for case in cases:
                record = _measured(case, place, meeting, rounds, stream)
                if rank == 0:
                    meeting.results.put(record)
    except BaseException as err:
        meeting.barrier.abort()
        meeting.results.put({"fault": f"rank {rank}: {type(err).__name__}: {err}"})
        raise
    if rank == 0:
        meeting.results.put(None)


def _torch_group(rank: int, size: int, port: int) -> str | None:
    """Return the name of torch's process group, or None if torch cannot make one."""
    try:
        import torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory  # the import registers the fused operations
    except ImportError:
        return None
    torch.cuda.set_device(rank)
    os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    dist.init_process_group(
        "nccl",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=size,
        device_id=torch.device("cuda", rank),
    )
    return str(dist.group.WORLD.group_name)


def _measured(case: Case, rank: Rank, meeting: Meeting, rounds: int, stream: Any) -> Record:
    whole = tuple(_random(shape, seed) for seed, shape in enumerate(_operands(case)))
    arrays = arrays_of(case, rank, whole)
    reference = _reference(case, rank, whole, arrays)
    calls = contenders(case, rank, arrays)
    errors, failed, bits = {}, {}, []
    for name, call in tuple(calls.items()):
        arrays.out.fill(np.nan)
        try:
            found = call()
            found = arrays.out if found is None or type(found) is type(arrays.out) else found
            errors[name] = _error(found, reference)
            if case.function == GATHER and name.startswith("cupygemm"):
                bits.append(bool((found.view(np.int16) == reference.view(np.int16)).all()))
        except (RuntimeError, AttributeError) as err:  # torch's own may lack a mode
            failed[name] = f"{type(err).__name__}: {err}"
            del calls[name]
    wrong = {name: error for name, error in errors.items() if not error <= TOLERANCE}
    if wrong:
        raise ValueError(f"{case.function} {case.shape}: wrong results, relative errors {wrong}")
    alone = _alone(whole, with_torch=rank.torch_group is not None)
    times = _times({**alone, **calls}, rank.rank, meeting, rounds, stream)
    for name in alone:
        times[f"ideal, {name}"] = times.pop(name) / rank.size
    return {
        **case._asdict(),
        "ranks": rank.size,
        "seconds": times,
        "host_seconds": _host_times(calls, rank.rank, meeting, rounds, stream),
        "errors": errors,
        "failed": failed,
        "bits_of_one_gpu": all(bits) if bits else None,
    }


def _alone(whole: Sequence[Any], *, with_torch: bool) -> dict[str, Call]:
    """Return the calls that compute the whole product on one GPU, which every rank makes alone."""
    import cupy as cp

    a, b = whole
    out = cp.empty((a.shape[0], b.shape[1]), BF16)
    calls: dict[str, Call] = {"cupygemm": lambda: cupygemm.matmul(a, b, out=out)}
    if with_torch:
        import torch

        x, y, z = map(tensor_of, (a, b, out))
        calls["cuBLAS"] = lambda: torch.mm(x, y, out=z)
    return calls


def _times(
    calls: dict[str, Call], rank: int, meeting: Meeting, rounds: int, stream: Any
) -> dict[str, float]:
    """Return the seconds of each call, medians over rounds in which the calls take turns."""
    counts, turns = {}, {name: [] for name in calls}
    for name, call in calls.items():
        for _ in range(3):
            call()
        once = _seconds(call, LEAST_CALLS, rank, meeting, stream)
        counts[name] = max(LEAST_CALLS, min(MOST_CALLS, round(BATCH_SECONDS / once)))
    for _ in range(rounds):
        for name, call in calls.items():
            turns[name].append(_seconds(call, counts[name], rank, meeting, stream))
    return {name: statistics.median(times) for name, times in turns.items()}


def _seconds(
    call: Callable[[], Any], count: int, rank: int, meeting: Meeting, stream: Any
) -> float:
    """Return the seconds of a call on the slowest rank, the mean over `count` calls."""
    from cupy.cuda import Event, get_elapsed_time

    start, end = Event(), Event()
    stream.synchronize()
    meeting.barrier.wait()
    start.record(stream)
    for _ in range(count):
        call()
    end.record(stream)
    end.synchronize()
    return meeting.slowest(rank, get_elapsed_time(start, end) / 1000 / count)


def _host_times(
    calls: dict[str, Call], rank: int, meeting: Meeting, rounds: int, stream: Any
) -> dict[str, float]:
    """Return the seconds that the slowest rank's host takes to enqueue each call, as medians."""
    turns: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            stream.synchronize()
            meeting.barrier.wait()
            start = time.perf_counter()
            for _ in range(QUEUED_CALLS):
                call()
            each = (time.perf_counter() - start) / QUEUED_CALLS
            turns[name].append(meeting.slowest(rank, each))
    stream.synchronize()
    return {name: statistics.median(times) for name, times in turns.items()}


def _operands(case: Case) -> tuple[tuple[int, int], tuple[int, int]]:
    return (case.m, case.k), (case.k, case.n)


def _random(shape: tuple[int, int], seed: int) -> Any:
    """Return the same numbers on all ranks, uniform in [-0.5, 0.5)."""
    import cupy as cp

    generator = cp.random.RandomState(seed)
    array, rows = cp.empty(shape, BF16), max(1, (1 << 26) // shape[1])
    for first in range(0, shape[0], rows):  # free the wide numbers soon
        part = array[first : first + rows]
        part[...] = generator.uniform(-0.5, 0.5, part.shape, dtype=np.float32).astype(BF16)
    return array


def _reference(case: Case, rank: Rank, whole: Sequence[Any], arrays: Arrays) -> Any:
    """Return this rank's part of the whole product, from one GPU."""
    a, b = whole
    if case.function == GATHER:
        return cupygemm.matmul(a, arrays.b)
    rows = case.result(rank.size)[0]
    return cupygemm.matmul(a[rank.rank * rows :][:rows], b)


def _error(found: Any, reference: Any) -> float:
    """Return the largest difference, relative to the largest element."""
    import cupy as cp

    if not isinstance(found, cp.ndarray):  # a tensor
        found = cp.asarray(found.float())
    wide = reference.astype(np.float32)
    return float(cp.abs(found.astype(np.float32) - wide).max() / cp.abs(wide).max())
