"""Products on several devices and machines.

Processes with one device each compute products together. `connect` makes a `Group` from their
communicator, which may belong to NCCL, RCCL, `cupyx.distributed` or mpi4py. `all_gather_matmul`,
`matmul_reduce_scatter`, `matmul_all_reduce`, and `matmul` of operands in given layouts overlap
communication with the product.

`cupygemm.matmul` takes distributed arrays of `cupyx`, on several devices of one process. With
`cupygemm.tensordot` and `cupygemm.einsum`, it also takes Dask arrays whose chunks are CuPy arrays,
and returns Dask arrays. `Warmup` prepares the workers of a Dask cluster for them. Functions for
Dask need the packages of ``pip install "cupygemm[dask]"``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cupygemm._distributed.all_gather import all_gather_matmul
from cupygemm._distributed.connect import connect
from cupygemm._distributed.group import Group
from cupygemm._distributed.reductions import matmul_all_reduce, matmul_reduce_scatter
from cupygemm._distributed.rendezvous import GroupError
from cupygemm._distributed.sharded import matmul

if TYPE_CHECKING:
    from cupygemm._distributed.worker import Warmup

__all__ = [
    "Group",
    "GroupError",
    "Warmup",
    "all_gather_matmul",
    "connect",
    "matmul",
    "matmul_all_reduce",
    "matmul_reduce_scatter",
]


def __getattr__(name: str) -> Any:
    """Import the functions that need Dask on first use."""
    if name != "Warmup":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from cupygemm._distributed.worker import Warmup
    except ModuleNotFoundError as err:
        raise ImportError(
            f"cupygemm.distributed.Warmup needs the package {err.name}; "
            'install it with: pip install "cupygemm[dask]"'
        ) from err
    return Warmup


def __dir__() -> list[str]:
    return __all__
