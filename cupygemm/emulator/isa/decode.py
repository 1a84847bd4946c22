"""Decode CDNA machine code into typed instructions.

bytes ─► operands (encodings, of the tables; targets) ─► Instruction ─► disassembly
(its text)
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.disassembly import format_instruction
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.isa.operands import build_instruction

_SCALE_PREFIX = b"\xac\xd3"  # in the first half of a scaled MFMA
_MOST = 1 << 16  # instructions that are kept
# The first four bytes tell whether more follow. Kernels share five in six of their instructions of
# four bytes, and one in five of the longer ones.
_of_four_bytes: dict[tuple[bytes, str], Instruction] = {}


def decode(code: bytes, offset: int = 0, target: str = "") -> Instruction:
    """Decode the instruction at `offset` bytes into `code`.

    Parameters
    ----------
    code : bytes
    offset : int
    target : str
        LLVM's processor name. CDNA2 gives some opcodes another meaning, and an instruction that the
        target lacks is refused. Without a target, every instruction of CDNA3 and CDNA4 is known.

    Raises
    ------
    UnsupportedInstruction
        The bytes are not an instruction of the tables, or the target lacks it.
    """
    head = bytes(code[offset : offset + 4])
    known = _of_four_bytes.get((head, target))
    if known is not None:
        return known
    # Only a scaled MFMA takes 16 bytes. Its table does not check the first half, so any 8 bytes
    # before an f8f6f4 MFMA would pass for one. Pass no more bytes than the instruction can have.
    scaled = head[2:] == _SCALE_PREFIX
    found = _decode_bytes(bytes(code[offset : offset + (16 if scaled else 8)]), target)
    if found.size == len(head):
        if len(_of_four_bytes) >= _MOST:
            _of_four_bytes.clear()
        _of_four_bytes[head, target] = found
    return found


@functools.lru_cache(maxsize=_MOST)
def _decode_bytes(data: bytes, target: str) -> Instruction:
    return build_instruction(data, target, format_instruction)


def disassemble(code: bytes, base: int = 0, target: str = "") -> Iterator[tuple[int, str]]:
    """Yield ``(pc, text)`` for every instruction of `code`, whose first byte is at pc `base`.

    Bytes that are not an instruction become ``.long``, so that a listing is always complete.
    """
    offset = 0
    while offset + 4 <= len(code):
        try:
            inst = decode(code, offset, target)
        except UnsupportedInstruction:
            word = int.from_bytes(code[offset : offset + 4], "little")
            yield base + offset, f".long 0x{word:08x}"
            offset += 4
        else:
            yield base + offset, format_instruction(inst, base + offset)
            offset += inst.size
