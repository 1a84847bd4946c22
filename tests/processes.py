"""Groups of processes for tests: one process for each rank, which meet at a port of this host."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT, Device


class Ended(NamedTuple):
    """The exit status and the output of a process."""

    returncode: int
    output: str


def devices_of(device: Device, count: int) -> str | None:
    """Return the value of ``CUPYGEMM_EMULATE`` for a number of devices; None for GPUs.

    The test is skipped on a machine with fewer GPUs.
    """
    if device.emulated:
        return f"{device.target}:{count}"
    import cupy

    found = cupy.cuda.runtime.getDeviceCount()
    if found < count:
        pytest.skip(f"{found} of {count} GPUs")
    return None


def run_ranks(code: str, count: int, target: str | None, folder: Path) -> list[Ended]:
    """Run a program once for each rank, and return the outcomes of the processes, by rank.

    Parameters
    ----------
    code : str
        The program. Its arguments are the rank, the number of ranks, and a free port.
    count : int
    target : str or None
        From `devices_of`.
    folder : Path
        The folder for the outputs.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | ({} if target is None else {"CUPYGEMM_EMULATE": target})
    ranks, files = [], [folder / f"rank{rank}" for rank in range(count)]
    try:
        for rank, file in enumerate(files):
            with file.open("w") as output:
                ranks.append(
                    subprocess.Popen(
                        [sys.executable, "-c", code, str(rank), str(count), str(port)],
                        env=environment,
                        cwd=ROOT,
                        stdout=output,
                        stderr=output,
                        start_new_session=True,
                    )
                )
        for process in ranks:
            process.wait(timeout=600)
    finally:
        for process in ranks:  # and the processes of CuPy's store
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return [
        Ended(process.returncode, file.read_text())
        for process, file in zip(ranks, files, strict=True)
    ]
