"""Faults of Hopper's kernels: how each changes the text, and the machine's message about it.

The first field names the test and says what is wrong with the changed kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cupygemm._backends.hopper.choice.configurations import configs_for
from cupygemm._backends.hopper.choice.tile_shapes import (
    CONFIGS,
    NARROW_CONFIGS,
    TRANSPOSED_CONFIGS,
    TRANSPOSED_PART_CONFIGS,
)
from tests.cuda.variants import E4M3, F16, F32, F64, I8, Variant

ALONE = [c for c in CONFIGS if c.cluster_size == 1]
HALVES = Variant(ALONE[-1], F16, F16, "CC", aligned=True)
CLUSTER = replace(HALVES, config=next(c for c in CONFIGS if c.cluster_size > c.num_consumers))
TWO_CONSUMERS = replace(HALVES, config=next(c for c in ALONE[::-1] if c.num_consumers == 2))
STREAM = replace(HALVES, config=replace(HALVES.config, stream_k=4))
DIRECT = replace(HALVES, aligned=False)
LOW = next(c for c in configs_for("e4m3fn") if (c.tile_m, c.tile_n, c.cluster_m) == (64, 128, 1))
PROMOTED = Variant(LOW, E4M3, F32, "CF", aligned=True)
REGISTERS = Variant(configs_for("tf32")[-1], F32, F32, "FF", aligned=True, precision="tf32")
REGISTERS_DIRECT = replace(REGISTERS, aligned=False)
TURNED = replace(
    HALVES, config=next(c for c in TRANSPOSED_CONFIGS if c.tile_n % 16 == 8 and c.tile_n < 136)
)
TURNED_DIRECT = replace(TURNED, aligned=False)
NARROW = replace(HALVES, config=next(c for c in NARROW_CONFIGS if c.cluster_size == 1))
IN_PARTS = replace(HALVES, config=next(c for c in TRANSPOSED_PART_CONFIGS if c.num_consumers == 2))
BYTES = Variant(configs_for("i8")[-1], I8, I8, "CF", aligned=True)
BYTES_DIRECT = replace(BYTES, aligned=False)
FP64 = Variant(configs_for("f64")[2], F64, F64, "CF", aligned=True)


@dataclass(frozen=True)
class Fault:
    """A passage of a kernel, its faulty replacement, and a pattern of the machine's message."""

    name: str
    text: str
    instead: str
    said: str
    variant: Variant = HALVES
    epilogue: bool = False


