"""Helpers of the instruction tests: build a small `State`, assemble instructions, run them.

    state = make_state(waves=2, lds_bytes=1024)
    state.vgpr[1, :, :] = 4 * lanes
    run(state, assemble("ds_read_b32 v0, v1 offset:16"))

`assemble` uses the package's own toolchain and caches the result on disk. Tests of many
instructions pass all of them to `assemble_all`, or to `assemble` as `among`: the assembler then
starts once.
"""

from __future__ import annotations

import bisect
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
from elftools.elf.elffile import ELFFile

from cupygemm._build.cache import get_or_build
from cupygemm._build.toolchain import find_toolchain
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.isa.instruction import EXEC, Instruction
from cupygemm.emulator.targets import TARGETS
from cupygemm.emulator.units import bind
from cupygemm.emulator.waves.state import LANES, Group, State

ALL_LANES = (1 << LANES) - 1


class HostMemory:
    """Device memory for a test: NumPy buffers with the interface of `device.Memory`."""

    GUARD = 256

    def __init__(self) -> None:
        self.buffers: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def malloc(self, size: int, tag: str = "") -> int:
        """Allocate `size` bytes, filled with 0xCD, and return their address."""
        raw = np.full(size + 2 * self.GUARD, 0xCD, np.uint8)
        address = raw.ctypes.data + self.GUARD
        address += -address % 64
        start = address - raw.ctypes.data
        self.buffers[address] = (raw, raw[start : start + size])
        return address

    def put(self, array: np.ndarray) -> int:
        """Allocate a copy of `array` and return its address."""
        array = np.ascontiguousarray(array)
        address = self.malloc(array.nbytes)
        self.bytes(address)[:] = array.reshape(-1).view(np.uint8)
        return address

    def bytes(self, address: int) -> np.ndarray:
        """Return a uint8 view of the allocation at `address`."""
        return self.buffers[address][1]

    def view(self, address: int, dtype: Any) -> np.ndarray:
        """Return a view of the allocation at `address` as an array of `dtype`."""
        return self.bytes(address).view(dtype)

    def ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the sorted starts and ends of the allocations."""
        starts = np.array(sorted(self.buffers), np.uint64)
        ends = np.array([a + len(self.bytes(a)) for a in sorted(self.buffers)], np.uint64)
        return starts, ends

    def is_peers(self, address: int) -> bool:
        """Return False: there is one device."""
        return False

    def describe(self, address: int, size: int) -> str:
        """Describe how far an access is outside the nearest allocation."""
        starts = sorted(self.buffers)
        if not starts:
            return "there are no allocations"
        start = starts[max(0, bisect.bisect_right(starts, address) - 1)]
        end = start + len(self.bytes(start))
        return f"{address + size - end} bytes past the end of the allocation at 0x{start:x}"


@dataclass(frozen=True, eq=False)
class StandInKernel:
    """What a state of the tests has for a kernel."""

    lds_bytes: int  # all of it static


def make_state(
    *,
    waves: int = 1,
    workgroups: int = 1,
    lds_bytes: int = 0,
    scratch_bytes: int = 0,
    target: str = "gfx942",
    memory: Any = None,
    seed: int | None = None,
) -> State:
    """Return the state of `workgroups` workgroups of `waves` waves each, with every lane active.

    Registers hold zeros, or random bits drawn from `seed`.
    """
    count = waves * workgroups
    vgpr = np.zeros((512, count, LANES), np.uint32)
    sgpr = np.zeros((128, count), np.uint32)
    if seed is not None:
        rng = np.random.default_rng(seed)
        vgpr[:] = rng.integers(0, 1 << 32, vgpr.shape, np.uint32)
        sgpr[:] = rng.integers(0, 1 << 32, sgpr.shape, np.uint32)
    sgpr[EXEC : EXEC + 2] = 0xFFFFFFFF
    return State(
        kernel=cast("Any", StandInKernel(lds_bytes)),
        target=TARGETS[target],
        memory=memory if memory is not None else cast("Any", HostMemory()),
        vgpr=vgpr,
        sgpr=sgpr,
        scc=np.zeros(count, np.bool_),
        lds=np.zeros((workgroups, lds_bytes), np.uint8),
        pc=np.zeros(count, np.int64),
        workgroup=np.repeat(np.arange(workgroups, dtype=np.int32), waves),
        wave_in_group=np.tile(np.arange(waves, dtype=np.int32), workgroups),
        workgroup_ids=np.stack([np.arange(workgroups, dtype=np.int32)] * 3, axis=1),
        launch_order=np.arange(workgroups, dtype=np.int64),
        scratch=np.zeros((count, LANES, scratch_bytes), np.uint8),
        modes=np.zeros(count, np.uint32),
        units={},
    )


def set_exec(state: State, mask: int | Sequence[int]) -> None:
    """Set EXEC to one mask for all waves, or to one mask for each wave."""
    masks = np.broadcast_to(np.asarray(mask, np.uint64), (state.num_waves,))
    state.sgpr[EXEC] = masks.astype(np.uint32)
    state.sgpr[EXEC + 1] = (masks >> np.uint64(32)).astype(np.uint32)


def exec_lanes(state: State, wave: int) -> list[int]:
    """Return the active lanes of `wave`."""
    mask = int(state.sgpr[EXEC, wave]) | int(state.sgpr[EXEC + 1, wave]) << 32
    return [lane for lane in range(LANES) if mask >> lane & 1]


def set_s64(state: State, index: int, value: int) -> None:
    """Write a 64-bit value to a pair of scalar registers of every wave."""
    state.sgpr[index], state.sgpr[index + 1] = value & 0xFFFFFFFF, value >> 32


def set_v64(state: State, index: int, values: Any) -> None:
    """Write 64-bit values, which broadcast to (waves, 64), to a pair of vector registers."""
    values = np.asarray(values, np.uint64)
    state.vgpr[index] = values.astype(np.uint32)
    state.vgpr[index + 1] = (values >> np.uint64(32)).astype(np.uint32)


def assemble(text: str, target: str = "gfx942", *, among: Iterable[str] = ()) -> Instruction:
    """Assemble and decode one instruction.

    `among` are the instructions of the test's other cases. The first case assembles all of them
    with one run of the assembler, whose start takes longer than its work.
    """
    if (text, target) not in _assembled:
        assemble_all((text, *among), target)
    return _assembled[text, target]


def assemble_all(lines: Iterable[str], target: str = "gfx942") -> list[Instruction]:
    """Assemble and decode several instructions with one run of the assembler, each once."""
    lines = list(lines)
    new = [line for line in dict.fromkeys(lines) if (line, target) not in _assembled]
    if new:
        _assembled.update(
            ((line, target), inst) for line, inst in zip(new, _assemble(new, target), strict=True)
        )
    return [_assembled[line, target] for line in lines]


_assembled: dict[tuple[str, str], Instruction] = {}  # by the text and the target


def _assemble(lines: Sequence[str], target: str) -> list[Instruction]:
    toolchain = find_toolchain()
    source = "\n".join([".text", *lines, ""])

    def build(output: Path) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "instructions.s"
            path.write_text(source)
            toolchain.assemble(path, output, target=target, link=False)

    built = get_or_build("test-assembly", [source, target, toolchain.version], ".o", build)
    section = ELFFile(io.BytesIO(built.read_bytes())).get_section_by_name(".text")
    code = section.data()
    instructions, offset = [], 0
    for _ in lines:
        instructions.append(decode(code, offset, target))
        offset += instructions[-1].size
    return instructions


def run(state: State, *instructions: Instruction, waves: Sequence[int] | None = None) -> None:
    """Execute instructions in order, in all waves or in those of `waves`, as one group.

    Like the run loop, this counts the LDS and vector memory operations that are issued.
    """
    if waves is None:
        group = Group(state, slice(0, state.num_waves), state.num_waves)
    else:
        group = Group(state, np.asarray(waves, np.intp), len(waves))
    for inst in instructions:
        step = bind(inst, state.target)
        if inst.encoding in ("DS", "FLAT"):
            state.lds_issued[group.waves] += 1
        if inst.encoding in ("FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MTBUF"):
            state.vm_issued[group.waves] += 1
        step(group)
        state.current_pc += inst.size


def barrier(state: State, *, waited: bool = True) -> None:
    """Make every workgroup pass a barrier, before which its waves wait for all memory or none."""
    state.barrier_epoch += 1
    if waited:
        state.lds_released[:] = state.lds_issued
        state.vm_released[:] = state.vm_issued
