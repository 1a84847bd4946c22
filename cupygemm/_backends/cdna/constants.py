"""The constants of CDNA's cost model: ``python -m benchmarks.fit cdna --write`` writes them.

`cupygemm._backends.cdna.cost_constants` documents them.
"""

from cupygemm._backends.cdna.cost_constants import KernelConstants

PROVENANCE = {
    "device": "gfx942 (emulated), gfx950 (emulated)",
    "driver": "none: the timing model of the emulated device",
    "date": "2026-11-22",
    "products": 96,
    "kernels": 550,
    "median_error": 0.041,
    "chosen_over_fastest": 1.1028,
}
KERNELS = KernelConstants(
    start_cycles={
        "register_double_buffer": 2030.0,
        "direct_to_lds": 3640.0,
        "ping_pong": 5960.0,
        "direct_to_register": 2500.0,
    },
    load_ns=679.0,
    add_cycles=2080.0,
    add_round_cycles=1180.0,
    next_kernel_cycles=6000.0,
    cu_bytes_per_clock=16.0,
    sharing=1.03,
)
