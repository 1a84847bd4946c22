"""Share decoded kernels between tests that load the same code object, each into its own memory.

To decode and bind a kernel's instructions takes longer than to execute a small test's. What that
makes depends on the code and the target alone, so the emulator keeps it beside a loaded code object
for the next launch, and this module keeps it for the next test.
"""

from __future__ import annotations

import functools
from typing import Any

from cupygemm.emulator.allocations import Memory
from cupygemm.emulator.code_object import CodeObject, load


def load_shared(data: bytes, memory: Memory, target: str) -> CodeObject:
    """Place a code object in memory; its instructions may be decoded already."""
    code = load(data, memory, target)
    code.programs = _programs(code.image, target)
    return code


@functools.lru_cache(maxsize=8)  # as many as the variants of a file of tests/hip
def _programs(image: bytes, target: str) -> dict[str, Any]:
    """Return what has been decoded of an image, which includes its relocated addresses."""
    return {}
