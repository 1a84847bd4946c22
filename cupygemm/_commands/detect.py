"""Find which device a command should use, without importing CuPy.

The emulated device must be enabled before CuPy is imported, so CuPy cannot be asked. A GPU is
usable if its driver answers and the installed CuPy was built for it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

DEFAULT_TARGET = "gfx942"
"""The target that commands emulate by default."""
Kind = Literal["rocm", "cuda", "emulated"]


@dataclass(frozen=True)
class Finding:
    """The result of looking for one kind of device.

    Attributes
    ----------
    kind : {"rocm", "cuda", "emulated"}
    usable : bool
    reason : str
        What was found, or what is missing.
    """

    kind: Kind
    usable: bool
    reason: str


def find_devices() -> tuple[Finding, ...]:
    """Return one finding for each kind of device, the preferred kind first."""
    return _rocm(), _cuda(), _emulated()


def best_device() -> Finding:
    """Return the first usable kind of device.

    Raises
    ------
    RuntimeError
        No device is usable; the message says what each kind lacks.
    """
    findings = find_devices()
    for finding in findings:
        if finding.usable:
            return finding
    missing = "\n".join(f"  {finding.kind}: {finding.reason}" for finding in findings)
    raise RuntimeError(
        f"no device to multiply on:\n{missing}\n"
        'For the emulated device: pip install "cupygemm[emulator]"'
    )


def cupy_builds() -> tuple[str, ...]:
    """Return the names of the CuPy wheels that are installed."""
    names = (distribution.name.lower() for distribution in importlib.metadata.distributions())
    return tuple(sorted({name for name in names if name == "cupy" or name.startswith("cupy-")}))


def _rocm() -> Finding:
    if not Path("/dev/kfd").exists():
        return Finding("rocm", False, "no AMD GPU (/dev/kfd)")
    if ctypes.util.find_library("amdhip64") is None:
        return Finding("rocm", False, "an AMD GPU, but no ROCm runtime (libamdhip64)")
    return _with_cupy("rocm", "an AMD GPU and ROCm", r"cupy(-rocm-.+)?")


def _cuda() -> Finding:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Finding("cuda", False, "no NVIDIA driver (libcuda.so.1)")
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return Finding("cuda", False, "an NVIDIA driver, but no GPU that answers")
    return _with_cupy("cuda", f"{count.value} NVIDIA GPU(s)", r"cupy(-cuda.+)?")


def _emulated() -> Finding:
    found = _with_cupy("emulated", "CuPy's ROCm build", "cupy-rocm-7-0")
    if not found.usable:
        return found
    for package in ("tinygrad", "elftools", "msgpack"):
        if importlib.util.find_spec(package) is None:
            return Finding("emulated", False, f"the package {package} is not installed")
    return found


def _with_cupy(kind: Kind, what: str, pattern: str) -> Finding:
    """Return a finding that is usable if the installed CuPy was built for this kind of device."""
    builds = cupy_builds()
    for build in builds:
        if re.fullmatch(pattern, build):
            return Finding(kind, True, what if kind == "emulated" else f"{what}, {build}")
    return Finding(kind, False, f"{what}, but {', '.join(builds) or 'no CuPy'} is installed")
