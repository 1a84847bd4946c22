"""The stand-ins for all libraries that CuPy's wheel binds, connected to the devices."""

from __future__ import annotations

from cupygemm.emulator.host_libraries.blas import HipBlas
from cupygemm.emulator.host_libraries.build import connect
from cupygemm.emulator.host_libraries.fft import HipFft
from cupygemm.emulator.host_libraries.library import HostLibrary
from cupygemm.emulator.host_libraries.rand import HipRand
from cupygemm.emulator.host_libraries.rccl import Rccl
from cupygemm.emulator.host_libraries.solver import RocBlas, RocSolver
from cupygemm.emulator.host_libraries.sparse import HipSparse
from cupygemm.emulator.peers import Devices

LIBRARIES: tuple[type[HostLibrary], ...] = (
    HipBlas,
    RocBlas,
    RocSolver,
    HipFft,
    HipRand,
    HipSparse,
    Rccl,
)


def connect_all(devices: Devices) -> dict[str, HostLibrary]:
    """Build, load and connect the libraries.

    Parameters
    ----------
    devices : Devices

    Returns
    -------
    dict of str to HostLibrary
        By stem.
    """
    libraries = {library.stem: library(devices) for library in LIBRARIES}
    handles = libraries["rocblas"], libraries["rocsolver"]
    assert isinstance(handles[0], RocBlas)
    assert isinstance(handles[1], RocSolver)
    handles[1].handles = handles[0].handles
    for library in libraries.values():
        connect(library)
    return libraries
