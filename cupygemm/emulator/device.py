"""The emulated device: its memory, modules, streams, events and launches, tied together."""

from __future__ import annotations

from cupygemm.emulator.allocations import Extent, Memory, OutOfMemory

__all__ = ["Extent", "Memory", "OutOfMemory"]