FAULTS = [
    Fault(
        "no wait for a full stage",
        text="mbarrier_wait(T::full(shared, ring.stage), ring.parity);\n            wgmma_fence();",
        instead="wgmma_fence();",
        said="into which a copy has not landed",
    ),
    Fault(
        "no wait for an empty stage",
        text="mbarrier_wait(T::empty(shared, ring.stage)",
        instead="(void)(0",
        said="race|one more arrival",
    ),
    Fault("another parity", text="ring.parity ^ 1)", instead="ring.parity)", said="deadlock"),
    Fault("a parity that does not flip", text="parity ^= 1;", instead="", said="waits for parity"),
    Fault(
        "a stage released before wgmma has read it",
        text="wgmma_wait<1>(); // the previous step is done with its stage\n            if",
        instead="if",
        said="which wgmma or a TMA store still reads",
    ),
    Fault(
        "a stage not released",
        text="if (thread == 0)\n                mbarrier_arrive(empty);",
        instead="",
        said="deadlock",
    ),
    Fault(
        "accumulators read before wgmma is done",
        text="wgmma_wait<0>();\n        Mma::settle",
        instead="Mma::settle",
        said="read before wgmma.wait_group",
    ),
    Fault(
        "no wait for the second stage of a group",
        text="if (block == 0)\n                        mbarrier_wait(",
        instead="if (block + i == 0)\n                        mbarrier_wait(",
        said="into which a copy has not landed",
        variant=PROMOTED,
    ),
    Fault(
        "the first stage of a group released before wgmma has read it",
        text="wgmma_wait<1>(); // the group's",
        instead="// the group's",
        said="which wgmma or a TMA store still reads",
        variant=PROMOTED,
    ),
    Fault(
        "sums added before wgmma is done",
        text="wgmma_wait<0>();\n                Mma::settle(sums)",
        instead="Mma::settle(sums)",
        said="read before wgmma.wait_group",
        variant=PROMOTED,
    ),
    Fault(
        "no fence before wgmma",
        text="wgmma_fence(); // the epilogue read the accumulators",
        instead="",
        said="no wgmma.fence since the accumulators",
    ),
    Fault(
        "registers of A loaded after the fence",
        text="a.load(stage, consumer, thread);\n            wgmma_fence();",
        instead="wgmma_fence(); a.load(stage, consumer, thread);",
        said="no wgmma.fence since registers",
        variant=REGISTERS,
    ),
    Fault(
        "another stride in a descriptor",
        text="stride << 32",
        instead="leading << 32",
        said="wrong|race",
    ),
    Fault(
        "fewer bytes announced",
        text="(full, args.stage_bytes)",
        instead="(full, args.stage_bytes - 128)",
        said="deadlock|race|one more arrival|announced",
    ),
    Fault(
        "barriers that the copy engine does not see",
        text="fence_mbarrier_init();\n        tma",
        instead="tma",
        said="has not executed fence.mbarrier_init",
    ),
    Fault(
        "consumers that do not wait for the barriers",
        text="block_sync(Shape::num_threads);",
        instead="block_arrive(Shape::num_threads);",
        said="is not initialised",
    ),
    Fault(
        "sums that nobody marks",
        text="sizeof(u64), args.mark);",
        instead="sizeof(u64), 0);",
        said="waited for",
        variant=STREAM,
    ),
    Fault(
        "sums of another cluster",
        text="cluster_index() - other,",
        instead="cluster_index() - other + 1,",
        said="waited for|wrong",
        variant=STREAM,
    ),
    Fault(
        "steps of another piece",
        text="work.first_group = from - first;",
        instead="work.first_group = 0;",
        said="wrong",
        variant=STREAM,
    ),
    Fault(
        "memory read before the work before has ended",
        text="wait_for_work_before(work.row | work.column);",
        instead="",
        said="has not executed griddepcontrol.wait",
    ),
    Fault(
        "memory written before the work before has ended",
        text="wait_for_work_before();\n    begin_on_sm",
        instead="begin_on_sm",
        said="has not executed griddepcontrol.wait",
    ),
    Fault(
        "registers that nobody gives",
        text="setmaxnreg_dec<producer_registers>();",
        instead=";",
        said="deadlock",
        variant=TWO_CONSUMERS,
    ),
    Fault(
        "only the own block is told",
        text="if (thread < Multicast<Config>::num_peers)",
        instead="if (thread < 1)",
        said="deadlock|one more arrival",
        variant=CLUSTER,
    ),
    Fault(
        "a block that ends before the other",
        text="cluster_sync(); // no block ends",
        instead="// no block",
        said="has ended",
        variant=CLUSTER,
    ),
    Fault(
        "a block that loads all that it shares",
        text="multicast && !by_k ? share * step : 0",
        instead="0",
        said="race",
        variant=CLUSTER,
    ),
    Fault(
        "a staging buffer overwritten",
        text="tma_store_wait_read<num_buffers - 1>();",
        instead="tma_store_wait_read<num_buffers>();",
        said="which wgmma or a TMA store",
    ),
    Fault(
        "stores after no proxy fence",
        text="fence_async_shared();\n",
        instead="",
        said="has not executed fence.proxy.async",
    ),
    Fault(
        "a store before all have staged",
        text="warpgroup_sync(barrier);           // it is written, and the copy",
        instead="// the copy",
        said="race|has not executed fence.proxy.async",
    ),
    Fault(
        "a block read before all have staged",
        text="staged_sync(barrier); // it is written\n",
        instead="",
        said="wrong",
        variant=DIRECT,
    ),
    Fault(
        "a block overwritten before it is stored",
        text="staged_sync(barrier); // the buffer may be written\n",
        instead="",
        said="wrong",
        variant=replace(DIRECT, result=F32),
    ),
    Fault(
        "warps that store what others staged",
        text="Config::tma_store || Config::transposed_c || T::a_in_registers",
        instead="Config::tma_store",
        said="wrong",
        variant=REGISTERS_DIRECT,
    ),
    Fault(
        "warps that store what others turned",
        text="Config::tma_store || Config::transposed_c || T::a_in_registers",
        instead="Config::tma_store",
        said="wrong",
        variant=TURNED_DIRECT,
    ),
    Fault(
        "the last eight columns not turned",
        text="stmatrix_x2_trans(at, left, right)",
        instead="(void)0",
        said="wrong",
        variant=TURNED,
    ),
    Fault(
        "the last eight columns not staged",
        text="stmatrix_x2(to, word(group, 0), word(group, 1))",
        instead="(void)0",
        said="wrong",
        variant=replace(
            NARROW, orders="CF", config=next(c for c in NARROW_CONFIGS if c.tile_n % 16)
        ),
    ),
    Fault(
        "the first rows of a turned block stored twice",
        text="static_cast<i32>(row + at)",
        instead="static_cast<i32>(row)",
        said="wrong",
        variant=replace(TURNED, config=next(c for c in TRANSPOSED_CONFIGS if c.tile_n == 176)),
    ),
    Fault(
        "a narrow box of B loaded as wide",
        text="is_narrow ? narrow : map",
        instead="map",
        said="announced|one more arrival|deadlock|race",
        variant=NARROW,
    ),
    Fault(
        "a narrow box of C stored as wide",
        text="wide < columns ? args.narrow_c : args.c",
        instead="args.c",
        said="wrong",
        variant=NARROW,
    ),
    Fault(
        "more of a narrow block stored than there is",
        text="minimum(static_cast<i32>(wide),",
        instead="minimum(static_cast<i32>(columns),",
        said="wrong",
        variant=replace(NARROW, aligned=False),
    ),
    Fault(
        "sums left in a ring that wgmma still reads",
        text="barrier_sync<barrier, Config::num_consumers * warpgroup_size>();",
        instead="",
        said="by the async proxy|which wgmma or a TMA store still reads",
        variant=IN_PARTS,
    ),
    Fault(
        "sums added before all parts have left them",
        text="cluster_exchange(); // all parts have written their sums",
        instead="",
        said="has not landed|wrong",
        variant=IN_PARTS,
    ),
    Fault(
        "sums of other columns",
        text="M::part(rank) * kept_vectors",
        instead="M::part(rank) * vectors",
        said="wrong|race|outside",
        variant=IN_PARTS,
    ),
    Fault(
        "bytes swizzled as wider rows are",
        text="line / (128 / row_bytes)",
        instead="line",
        said="wrong",
        variant=BYTES,
    ),
    Fault(
        "bytes of other sums", text="%2, 0x40;", instead="%2, 0x04;", said="wrong", variant=BYTES
    ),
    Fault(
        "a staging buffer of bytes overwritten",
        text="tma_store_wait_read<num_buffers - 1>();",
        instead="tma_store_wait_read<num_buffers>();",
        said="which wgmma or a TMA store",
        variant=BYTES,
    ),
    Fault(
        "fewer elements beside the vectors",
        text="i < share; ++i)\n                store_global",
        instead="i < share - 1; ++i)\n                store_global",
        said="wrong",
        variant=BYTES_DIRECT,
    ),
    Fault(
        "no wait for the next stage of fp64",
        text="if (last && leaves && more)",
        instead="if (false)",
        said="into which a copy has not landed",
        variant=FP64,
    ),
    Fault(
        "a stage of fp64 that is not released",
        text="release(empty, lane);\n            stage",
        instead="stage",
        said="deadlock",
        variant=FP64,
    ),
    Fault(
        "a stage of fp64 released before it is read",
        text="ring.advance();\n            // After",
        instead="ring.advance(); release(empty, lane); //",
        said="race|one more arrival|ended unseen|into which",
        variant=FP64,
    ),
    Fault(
        "fp64 released by warps that do not count",
        text="warps_release ? 4 : 1",
        instead="1",
        said="one more arrival|race|ended unseen",
        variant=FP64,
    ),
    Fault(
        "the same eight columns of fp64 twice",
        text="load_fragment<Config::b_major>(at, 1, step)",
        instead="load_fragment<Config::b_major>(at, 0, step)",
        said="wrong",
        variant=FP64,
    ),
    Fault(
        "shared memory that ends before its stores",
        text="output.drain(thread);",
        instead="",
        said="may still read shared memory",
    ),
    Fault(
        "one row's factors for another",
        text="epilogue.load(rows[half], row,",
        instead="epilogue.load(rows[half], row - 4 * half,",
        said="wrong",
        epilogue=True,
    ),
    Fault(
        "a column that is not there",
        text="columns_left - static_cast<i32>(at);",
        instead="2;",
        said="an access outside every array",
        variant=DIRECT,
        epilogue=True,
    ),
    Fault(
        "a pair at an odd element",
        text="count == 1 || S::vectors",
        instead="true",
        said="global address 0x[0-9a-f]+ is no multiple of 8",
        variant=DIRECT,
        epilogue=True,
    ),
]
