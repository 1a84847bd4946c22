"""The constants of CDNA's cost model: ``python -m benchmarks.fit cdna --write`` writes them.

What they mean is said in `cupygemm._backends.cdna.cost_constants`.
"""

from cupygemm._backends.cdna.cost_constants import KernelConstants

PROVENANCE = {
    "device": "gfx942 (emulated), gfx950 (emulated)",
    "driver": "none: the timing model of the emulated device",
    "date": "2026-11-22",
    "products": 96,
    "kernels": 550,
    "median_error": 0.044,
    "chosen_over_fastest": 1.0086,
}
KERNELS = KernelConstants(
    start_cycles={
        "register_double_buffer": 2190.0,
        "direct_to_lds": 3750.0,
        "ping_pong": 6560.0,
        "direct_to_register": 8730.0,
    },
    load_ns=660.0,
    add_cycles=1890.0,
    add_round_cycles=1160.0,
    next_kernel_cycles=6000.0,
    cu_bytes_per_clock=16.0,
    sharing=1.03,
)
