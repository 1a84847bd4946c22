"""The places of the elements of A, B and D in registers, one formula per shape.

Written from the tables of AMD's CDNA2, CDNA3 and CDNA4 ISA guides (section "Dense matrix
multiplication"), independently of the emulator's own derivation, so that tests can compare them.

The element of an input position is counted within a lane's packed input.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.units import formats

LANES = 64


@dataclass(frozen=True)
class Case:
    """One dense instruction of one target, by LLVM's name, and its modifiers.

    `text` is the assembly: A in v[64:..], B in v[96:..], C in v[128:..], D in v[0:..], block
    scales in v180 and v181.
    """

    target: str
    mnemonic: str
    m: int
    n: int
    k: int
    blocks: int
    a: str
    b: str
    modifiers: str = ""

    def __str__(self) -> str:
        return f"{self.target}-{self.mnemonic}{self.modifiers.replace(' ', '-')}"

    @property
    def d_registers(self) -> int:
        """Return the 32-bit registers of D."""
        return self.m * self.n * self.blocks // LANES * (2 if self.a == "f64" else 1)

    @property
    def text(self) -> str:
        """Return the instruction as assembly."""
        return self.text_with()

    def text_with(self, *, a: str = "", b: str = "", c: str = "", d: str = "") -> str:
        """Return the instruction as assembly with some operands replaced."""
        a = a or register_range(64, self.input_registers(self.a))
        b = b or register_range(96, self.input_registers(self.b))
        c = c or register_range(128, self.d_registers)
        d = d or register_range(0, self.d_registers)
        scales = ", v180, v181" if "_scale_" in self.mnemonic else ""
        return f"{self.mnemonic} {d}, {a}, {b}, {c}{scales}{self.modifiers}"

    def input_registers(self, kind: str) -> int:
        """Return the 32-bit registers of A or B."""
        return self.m * self.k * self.blocks // LANES * BITS[kind] // 32


BITS = {
    "f64": 64,
    "f32": 32,
    "xf32": 32,
    "f16": 16,
    "bf16": 16,
    "i8": 8,
    "fp8": 8,
    "bf8": 8,
    "fp6": 6,
    "bf6": 6,
    "fp4": 4,
}


def register_range(first: int, count: int, file: str = "v") -> str:
    """Return a register operand."""
    return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"


def input_position(case: Case, kind: str, row: int, k: int, block: int) -> tuple[int, int]:
    """Return (lane, element) of A[row, k] or of B[k, row] in a block."""
    m, depth = case.m, case.k
    if case.a == "f64":  # one element to a lane
        return (row + 16 * k, 0) if m == 16 else (row + 4 * block + 16 * k, 0)
    if m == 4:
        return 4 * block + row, k
    if case.blocks > 1:
        return m * block + row, k
    if "f8f6f4" in case.mnemonic and kind in ("fp8", "bf8"):
        lanes_of_16 = m * (k % (1024 // m) // 16)
        return lanes_of_16 + row, k % 16 + 16 * (k // (1024 // m))
    per_lane = depth // 4 if m == 16 else depth // 2
    return m * (k // per_lane) + row, k % per_lane


def output_position(case: Case, row: int, column: int, block: int) -> tuple[int, int]:
    """Return (register, lane) of D[row, column] in a block; a register pair counts as one."""
    if case.a == "f64":
        if case.m == 16:
            return row // 4, 16 * (row % 4) + column
        return 0, 16 * row + 4 * block + column
    if case.m == 4:
        return row, 4 * block + column
    if case.m == 16:
        return 4 * block + row % 4, 16 * (row // 4) + column
    return 16 * block + row % 4 + 4 * (row // 8), 32 * (row // 4 % 2) + column


def encode(kind: str, values: NDArray[np.float64], fnuz: bool) -> NDArray[np.uint64]:
    """Return the bits of values that `kind` represents exactly."""
    match kind:
        case "f64":
            return values.astype(np.float64).view(np.uint64)
        case "f32" | "xf32":
            return values.astype(np.float32).view(np.uint32).astype(np.uint64)
        case "f16":
            return values.astype(np.float16).view(np.uint16).astype(np.uint64)
        case "bf16":
            return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint64)
        case "i8":
            return values.astype(np.int8).view(np.uint8).astype(np.uint64)
    fmt = {
        "fp8": formats.fp8_format("fp8", fnuz),
        "bf8": formats.fp8_format("bf8", fnuz),
        "fp6": formats.FP6,
        "bf6": formats.BF6,
        "fp4": formats.FP4,
    }[kind]
    return formats.encode(values, fmt).astype(np.uint64)


@functools.lru_cache(maxsize=64)
def _input_positions(case: Case, kind: str) -> tuple[NDArray[np.intp], ...]:
    """Return the lanes and the elements of A, or of B, as arrays (blocks, rows, k)."""
    shape = (case.blocks, case.m, case.k)
    found = [input_position(case, kind, row, k, block) for block, row, k in np.ndindex(shape)]
    return tuple(np.array(each, np.intp).reshape(shape) for each in zip(*found, strict=True))


@functools.lru_cache(maxsize=64)
def _output_positions(case: Case) -> tuple[NDArray[np.intp], ...]:
    """Return the registers and the lanes of D as arrays (blocks, m, n)."""
    shape = (case.blocks, case.m, case.n)
    found = [output_position(case, row, column, block) for block, row, column in np.ndindex(shape)]
    return tuple(np.array(each, np.intp).reshape(shape) for each in zip(*found, strict=True))


def pack_input(case: Case, kind: str, codes: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Lay out element codes (..., blocks, rows, k) as registers (registers, ..., lanes)."""
    bits, registers = BITS[kind], case.input_registers(kind)
    lanes, elements = _input_positions(case, kind)
    parts = np.zeros((*codes.shape[:-3], LANES, registers * 32 // bits), np.uint64)
    parts[..., lanes, elements] = codes
    words = np.zeros((*codes.shape[:-3], LANES, registers), np.uint64)
    for element in range(parts.shape[-1]):
        code = parts[..., element]
        for offset in range(0, bits, min(bits, 32)):
            position = element * bits + offset
            word, shift = divmod(position, 32)
            words[..., word] |= (code >> np.uint64(offset)) << np.uint64(shift)
            if shift + min(bits, 32) > 32:
                words[..., word + 1] |= code >> np.uint64(32 - shift)
    return np.moveaxis(words & np.uint64(0xFFFFFFFF), -1, 0).astype(np.uint32)


def pack_output(case: Case, values: NDArray[np.generic]) -> NDArray[np.uint32]:
    """Lay out C (..., blocks, m, n) of its own dtype as registers (registers, ..., lanes)."""
    words = values.dtype.itemsize // 4
    parts = np.ascontiguousarray(values)[..., None].view(np.uint32)
    registers, lanes = _output_positions(case)
    out = np.zeros((*values.shape[:-3], case.d_registers, LANES), np.uint32)
    for word in range(words):
        out[..., registers * words + word, lanes] = parts[..., word]
    return np.moveaxis(out, -2, 0)


def unpack_output(
    case: Case, registers: NDArray[np.uint32], dtype: type[np.generic]
) -> NDArray[np.generic]:
    """Gather D (..., blocks, m, n) from registers (registers, ..., lanes)."""
    words = np.dtype(dtype).itemsize // 4
    positions, lanes = _output_positions(case)
    found = np.moveaxis(registers, 0, -2)
    parts = np.stack(
        [found[..., positions * words + word, lanes] for word in range(words)], axis=-1
    )
    return np.ascontiguousarray(parts).view(dtype)[..., 0]
