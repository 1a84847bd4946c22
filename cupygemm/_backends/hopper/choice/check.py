"""Check whether a Hopper configuration can compute a problem.

The selector, the tuner, the tests and the error messages all use `check`, the only statement of
these limits in Python. The device code repeats them as ``static_assert``.
"""

from __future__ import annotations

from collections.abc import Sequence

from cupygemm._backends.hopper.config import (
    BLOCK_ROWS,
    FLOAT8,
    MAX_BOX,
    MAX_CLUSTER,
    PRODUCTS,
    RASTERS,
    SHARED_BYTES,
    SLAB_BYTES,
    TMA_BYTES,
    HopperArch,
    HopperConfig,
    a_in_registers,
    lines_of_share,
    step_group,
)
from cupygemm._records.dtypes import ITEMSIZE
from cupygemm._records.problem import GemmProblem

_BESIDE_OTHERS = 128  # the most accumulators of a thread that also has an epilogue or splits tiles
_BESIDE_ROWS = 176  # the same of one that stores rows without TMA


def check(config: HopperConfig, problem: GemmProblem, arch: HopperArch) -> str | None:
    """Return why the kernel cannot compute the problem, or None if it can.

    Operands that TMA cannot read are copied, and a C that it cannot write is stored without it, so
    both are allowed.
    """
    return (
        _check_problem(config, problem)
        or _check_division(config, problem)
        or _check_shape(config, problem)
        or _check_registers_beside(config, problem)
    )


def check_divisions(configs: Sequence[HopperConfig], problem: GemmProblem) -> list[bool]:
    """Return which of some configurations `check` accepts; they differ in the division of k only.

    What does not depend on the division is checked once.
    """
    first = configs[0]
    if _check_problem(first, problem) or _check_shape(first, problem):
        return [False] * len(configs)
    return [
        not (_check_division(each, problem) or _check_registers_beside(each, problem))
        for each in configs
    ]


def _check_problem(config: HopperConfig, problem: GemmProblem) -> str | None:
    a, b = problem.a_dtype, problem.b_dtype
    if (a != b and not {a, b} <= set(FLOAT8)) or a not in PRODUCTS:
        return f"operands of {a} and {b} have no kernel"
    if config.mma_sync != (a == "f64"):
        return f"{'mma.sync' if config.mma_sync else 'wgmma'} does not multiply {a} here"
    if problem.out_dtype not in PRODUCTS[a].of(has_epilogue=problem.epilogue is not None):
        return f"{problem.a_dtype} operands and an output of {problem.out_dtype} have no kernel"
    if config.transposed_c and problem.epilogue is not None:
        return "the transpose of C is computed without an epilogue"
    if config.ping_pong:
        objection = _check_turns(config, problem)
        if objection is not None:
            return objection
    for name in ("m", "n", "k"):
        extent = getattr(problem, name)
        if not 1 <= extent < 1 << 31:
            return f"{name} = {extent} is outside 1 to 2**31 - 1"
    return None


