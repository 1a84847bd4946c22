"""Kernels written in assembly, for tests of the run loop and of the hazards.

    kernel = load_kernel("s_load_dwordx2 s[4:5], s[0:1], 0x0 ...", memory, arguments=[8])

The kernel finds its argument segment in s[0:1], its workgroup id in s2 and its work-item id in v0.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cupygemm._build.cache import get_or_build
from cupygemm._build.toolchain import find_toolchain
from cupygemm.emulator.code_object import Kernel, load

_TEMPLATE = """
.amdgcn_target "amdgcn-amd-amdhsa--{target}"
.text
.globl k
.p2align 8
{type}
k:
{body}
.Lend:
{size}
.rodata
.p2align 6
.amdhsa_kernel k
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_kernarg_size {kernarg}
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_next_free_vgpr {registers}
  .amdhsa_next_free_sgpr 96
  .amdhsa_accum_offset {vgprs}
.end_amdhsa_kernel
.amdgpu_metadata
amdhsa.version: [ 1, 2 ]
amdhsa.target: amdgcn-amd-amdhsa--{target}
amdhsa.kernels:
  - .name: k
    .symbol: k.kd
    .kernarg_segment_size: {kernarg}
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 96
    .vgpr_count: {registers}
    .agpr_count: 256
    .max_flat_workgroup_size: 1024
    .args:{arguments}
.end_amdgpu_metadata
"""


def load_kernel(
    body: str,
    memory: Any,
    *,
    arguments: Sequence[int] = (),
    lds: int = 0,
    target: str = "gfx942",
    sized: bool = True,
    typed: bool = True,
    registers: int = 512,
) -> Kernel:
    """Assemble a kernel body and load it.

    Parameters
    ----------
    body : str
        Instructions, one a line.
    memory : Memory
    arguments : sequence of int
        Size of each argument in bytes; 8 is a pointer.
    lds : int
        Bytes of static LDS.
    target : str
    sized, typed : bool
        Whether the kernel's symbol has a size and is a function.
    registers : int
        Vector registers of a lane; those beyond 256 are AGPRs.
    """
    path = assembled(
        body,
        arguments=arguments,
        lds=lds,
        target=target,
        sized=sized,
        typed=typed,
        registers=registers,
    )
    return load(path.read_bytes(), memory, target).kernels["k"]


def assembled(
    body: str,
    *,
    arguments: Sequence[int] = (),
    lds: int = 0,
    target: str = "gfx942",
    sized: bool = True,
    typed: bool = True,
    registers: int = 512,
) -> Path:
    """Assemble a kernel body, and return the path of its code object; see `load_kernel`."""
    offset, entries = 0, ""
    for size in arguments:
        offset = -(-offset // size) * size
        kind = "global_buffer" if size == 8 else "by_value"
        entries += f"\n      - {{ .offset: {offset}, .size: {size}, .value_kind: {kind} }}"
        offset += size
    source = _TEMPLATE.format(
        target=target, body=body, lds=lds, registers=registers,
        vgprs=min(256, registers), kernarg=max(offset, 8), arguments=entries or " []",
        type=".type k,@function" if typed else "", size=".size k, .Lend-k" if sized else "",
    )  # fmt: skip
    toolchain = find_toolchain()

    def build(output: Path) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.s"
            path.write_text(source)
            toolchain.assemble(path, output, target=target)

    key = [source, target, toolchain.version]
    return get_or_build("test-assembly", key, ".hsaco", build)
