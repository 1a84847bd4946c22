"""The constants of CDNA's cost model: ``python -m benchmarks.fit cdna --write`` writes them.

What they mean is said in `cupygemm._backends.cdna.cost_constants`.
"""

from cupygemm._backends.cdna.cost_constants import KernelConstants

PROVENANCE = {
    "device": "gfx942 (emulated), gfx950 (emulated)",
    "driver": "none: the timing model of the emulated device",
    "date": "2026-11-21",
    "products": 4,
    "kernels": 16,
}
KERNELS = KernelConstants(
    start_cycles=2500.0,
    load_ns=690.0,
    add_cycles=2300.0,
    add_round_cycles=1180.0,
    next_kernel_cycles=6000.0,
    cu_bytes_per_clock=16.0,
    sharing=1.03,
)
