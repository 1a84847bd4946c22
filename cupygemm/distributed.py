"""Products on several devices and machines.

`cupygemm.matmul`, `cupygemm.tensordot` and `cupygemm.einsum` take Dask arrays whose chunks are CuPy
arrays, and return Dask arrays. `Warmup` prepares the workers of a Dask cluster for them. Both need
the packages of ``pip install "cupygemm[dask]"``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cupygemm._distributed.worker import Warmup

__all__ = ["Warmup"]


def __getattr__(name: str) -> Any:
    """Import what needs Dask when it is asked for."""
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
