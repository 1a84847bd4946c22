"""Code objects: their files, kernels and source lines, and the variables that they declare."""

from __future__ import annotations

from cupygemm.emulator.code_object.elf import InvalidCodeObject, unbundle
from cupygemm.emulator.code_object.loading import (
    Argument,
    CodeObject,
    Descriptor,
    Kernel,
    load,
    read_resources,
    target_of,
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
