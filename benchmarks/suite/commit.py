"""The package of the commit under test, by the names of the current version.

The suite is current but the package may be that of any commit, so a module may be elsewhere. `find`
imports a name from the first of its places that exists, the newest first. A commit without the name
has no figures that need it.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

# Until b1f7459 the package had no subpackages, and module names began with an underscore.
_PLACES: dict[str, tuple[str, ...]] = {
    "ARCHS": ("_backends.cdna.arch", "_arch"),
    "CONFIGS": ("_config",),
    "GEMM_ARGS": ("_backends.cdna.launch", "_launch"),
    "GemmProblem": ("_records.problem", "_problem"),
    "Product": ("emulator.calibration.sample", "emulator.profiling.calibration.sample"),
    "Tiling": ("emulator.profiling.timing.tile_order",),
    "check": ("_backends.cdna.check", "_check", "_config"),
    "compile_kernel": ("_backends.cdna.compile", "_compile"),
    "configs_for": ("_backends.cdna.mainloops", "_mainloops", "_config"),
    "estimate": ("emulator.calibration.sample", "emulator.profiling.calibration.sample"),
    "grid": ("_backends.cdna.config", "_config"),
    "row_major": ("emulator.profiling.timing.tile_order",),
}


class MissingError(ImportError):
    """The commit lacks the name."""


def find(name: str) -> Any:
    """Return the object that has this name in the current version."""
    reasons = []
    for place in _PLACES[name]:
        try:
            return getattr(importlib.import_module(f"cupygemm.{place}"), name)
        except (ImportError, AttributeError) as error:
            reasons.append(str(error))
    raise MissingError(f"this commit has no {name}: {'; '.join(reasons)}")


def configs(dtype: str, target: str) -> tuple[Any, ...]:
    """Return the configurations for an input type; empty if the commit lacks the type."""
    try:
        return tuple(find("configs_for")(dtype, target))
    except KeyError:
        return ()
    except MissingError:  # before b9989b0, one table served both types
        return find("CONFIGS").get(target, ()) if dtype in ("bf16", "f16") else ()


def record(kind: type, **fields: Any) -> Any:
    """Return a record with those of the fields that the commit's class has."""
    known = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in fields.items() if name in known})
