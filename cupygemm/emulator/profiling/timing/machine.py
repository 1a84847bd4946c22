"""What the timing model takes each target for: rates and latencies, with their sources.

Nothing here was measured by this project. The sources, by key:

MIC
    AMD's matrix instruction calculator: passes of an MFMA, and what the vector unit can do under
    one.
LLVM
    The AMDGPU backend: wait states behind an MFMA (GCNHazardRecognizer), quarter-rate instructions
    and branches (SISchedule.td).
SH
    nod-ai's amd-shark-ai, "AMDGPU kernel optimization guide": a SIMD sends 16 addresses per cycle
    to LDS, and LDS answers in phases (`units.lds_profile`).
MT4G
    The report of MT4G, the memory topology tool of TU Munich, on an MI300X (August 2025): latencies
    of LDS 51, vL1D 116, L2 288, L2 and its miss 497, memory 900, scalar cache and its miss 172
    cycles at 2100 MHz.
HK
    HipKittens (arXiv 2511.08083), MI355X: 300 ns behind an L2 miss, 500 ns behind one of the
    last-level cache.
WP
    AMD's white papers of CDNA2, CDNA3 and CDNA4: widths of the caches and of the fabric.
"""

from __future__ import annotations

from dataclasses import dataclass

SIMDS = 4


@dataclass(frozen=True)
class Power:
    """The clock that the board's power leaves: it falls as the matrix units work more.

    Power goes with the clock and the square of the voltage, and the voltage with the clock; so the
    cube of the clock times (what works always + what the matrix units do) stays within the board's.

    Attributes
    ----------
    boost_mhz : float
    budget : float
        GHz cubed.
    base : float
        What works always, in units of busy matrix units.
    """

    boost_mhz: float
    budget: float
    base: float

    def clock_mhz(self, matrix_share: float) -> float:
        """Return the clock at which the matrix units can work for a share of the cycles."""
        limit: float = 1000 * (self.budget / (self.base + matrix_share)) ** (1 / 3)
        return min(self.boost_mhz, limit)


@dataclass(frozen=True)
class TimingMachine:
    """A target's rates and latencies.

    Attributes
    ----------
    lds_port_bytes : int
        That pass between a SIMD and LDS in a cycle.
    lds_latency : int
        From the end of an access until its wave can use it, in cycles.
    l1_bytes, l1_lines : int
        That vL1D handles in a cycle.
    l1_latency, l2_latency : int
        Cycles.
    last_ns, memory_ns : float
        Beyond the latency of L2, to the last-level cache and to memory. Their clock is another.
    l2_bytes : int
        That an L2 gives its CUs in a cycle; no CU gets more than `l1_bytes`.
    fabric_bytes : int
        That an L2 gets from the fabric in a cycle.
    memory_efficiency : float
        Share of the data sheet's bandwidth that can be had.
    scalar_latency : int
        Of a scalar load, cycles.
    branch_cycles, barrier_latency : int
        From a branch to the next instruction; from the last wave's arrival to the first one's
        release.
    memory_queue : int
        Cycles of work of vL1D that can wait for it before waves have to.
    power : Power or None
        *Fitted*, where there are published figures to fit.
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
# (MT4G). branch_cycles: 8 issue slots (LLVM). Assumed: barrier_latency and memory_queue. Fitted, on
# the five figures of the calibration's ladder: power.
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
    power=Power(boost_mhz=2100, budget=1.83, base=0.19),
)

MACHINES = {
    # No figures of MI250X's own were at hand but WP's; the rest is assumed to be as on MI300X, with
    # no cache between L2 and memory.
    "gfx90a": TimingMachine(
        lds_port_bytes=64,
        lds_latency=43,
        l1_bytes=64,
        l1_lines=1,
        l1_latency=116,
        l2_latency=288,
        last_ns=0,
        memory_ns=291,
        l2_bytes=32 * 128,
        fabric_bytes=32 * 64,
        memory_efficiency=0.75,
        scalar_latency=172,
        branch_cycles=32,
        barrier_latency=8,
        memory_queue=64,
    ),
    "gfx942": _CDNA3,
    # LDS reads are twice as wide (WP; SH's 64 reads of 8 bytes take 583 cycles against 852). Beyond
    # L2: HK, less 288 cycles at 2400 MHz. The rest is assumed to be as on MI300X.
    "gfx950": TimingMachine(
        lds_port_bytes=128,
        lds_latency=43,
        l1_bytes=64,
        l1_lines=1,
        l1_latency=116,
        l2_latency=288,
        last_ns=180,
        memory_ns=380,
        l2_bytes=16 * 128,
        fabric_bytes=16 * 64,
        memory_efficiency=0.75,
        scalar_latency=172,
        branch_cycles=32,
        barrier_latency=8,
        memory_queue=64,
    ),
}
