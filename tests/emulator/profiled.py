"""Profile a kernel body: helpers of the tests of profiles."""

from __future__ import annotations

from typing import Any

from cupygemm.emulator import run
from cupygemm.emulator.device import Memory
from cupygemm.emulator.profiling.kernel_profile import KernelProfile
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel

POINTER = "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n"


def profiled(
    body: str,
    *,
    grid: int = 1,
    block: int = 64,
    target: str = "gfx942",
    size: int = 1 << 17,
    lds: int = 0,
    sample: int | None = None,
    registers: int = 512,
) -> KernelProfile:
    """Run a body whose buffer is in s[4:5], and return its profile."""
    memory = Memory()
    kernel = load_kernel(
        POINTER + body + "\ns_endpgm",
        memory,
        arguments=[8],
        lds=lds,
        target=target,
        registers=registers,
    )
    buffer = memory.malloc(size)
    memory.write(buffer, bytes(size))
    stats = run.launch(
        kernel,
        (grid, 1, 1),
        (block, 1, 1),
        0,
        [buffer.to_bytes(8, "little")],
        memory,
        TARGETS[target],
        profile=True,
        sample=sample,
    )
    assert stats.profile is not None
    return stats.profile


def at(profile: KernelProfile, start: str) -> list[Any]:
    """Return the instructions of a profile whose text has a prefix."""
    return [inst for inst in profile.instructions if inst.text.startswith(start)]
