"""How many workgroups of a launch a compute unit has room for, on Hopper's GPUs."""

from __future__ import annotations

from cupygemm._backends.kernel_kind import Launch

SHARED_BYTES, REGISTERS, THREADS = 228 << 10, 1 << 16, 2048
"""Of an SM."""
_BYTES_OF_SYSTEM = 1 << 10
"""Of shared memory, which the system takes for each thread block."""
_UNIT_OF_REGISTERS = 8


def taken(registers: int, threads: int, shared_bytes: int) -> tuple[int, int]:
    """Return the registers and the shared memory that a thread block takes of an SM."""
    of_thread = -(-registers // _UNIT_OF_REGISTERS) * _UNIT_OF_REGISTERS
    return of_thread * threads, shared_bytes + _BYTES_OF_SYSTEM


def resident(launch: Launch) -> int:
    """Return the workgroups of a launch that are resident on a compute unit, alone there."""
    registers, shared_bytes = launch.function.resources()
    of_registers, of_shared = taken(registers, launch.threads, shared_bytes)
    return min(REGISTERS // of_registers, SHARED_BYTES // of_shared, THREADS // launch.threads)
