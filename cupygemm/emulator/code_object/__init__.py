"""Code objects: their files, kernels and source lines, and the variables that they declare."""

from __future__ import annotations

from cupygemm.emulator.code_object.loading import (
    Argument,
    CodeObject,
    Descriptor,
    InvalidCodeObject,
    Kernel,
    load,
    read_resources,
    target_of,
    unbundle,
)

__all__ = [
    "Argument",
    "CodeObject",
    "Descriptor",
    "InvalidCodeObject",
    "Kernel",
    "load",
    "read_resources",
    "target_of",
    "unbundle",
]
