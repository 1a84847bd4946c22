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
    "median_error": 0.038,
    "chosen_over_fastest": 1.0086,
}
KERNELS = KernelConstants(
    start_cycles={
        "register_double_buffer": 2150.0,
        "direct_to_lds": 3720.0,
        "ping_pong": 6030.0,
        "direct_to_register": 8300.0,
    },
    load_ns=665.0,
    add_cycles=1950.0,
    add_round_cycles=1110.0,
    next_kernel_cycles=6000.0,
    cu_bytes_per_clock=16.0,
    sharing=1.03,
)
