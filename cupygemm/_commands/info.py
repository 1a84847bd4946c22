"""Collect what ``python -m cupygemm info`` prints: versions, devices, compilers and the cache.

No device is started: this module looks at files, packages and drivers only.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from typing import Any

from cupygemm import emulator
from cupygemm._build import cache as _cache
from cupygemm._build import toolchain as _toolchain
from cupygemm._commands import detect as _detect
from cupygemm._plan import winners as _tuned
from cupygemm._version import __version__

PACKAGES = ("numpy", "ml_dtypes", "ziglang", "tinygrad", "pyelftools", "msgpack")


def collect() -> dict[str, Any]:
    """Return all facts as strings, numbers and lists, ready for JSON."""
    return {
        "versions": _versions(),
        "devices": [
            {"kind": finding.kind, "usable": finding.usable, "what": finding.reason}
            for finding in _detect.find_devices()
        ],
        "emulator": _emulator(),
        "compilers": _compilers(),
        "cache": _cache_use(),
    }


def _versions() -> dict[str, str]:
    versions = {"cupygemm": __version__, "Python": platform.python_version()}
    for name in (*_detect.cupy_builds(), *PACKAGES):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def _emulator() -> dict[str, Any]:
    return {
        "enabled": emulator.target(),
        "CUPYGEMM_EMULATE": os.environ.get("CUPYGEMM_EMULATE"),
        "default": _detect.DEFAULT_TARGET,
    }


def _compilers() -> list[dict[str, Any]]:
    """Return the compilers for code objects in the order of preference; one is marked as used."""
    try:
        chosen = _toolchain.find_toolchain().name
    except _toolchain.ToolchainError:
        chosen = None
    found = []
    names: tuple[_toolchain.ToolchainName, ...] = ("rocm", "clang", "zig")
    for name in names:
        entry: dict[str, Any] = {"name": name, "used": name == chosen}
        try:
            toolchain = _toolchain.find_toolchain(name)
            entry |= {"version": toolchain.version, "path": str(toolchain.path)}
        except _toolchain.ToolchainError as err:
            entry["missing"] = str(err).partition(", but ")[2]
        found.append(entry)
    return found


def _cache_use() -> dict[str, Any]:
    folder = _cache.cache_dir()
    sizes = []
    # Other processes may replace files and remove their build directories at the same time.
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                sizes.append(os.stat(os.path.join(path, name)).st_size)  # noqa: PTH116, PTH118
    return {
        "directory": str(folder),
        "files": len(sizes),
        "bytes": sum(sizes),
        "tuned": _tuned.count_winners(),
    }
