"""The contenders on one rank: this library, NCCL before or after a product, and torch's own.

All contenders use the same arrays. Operands and results are bfloat16, and so is the data that is
sent, except where the name says float32.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import cupygemm
from benchmarks.models.peers import tensor_of
from benchmarks.several_gpus.cases import GATHER, Case
from cupygemm import distributed as cd

BF16 = np.dtype(ml_dtypes.bfloat16)
Call = Callable[[], Any]


@dataclass(frozen=True, kw_only=True)
class Rank:
    """A rank of the benchmark.

    Attributes
    ----------
    rank, size : int
    communicator : cupy.cuda.nccl.NcclCommunicator
    groups : mapping of str to cupygemm.distributed.Group
        The groups by their exchange.
    torch_group : str or None
        The name of torch's process group; None without torch.
    """

    rank: int
    size: int
    communicator: Any
    groups: Mapping[str, cd.Group]
    torch_group: str | None


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """The blocks of a rank, its result, and a buffer for NCCL to gather or scatter."""

    a: Any
    b: Any
    out: Any
    room: Any


def arrays_of(case: Case, rank: Rank, whole: tuple[Any, Any]) -> Arrays:
    """Return the arrays of a rank, sliced from the operands of all ranks."""
    import cupy as cp

    in_a, in_b = case.blocks(rank.rank, rank.size)
    a, b = cp.ascontiguousarray(whole[0][in_a]), cp.ascontiguousarray(whole[1][in_b])
    room = (case.m, case.k if case.function == GATHER else case.n)
    return Arrays(a=a, b=b, out=cp.empty(case.result(rank.size), BF16), room=cp.empty(room, BF16))


def contenders(case: Case, rank: Rank, arrays: Arrays) -> dict[str, Call]:
    """Return the calls of all contenders; each fills ``arrays.out`` or returns a tensor."""
    return dict(_all(case, rank, arrays))


def _all(case: Case, rank: Rank, arrays: Arrays) -> Iterator[tuple[str, Call]]:
    gathers = case.function == GATHER
    ours = functools.partial(getattr(cd, case.function), arrays.a, arrays.b, arrays.out)
    for exchange, group in rank.groups.items():
        if gathers:
            yield f"cupygemm, {exchange}", functools.partial(ours, group=group)
            continue
        for travelling in (None, "float32"):
            name = f"cupygemm, {exchange}" + (", float32 parts" if travelling else "")
            yield name, functools.partial(ours, group=group, partial_dtype=travelling)
    steps = _gather_then if gathers else _then_scatter
    yield "NCCL and cupygemm", steps(rank, arrays, _product)
    if rank.torch_group is not None:
        yield "NCCL and cuBLAS", steps(rank, arrays, _torch_product)
        fused = _torch_fused_gather if gathers else _torch_fused_scatter
        yield "torch fused", fused(rank, arrays)


def _product(a: Any, b: Any, out: Any) -> None:
    cupygemm.matmul(a, b, out=out)


def _torch_product(a: Any, b: Any, out: Any) -> None:
    import torch

    torch.mm(tensor_of(a), tensor_of(b), out=tensor_of(out))


def _gather_then(rank: Rank, arrays: Arrays, product: Callable[[Any, Any, Any], None]) -> Call:
    """Return a call that gathers by NCCL and then multiplies."""
    from cupy.cuda import nccl

    def run() -> None:
        source, target = arrays.a.data.ptr, arrays.room.data.ptr
        rank.communicator.allGather(
            source, target, arrays.a.nbytes, nccl.NCCL_UINT8, _stream_pointer()
        )
        product(arrays.room, arrays.b, arrays.out)

    return run


def _then_scatter(rank: Rank, arrays: Arrays, product: Callable[[Any, Any, Any], None]) -> Call:
    """Return a call that multiplies and then sums and scatters by NCCL."""
    from cupy.cuda import nccl

    def run() -> None:
        product(arrays.a, arrays.b, arrays.room)
        rank.communicator.reduceScatter(
            arrays.room.data.ptr,
            arrays.out.data.ptr,
            arrays.out.size,
            nccl.NCCL_BFLOAT16,
            nccl.NCCL_SUM,
            _stream_pointer(),
        )

    return run


def _torch_fused_gather(rank: Rank, arrays: Arrays) -> Call:
    import torch

    a, b = tensor_of(arrays.a), tensor_of(arrays.b)

    def run() -> Any:
        _, (product,) = torch.ops.symm_mem.fused_all_gather_matmul(a, [b], 0, rank.torch_group)
        return product

    return run


def _torch_fused_scatter(rank: Rank, arrays: Arrays) -> Call:
    import torch

    a, b = tensor_of(arrays.a), tensor_of(arrays.b)
    return lambda: torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b, "sum", 0, rank.torch_group)


def _stream_pointer() -> int:
    from cupy.cuda import get_current_stream

    return int(get_current_stream().ptr)


@contextlib.contextmanager
def one_stream(*, with_torch: bool) -> Iterator[Any]:
    """Make one stream the current one of CuPy, and of torch."""
    import cupy as cp

    stream = cp.cuda.Stream(non_blocking=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(stream)
        if with_torch:
            import torch

            stack.enter_context(torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)))
        yield stream
