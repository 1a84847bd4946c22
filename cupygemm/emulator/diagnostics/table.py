"""The table of checks: what each finds, what the device does if it is not an error, and why.

`checking` decides which of them are errors, warnings or off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from cupygemm.emulator.diagnostics.wait_rules import RULES

Severity = Literal["error", "warn", "off"]
SEVERITIES: tuple[str, ...] = get_args(Severity)


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes
    ----------
    finds : str
        What a finding is.
    otherwise : str
        The instruction's behaviour if a finding does not end the launch.
    source : str
        Where the rule is stated.
    default : {"error", "warn", "off"}
    """

    finds: str
    otherwise: str
    source: str
    default: Severity = "error"


_AS_IF_ON_TIME = "executes as if it came late enough"
_ISA_11_3 = (
    "CDNA3 ISA guide, section 11.3, and LLVM's User Guide for AMDGPU (unaligned access mode)"
)
CHECKS: Mapping[str, Check] = {
    "bounds": Check(
        "an access outside every allocation, LDS, private memory, a local array in registers or an "
        "array of the module (__constant__, __device__)",
        "loads return 0 in the lanes outside; stores and atomics change nothing there",
        "CDNA3 ISA guide, chapters 9 and 11, on buffers and LDS; a GPU may also end the kernel",
    ),
    "required_alignment": Check(
        "an atomic, a scalar access, a transposing read or a direct-to-LDS load that is not "
        "aligned as the hardware requires",
        "scalar and direct-to-LDS addresses are rounded down; others are used as they are",
        "CDNA3 ISA guide, chapters 8 and 11; CDNA4 ISA guide, chapter 11",
    ),
    "alignment": Check(
        "a plain load or store that is not aligned to its size",
        "the access is made: it is legal on these targets, and slower",
        _ISA_11_3,
        "off",
    ),
    "uninitialised": Check(
        "an address, a branch, an atomic or a stored value that depends on bits that were never "
        "written, including elements of local arrays and structures in HIP source, and numbers "
        "that it may leave unset; to store one of these unchanged, as a copy of a structure does, "
        "is a warning",
        "the bits that happen to be there are used",
        "the kernel's result would depend on earlier contents of registers or memory",
    ),
    "uninitialised_source": Check(
        "a variable of HIP source that is used before it is written, as far as the compiler can "
        "tell; elements of arrays and structures belong to uninitialised",
        "the compiler assumes any value",
        "clang's -Wuninitialized, -Wsometimes-uninitialized and -Wconditional-uninitialized; the "
        'last says "may be", and counts only where a variable is used to compute its own next '
        "value, in a statement without a condition",
        "warn",
    ),
    "wave_masks": Check(
        "HIP source that keeps 32 bits of a mask of 64 lanes (__ballot, __activemask) without "
        "saying so by a conversion",
        "the lanes from 32 on are lost",
        "HIP's porting guide: waves of CDNA GPUs have 64 lanes; clang's -Wshorten-64-to-32",
        "warn",
    ),
    "warp_idioms": Check(
        "HIP source, in a block of more than 32 threads, that reduces or scans 32 lanes by "
        "shuffles without counting in groups of 32, takes lane 31 for the last one of a wave, "
        "reads a lane of the wave for one of such a group, masks lanes of a ballot in 32 bits, "
        "uses the number of a group of lanes as that of a wave (readfirstlane), or reduces in LDS "
        "without volatile or a barrier",
        "the result differs",
        "HIP's porting guide: waves of CDNA GPUs have 64 lanes; CUDA's programming guide, on "
        "warp-synchronous programming",
        "warn",
    ),
    "polling": Check(
        "HIP source that waits in a loop for memory that it reads by plain loads, neither volatile "
        "nor atomic",
        "the compiler reads it once, or removes the loop",
        "C++ ([intro.races], [intro.progress]): a plain access that races has no meaning, and a "
        "loop without side effects may be taken to end",
        "warn",
    ),
    "sync_masks": Check(
        "a call of __shfl_sync, __ballot_sync or a relative with a mask that does not name exactly "
        "the lanes that call it with this mask",
        "the function is computed for the active lanes",
        "HIP's documentation of warp cross-lane functions; the assertion in ROCm's "
        "amd_warp_sync_functions.h",
        "warn",
    ),
    "argument_types": Check(
        "an argument of cupy.RawKernel whose bytes the kernel reads as another value, because its "
        "type has another size or kind; too few arguments. Arrays of another dtype than the "
        "pointer's, and too many arguments, are a warning",
        "the kernel reads the bytes as its own type",
        "HIP's hipModuleLaunchKernel, which takes addresses without types; CuPy's user guide, on "
        "raw kernels and their arguments",
    ),
    "argument_views": Check(
        "an array that is not in C's order (a.T, a[:, :3], a[::-1]) as an argument of "
        "cupy.RawKernel, if neither the other arguments nor the source have one of its strides, "
        "and it does not own its memory in Fortran's order; an access beyond a view, such as x[1], "
        "that is inside the array of the view and in no other argument",
        "the kernel gets the address of the first element; the access is made",
        "CuPy's user guide, on raw kernels: a kernel gets a pointer, and no strides",
        "warn",
    ),
    "shared_arrays": Check(
        "an access to a __shared__ array of HIP source that lands in another variable in LDS; only "
        "where the line table has the place of the access in the kernel's own code",
        "the access is made",
        "C++: an array's elements are those of its type; LDS is addressed as a whole (CDNA3 ISA "
        "guide, chapter 11)",
        "warn",
    ),
    "restricted_arguments": Check(
        "arguments of cupy.RawKernel that share memory, one of them __restrict__, if bytes are "
        "read through one and written through the other, and the order of the two matters",
        "the accesses are made as the compiler has ordered them",
        "C's restrict (C11, 6.7.3.1), which clang's __restrict__ follows; the noalias attribute in "
        "LLVM's language reference",
        "warn",
    ),
    "constant_variables": Check(
        "a __constant__ variable of HIP source without a value, which a kernel of cupy.RawModule "
        "reads although the host has never requested the address of a variable of the module",
        "the variable holds zeros",
        "CuPy's user guide, on constant memory: RawModule.get_global",
        "warn",
    ),
    "inactive_lanes": Check(
        "an address, a branch, an atomic or a stored value that depends on a value that "
        "ds_bpermute, ds_swizzle (__shfl), DPP with bound_ctrl or v_readlane has read from an "
        "inactive lane; DPP and v_readlane only in code whose source lines are known, and not "
        "where the 0 that DPP reads adds nothing",
        "the value is 0; v_readlane reads the lane's register",
        "HIP's documentation and CUDA's programming guide, on __shfl; the CDNA3 ISA guide states 0 "
        "for inactive lanes",
        "warn",
    ),
    "integer_divisions": Check(
        "an address, a branch, an atomic or a stored value that depends on an integer division by "
        "zero",
        "the quotient is what LLVM's instructions for a division give",
        "C++ ([expr.mul]): the behaviour of a division by zero is undefined; the udiv instruction "
        "in LLVM's language reference",
        "warn",
    ),
    "waits": Check(
        "a register or LDS that is used before an s_waitcnt has waited for its load",
        "the loaded value is there already",
        "CDNA3 ISA guide, section 4.4",
    ),
    "lds_races": Check(
        "two waves that access the same bytes of LDS with no barrier between them, nor a flag in "
        "LDS for which a loop waits",
        "the access is made, in the order of the emulation",
        "CDNA3 ISA guide, section 4.3 (S_BARRIER)",
    ),
    "global_races": Check(
        "two waves that access the same bytes of device memory, unordered",
        "the access is made, in the order of the emulation",
        "LLVM's User Guide for AMDGPU, memory model",
    ),
    "write_backs": Check(
        "a load past the caches, an atomic or an ordered load of data that a workgroup on another "
        "XCD has stored by a plain store, if the L2 there was not written back since "
        "(__threadfence, a release); CDNA3 and CDNA4",
        "the stored value is read",
        "LLVM's User Guide for AMDGPU, memory model of gfx942: buffer_wbl2 sc1 makes earlier "
        "stores visible to the other XCDs of a device",
        "warn",
    ),
    "invalidations": Check(
        "a plain load of data that another workgroup has stored, ordered by atomics, if its own "
        "workgroup has loaded the same 16 bytes before and not emptied its vector L1 since "
        "(__threadfence, an acquire)",
        "the stored value is read",
        "LLVM's User Guide for AMDGPU, memory models of gfx90a and gfx942: buffer_inv sc1 "
        "(buffer_wbinvl1) ensures that later loads do not see stale data in L1",
        "warn",
    ),
    "lane_addresses": Check(
        "ds_bpermute or ds_permute with an address that is no multiple of 4",
        "the lower two bits of the address are ignored",
        "CDNA3 ISA guide, on DS_PERMUTE_B32 and DS_BPERMUTE_B32, whose addresses are in bytes",
        "warn",
    ),
    "lane_races": Check(
        "two lanes of a wave that store different values to the same bytes in one instruction, or "
        "that add to a value read there, unless all lanes do so at one address; a warning in "
        "CuPy's own kernels and in code without source lines, which may intend it",
        "the value of the last lane stays",
        "CUDA's programming guide, on SIMT: which thread performs the last write is not defined; "
        "AMD's ISA guides state no order of lanes",
    ),
    "stream_races": Check(
        "work of two streams on the same bytes of memory, one of them writing, that nothing orders",
        "the access is made; the order is that of submission, or one that a seed chooses",
        "HIP's runtime API: streams, events and the legacy default stream",
    ),
    "pending_copies": Check(
        "pinned host memory that the host changes while an asynchronous copy from it is pending, "
        "except in launches that wait in their stream; or a copy to pinned memory that the host "
        "has not waited for when the program ends",
        "the copy has read the contents at the time of submission",
        "HIP's runtime API: hipMemcpyAsync returns before the copy is done",
        "warn",
    ),
    "barriers": Check(
        "a barrier that some waves of a workgroup skipped before they ended",
        "the other waves continue, as the hardware counts only waves that have not ended",
        "CDNA3 ISA guide, section 4.3 (S_BARRIER)",
    ),
    "partial_barriers": Check(
        "a barrier at which lanes of a wave are inactive that access memory, or reach another "
        "barrier, after it; in code whose source lines are known",
        "the wave continues, as the hardware counts waves and not lanes",
        "HIP's documentation and CUDA's programming guide: __syncthreads in conditional code only "
        "where the whole block agrees",
        "warn",
    ),
    "early_ends": Check(
        "a first wave of a workgroup that ends before its first barrier, while others wait there "
        "and may read LDS after it",
        "the other waves continue, as the hardware counts only waves that have not ended",
        "CDNA3 ISA guide, section 4.3 (S_BARRIER); CUDA's programming guide allows __syncthreads "
        "in conditional code only where the whole block agrees",
        "warn",
    ),
} | {
    f"wait_states_{name}": Check(rule.finds, _AS_IF_ON_TIME, rule.source, rule.severity)
    for name, rule in RULES.items()
}
GROUPS: Mapping[str, tuple[str, ...]] = {
    "wait_states": tuple(name for name in CHECKS if name.startswith("wait_states_")),
    "races": ("lds_races", "global_races", "lane_races", "stream_races"),
    "all": tuple(CHECKS),
}
# The checks that a launch without checks skips. It is faster, because it keeps no records.
UNCHECKED = (
    "uninitialised",
    "waits",
    *GROUPS["races"],
    "write_backs",
    "invalidations",
    *GROUPS["wait_states"],
)
