"""Serialize CuPy arrays that are sent between the processes of a Dask cluster.

Distributed's own serializer for CuPy arrays needs Numba or RMM, and so an NVIDIA GPU. Where neither
is installed, arrays are sent through host memory.
"""

from __future__ import annotations

import importlib
from typing import Any


def register_serializer() -> None:
    """Enable Distributed, if it is installed, to send CuPy arrays if it cannot do so itself."""
    try:
        serialize = importlib.import_module("distributed.protocol.serialize")
    except ImportError:  # Dask's local schedulers send nothing
        return
    try:
        importlib.import_module("distributed.protocol.cupy")
    except ImportError:
        import cupy

        serialize.dask_serialize.register(cupy.ndarray)(_serialized)
        serialize.dask_deserialize.register(cupy.ndarray)(_deserialized)


def _serialized(array: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the header and the frames of an array, copied to the host in its memory order."""
    import cupy
    from distributed.protocol.numpy import serialize_numpy_ndarray

    header, frames = serialize_numpy_ndarray(cupy.asnumpy(array, order="A"))
    return {"host": header}, frames


def _deserialized(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return an array on the current device, from its header and frames."""
    import cupy
    from distributed.protocol.numpy import deserialize_numpy_ndarray

    return cupy.asarray(deserialize_numpy_ndarray(header["host"], frames))