def _check_division(config: HopperConfig, problem: GemmProblem) -> str | None:
    """Return why the kernel cannot divide k as configured, or None if it can."""
    if config.transposed_c:
        objection = _check_transposed(config, problem)
        if objection is not None:
            return objection
    if config.ping_pong and config.stream_k:
        return f"consumers take turns at whole tiles, and stream_k = {config.stream_k} cuts them"
    if problem.a_dtype == "i8" and config.split_k > 1:
        return "parts of k are summed in fp32, and the operands are integers"
    if config.num_units(problem) * config.cluster_size >= 1 << 31:
        return f"{config.num_units(problem)} units of work: a scheduler counts below 2**31"
    groups = -(-problem.k // (config.tile_k * step_group(config, problem)))
    if config.stream_k:
        objection = _check_cuts(config, problem, groups)
        if objection is not None:
            return objection
    if config.split_k > groups:
        return f"split_k = {config.split_k} exceeds the {groups} steps of k, or pairs of them"
    return _check_parts(config, problem)


def _check_transposed(config: HopperConfig, problem: GemmProblem) -> str | None:
    stored = 4 if config.split_k > 1 else ITEMSIZE[problem.out_dtype]
    if stored != (4 if a_in_registers(problem) else 2):
        where = "registers" if a_in_registers(problem) else "shared memory"
        return f"from an A in {where}, blocks of {8 * stored} bits are not transposed"
    return None


def _check_turns(config: HopperConfig, problem: GemmProblem) -> str | None:
    if config.num_consumers != 2:
        return f"{config.num_consumers} consumers: two take turns"
    if config.promote or config.mma_sync or a_in_registers(problem):
        return "consumers take turns only where wgmma keeps their sums and reads shared memory"
    many = config.accumulators > _BESIDE_ROWS and not config.transposed_c
    if many and not ends_at_units(problem):
        return f"{config.accumulators} accumulators leave no registers to store rows without TMA"
    return None


def ends_at_units(problem: GemmProblem) -> bool:
    """Whether rows of C begin and end at multiples of 16 bytes, so that TMA can store them."""
    row_bytes = problem.n * ITEMSIZE[problem.out_dtype]
    return problem.c_align >= TMA_BYTES and row_bytes % TMA_BYTES == 0


def _check_cuts(config: HopperConfig, problem: GemmProblem, groups: int) -> str | None:
    if config.mma_sync:
        return "stream_k adds sums of 32 bits, and those of fp64 have 64"
    busy = (
        config.promote
        or config.cluster_size > 1
        or a_in_registers(problem)
        or problem.epilogue is not None
    )
    three = config.num_consumers == 3 and config.accumulators >= 64
    narrow = config.narrow_b(ITEMSIZE[problem.b_dtype], problem.b_major) > 0
    large = config.accumulators > (104 if narrow else _BESIDE_OTHERS) or config.tile_n == 256
    if three or large or (config.tile_m == 256 and busy):
        tile = f"{config.tile_m}x{config.tile_n}"
        return f"a tile of {tile} leaves no registers to add what others have summed"
    units = config.num_units(problem)
    if config.split_k > 1:
        cuts = f"split_k = {config.split_k} and stream_k = {config.stream_k}"
        return f"{cuts}: tiles are cut one way"
    if units % config.stream_k == 0:
        return f"{units} tiles fill the {config.stream_k} clusters evenly: none are cut"
    if 2 * config.stream_k * groups >= 1 << 32 or units * groups < config.stream_k:
        return f"{units} tiles of {groups} steps cannot be cut over {config.stream_k} clusters"
    return None


def _check_parts(config: HopperConfig, problem: GemmProblem) -> str | None:
    """Return why the blocks of a cluster cannot sum parts of k, or None if they can or need not."""
    parts = config.cluster_k
    if parts == 1:
        return None
    if problem.a_dtype not in ("bf16", "f16") or config.ping_pong:
        return "the blocks of a cluster exchange sums of 16-bit operands, and of tiles they share"
    if config.split_k > 1 or config.stream_k:
        return f"cluster_k = {parts}: k is not divided another way as well"
    unit = 8 if config.transposed_c else 16
    if config.tile_n % (unit * parts):
        return f"{config.tile_n} columns are not {parts} shares of a multiple of {unit}"
    ring = config.num_stages * (config.tile_m + config.tile_n) * config.tile_k * 2
    if 4 * config.tile_m * config.tile_n > ring:
        return f"a ring of {ring} bytes does not hold the sums of a tile"
    if -(-problem.k // config.tile_k) < parts:
        return f"cluster_k = {parts} exceeds the steps of k"
    return None


def _check_shape(config: HopperConfig, problem: GemmProblem) -> str | None:
    itemsize = ITEMSIZE[problem.a_dtype]
    slab_k = SLAB_BYTES // itemsize
    if config.tile_k % slab_k:
        return f"tile_k = {config.tile_k} is not a multiple of {slab_k} ({SLAB_BYTES} bytes)"
    if config.num_consumers not in (1, 2, 3):
        return f"{config.num_consumers} consumers: registers suffice for 1 to 3"
    if config.tile_m % (BLOCK_ROWS * config.num_sharing):
        return f"tile_m = {config.tile_m} does not give each consumer whole blocks of {BLOCK_ROWS}"
    if config.raster not in RASTERS:
        return f"raster = {config.raster!r} is none of {', '.join(RASTERS)}"
    # TMA stores multiples of 16 bytes, and boxes of 8 columns of an n-major B load slowly.
    of_halves = itemsize == 2 and problem.b_major == "k" and ITEMSIZE[problem.out_dtype] > 1
    in_eights = config.transposed_c or of_halves
    unit_n = 8 if in_eights else BLOCK_ROWS if config.mma_sync else 16
    if config.tile_n % unit_n or not 0 < config.tile_n <= 256:
        return f"tile_n = {config.tile_n} is not a multiple of {unit_n} up to 256"
    if config.cluster_size > MAX_CLUSTER:
        extents = [config.cluster_m, config.cluster_n, config.cluster_k][
            : 2 + (config.cluster_k > 1)
        ]
        return f"a cluster of {' x '.join(map(str, extents))} blocks: at most {MAX_CLUSTER}"
    for tile, major, shares in (
        (config.tile_m, problem.a_major, config.cluster_n),
        (config.tile_n, problem.b_major, config.cluster_m),
    ):
        lines = lines_of_share(tile, major, shares, slab_k)
        if lines % 1:
            return f"a cluster's {shares} blocks do not load {tile} rows in equal shares"
        if lines > MAX_BOX:
            return f"boxes of {lines:.0f} rows: TMA loads at most {MAX_BOX}"
    registers = check_registers(config)
    if registers is not None:
        return registers
    shared = config.shared_bytes(itemsize, problem.b_major)
    if shared > SHARED_BYTES:
        return f"the ring and the staging take {shared} bytes; a block has {SHARED_BYTES}"
    return None


def check_registers(config: HopperConfig) -> str | None:
    """Return why the sums of a tile do not fit the registers, or None if they do."""
    accumulators = config.accumulators + (config.tile_n // 2 if config.promote else 0)
    room = 192 if config.promote or config.ping_pong else 128 if config.mma_sync else 160
    of_three = 128 if config.scaled else 96
    if accumulators > (room if config.num_consumers < 3 else of_three):
        return f"{accumulators} accumulators a thread leave no registers"
    return None


def check_tall_tiles(config: HopperConfig) -> str | None:
    """Return why a tile's A of 32 bits does not fit the registers, or None if it does.

    A consumer of more than 64 rows holds two fragments of A.
    """
    tall = config.tile_m > 64 * config.num_consumers
    if tall and config.cluster_m > 1 and config.accumulators >= 128:
        return (
            f"{config.accumulators} accumulators, two fragments of an A of 32 bits and what a "
            "cluster along m needs do not fit the registers"
        )
    return None


def _check_registers_beside(config: HopperConfig, problem: GemmProblem) -> str | None:
    """Return why the sums leave no registers for an epilogue or for A, or None if they do."""
    fused = problem.epilogue is not None and config.split_k == 1
    if config.accumulators > _BESIDE_OTHERS and (a_in_registers(problem) or fused):
        return f"{config.accumulators} accumulators a thread leave no registers for anything else"
    if fused and config.cluster_k > 1 and config.num_consumers > 1 and config.accumulators >= 96:
        return (
            f"{config.accumulators} accumulators a thread, sums of a cluster's parts and an "
            "epilogue do not fit the registers of two consumers"
        )
    why_not = check_tall_tiles(config) if a_in_registers(problem) else None
    if why_not is not None:
        return why_not
    if config.num_consumers < 3 or config.mma_sync:
        return None
    if a_in_registers(problem) or fused:
        return (
            "a thread of three consumers has 152 registers, too few for an A of 32 bits or for an "
            "epilogue"
        )
    return None
