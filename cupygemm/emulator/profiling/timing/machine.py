"""The rates and latencies of each target in the timing model, with their sources.

Nothing here was measured by this project. The sources, by key:

MIC
    AMD's matrix instruction calculator: the passes of an MFMA, and the vector unit's work during
    one.
LLVM
    The AMDGPU backend: wait states after an MFMA (GCNHazardRecognizer), quarter-rate instructions
    and branches (SISchedule.td).
SH
    nod-ai's amd-shark-ai, "AMDGPU kernel optimization guide": a SIMD sends 16 addresses per cycle
    to LDS, and LDS answers in phases (`units.lds.profile`).
MT4G
    The report of MT4G, the memory topology tool of TU Munich, on an MI300X (August 2025): latencies
    of LDS 51, vL1D 116, L2 288, L2 and its miss 497, memory 900, scalar cache and its miss 172
    cycles at 2100 MHz.
HK
    HipKittens (arXiv 2511.08083), MI355X: 300 ns after an L2 miss, 500 ns after a miss in the
    last-level cache.
WP
    AMD's white papers of CDNA2, CDNA3 and CDNA4: widths of the caches and of the fabric.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cupygemm.emulator.profiling.timing.power import ELSEWHERE, Power
from cupygemm.emulator.targets import TargetRows

SIMDS = 4


@dataclass(frozen=True, kw_only=True)
class TimingMachine:
    """A target's rates and latencies.

    Attributes
    ----------
    lds_port_bytes : int
        Bytes that pass between a SIMD and LDS per cycle.
    lds_latency : int
        Cycles from the end of an access until its wave can use the data.
    l1_bytes, l1_lines : int
        Bytes and lines that vL1D handles per cycle.
    l1_latency, l2_latency : int
        Cycles.
    last_ns, memory_ns : float
        Times beyond the latency of L2, to the last-level cache and to memory, which have clocks of
        their own.
    l2_bytes : int
        Bytes that an L2 transfers to its CUs per cycle; no CU gets more than `l1_bytes`.
    fabric_bytes : int
        Bytes that an L2 receives from the fabric per cycle.
    memory_efficiency : float
        Attainable share of the data sheet's bandwidth.
    scalar_latency : int
        Cycles of a scalar load.
    branch_cycles, barrier_latency : int
        Cycles from a branch to the next instruction, and from the last wave's arrival at a barrier
        to the first one's release.
    memory_queue : int
        Cycles of work that can queue for vL1D before waves must wait.
    power : Power or None
        The clock under load, if published: MI300X with normally distributed bf16.
    """

    lds_port_bytes: int
    lds_latency: int
    l1_bytes: int
    l1_lines: int
    l1_latency: int
    l2_latency: int
    last_ns: float
    memory_ns: float
    l2_bytes: int
    fabric_bytes: int
    memory_efficiency: float
    scalar_latency: int
    branch_cycles: int
    barrier_latency: int
    memory_queue: int
    power: Power | None = None


# MI300X. lds_latency: 51 cycles less the 8 that the access itself takes (MT4G). lds_port_bytes: SH
# has 16 addresses per SIMD and cycle, data alike. memory_efficiency: 3690 GiB/s of 5300 GB/s
# (MT4G). branch_cycles: 8 issue slots (LLVM). Assumed: barrier_latency and memory_queue.
_CDNA3 = TimingMachine(
    lds_port_bytes=64,
    lds_latency=43,
    l1_bytes=64,
    l1_lines=1,
    l1_latency=116,
    l2_latency=288,
    last_ns=100,
    memory_ns=291,
    l2_bytes=16 * 128,
    fabric_bytes=16 * 64,
    memory_efficiency=0.75,
    scalar_latency=172,
    branch_cycles=32,
    barrier_latency=8,
    memory_queue=64,
    power=ELSEWHERE["MI300X", "bf16", "normal"],
)

_ROWS = {
    # The only figures of MI250X are WP's. The rest is assumed to be as on MI300X, without a cache
    # between L2 and memory.
    "gfx90a": replace(_CDNA3, last_ns=0, l2_bytes=32 * 128, fabric_bytes=32 * 64, power=None),
    "gfx942": _CDNA3,
    # LDS reads are twice as wide (WP; SH's 64 reads of 8 bytes take 583 cycles against 852). Beyond
    # L2: HK, less 288 cycles at 2400 MHz. The rest is assumed to be as on MI300X.
    "gfx950": replace(_CDNA3, lds_port_bytes=128, last_ns=180, memory_ns=380, power=None),
}
MACHINES = TargetRows("cupygemm/emulator/profiling/timing/machine.py", _ROWS)
