"""What the model is for: kernels with one fault each, all of which it finds, and says where.

A fault is a change of a kernel's text before it is compiled: a wait, a fence or an arrival left
out, a parity or an address turned. Some an H200 would survive most of the time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

from cupygemm import testing
from cupygemm._backends.hopper.tile_shapes import (
    CONFIGS,
    NARROW_CONFIGS,
    TURNED_CONFIGS,
    configs_for,
)
from cupygemm._records.formats import as_stored
from tests.cuda.variants import BF16, E4M3, F16, F32, F64, I8, Variant, multiply
from tests.hopper_model.device import Model, ModelError

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
    HALVES, config=next(c for c in TURNED_CONFIGS if c.tile_n % 16 == 8 and c.tile_n < 136)
)
TURNED_DIRECT = replace(TURNED, aligned=False)
NARROW = replace(HALVES, config=next(c for c in NARROW_CONFIGS if c.cluster_size == 1))
BYTES = Variant(configs_for("i8")[-1], I8, I8, "CF", aligned=True)
BYTES_DIRECT = replace(BYTES, aligned=False)
FP64 = Variant(configs_for("f64")[2], F64, F64, "CF", aligned=True)


@dataclass(frozen=True)
class Fault:
    """A text, what stands for it, and what the machine says then."""

    name: str
    text: str
    instead: str
    said: str
    variant: Variant = HALVES
    epilogue: bool = False


FAULTS = [
    Fault("no wait for a full stage",
          "mbarrier_wait(T::full(shared, ring.stage), ring.parity);\n            wgmma_fence();",
          "wgmma_fence();", "into which a TMA load has not landed"),
    Fault("no wait for an empty stage", "mbarrier_wait(T::empty(shared, ring.stage)", "(void)(0",
          "race|one more arrival"),
    Fault("another parity", "ring.parity ^ 1)", "ring.parity)", "deadlock"),
    Fault("a parity that does not flip", "parity ^= 1;", "", "waits for parity"),
    Fault("a stage released before wgmma has read it",
          "wgmma_wait<1>(); // the step before is done with its stage\n            if",
          "if", "which wgmma or a TMA store still reads"),
    Fault("a stage not released", "if (thread == 0)\n                mbarrier_arrive(empty);", "",
          "deadlock"),
    Fault("accumulators read before wgmma is done", "wgmma_wait<0>();\n        settle",
          "settle", "read before wgmma.wait_group"),
    Fault("no wait for the second stage of a group",
          "if (block == 0)\n                        mbarrier_wait(",
          "if (block + i == 0)\n                        mbarrier_wait(",
          "into which a TMA load has not landed", PROMOTED),
    Fault("the first stage of a group released before wgmma has read it",
          "wgmma_wait<1>(); // the group's", "// the group's",
          "which wgmma or a TMA store still reads", PROMOTED),
    Fault("sums added before wgmma is done", "wgmma_wait<0>();\n                settle(sums)",
          "settle(sums)", "read before wgmma.wait_group", PROMOTED),
    Fault("no fence before wgmma", "wgmma_fence(); // the epilogue read the accumulators", "",
          "no wgmma.fence since the accumulators"),
    Fault("registers of A loaded behind the fence",
          "a.load(stage, consumer, thread);\n            wgmma_fence();",
          "wgmma_fence(); a.load(stage, consumer, thread);",
          "no wgmma.fence since registers", REGISTERS),
    Fault("another stride in a descriptor", "stride << 32", "leading << 32", "wrong|race"),
    Fault("fewer bytes announced", "(full, args.stage_bytes)", "(full, args.stage_bytes - 128)",
          "deadlock|race|one more arrival|announced"),
    Fault("barriers that the copy engine does not see", "fence_mbarrier_init();\n        tma",
          "tma", "has not executed fence.mbarrier_init"),
    Fault("consumers that do not wait for the barriers",
          "block_sync(Shape::num_threads);", "block_arrive(Shape::num_threads);",
          "is not initialised"),
    Fault("sums that nobody marks", "sizeof(u64), args.mark);", "sizeof(u64), 0);",
          "waited for", STREAM),
    Fault("sums of another cluster", "cluster_index() - other,", "cluster_index() - other + 1,",
          "waited for|wrong", STREAM),
    Fault("steps of another piece", "work.first_group = from - first;", "work.first_group = 0;",
          "wrong", STREAM),
    Fault("memory read before the work before has ended",
          "wait_for_work_before(work.row | work.column);", "",
          "has not executed griddepcontrol.wait"),
    Fault("memory written before the work before has ended",
          "wait_for_work_before();\n        const SharedAddress", "const SharedAddress",
          "has not executed griddepcontrol.wait"),
    Fault("registers that nobody gives", "setmaxnreg_dec<producer_registers>();", "", "deadlock",
          TWO_CONSUMERS),
    Fault("only the own block is told", "if (thread < Multicast<Config>::num_peers)",
          "if (thread < 1)", "deadlock|one more arrival", CLUSTER),
    Fault("a block that ends before the other", "cluster_sync(); // no block ends", "// no block",
          "has ended", CLUSTER),
    Fault("a block that loads all that it shares", "multicast ? rank * share : 0", "0",
          "race", CLUSTER),
    Fault("a staging buffer overwritten", "tma_store_wait_read<num_buffers - 1>();",
          "tma_store_wait_read<num_buffers>();", "which wgmma or a TMA store"),
    Fault("stores behind no proxy fence", "fence_async_shared();\n", "",
          "has not executed fence.proxy.async"),
    Fault("a store before all have staged",
          "warpgroup_sync(barrier);           // it is written, and the copy", "// the copy",
          "race|has not executed fence.proxy.async"),
    Fault("a block read before all have staged",
          "staged_sync(barrier); // it is written\n", "", "wrong", DIRECT),
    Fault("a block overwritten before it is stored",
          "staged_sync(barrier); // the buffer may be written\n", "", "wrong",
          replace(DIRECT, result=F32)),
    Fault("warps that store what others staged",
          "Config::tma_store || Config::c_turned || T::a_in_registers", "Config::tma_store",
          "wrong", REGISTERS_DIRECT),
    Fault("warps that store what others turned",
          "Config::tma_store || Config::c_turned || T::a_in_registers", "Config::tma_store",
          "wrong", TURNED_DIRECT),
    Fault("the last eight columns not turned", "stmatrix_x2_trans(at, left, right)", "(void)0",
          "wrong", TURNED),
    Fault("the first rows of a turned block stored twice", "c_row + at)", "c_row)", "wrong",
          replace(TURNED, config=next(c for c in TURNED_CONFIGS if c.tile_n == 176))),
    Fault("a narrow box of B loaded as wide", "is_narrow ? narrow : map", "map",
          "announced|one more arrival|deadlock|race", NARROW),
    Fault("a narrow box of C stored as wide", "wide < columns ? args.narrow_c : args.c",
          "args.c", "wrong", NARROW),
    Fault("more of a narrow block stored than there is", "minimum(static_cast<i32>(wide),",
          "minimum(static_cast<i32>(columns),", "wrong", replace(NARROW, aligned=False)),
    Fault("bytes swizzled as wider rows are", "line / (128 / row_bytes)", "line", "wrong", BYTES),
    Fault("bytes of other sums", "%2, 0x40;", "%2, 0x04;", "wrong", BYTES),
    Fault("a staging buffer of bytes overwritten", "tma_store_wait_read<num_buffers - 1>();",
          "tma_store_wait_read<num_buffers>();", "which wgmma or a TMA store", BYTES),
    Fault("fewer elements beside the vectors", "i < share; ++i)\n                store_global",
          "i < share - 1; ++i)\n                store_global", "wrong", BYTES_DIRECT),
    Fault("no wait for the next stage of fp64", "if (last && leaves && more)", "if (false)",
          "into which a TMA load has not landed", FP64),
    Fault("a stage of fp64 that is not released",
          "release(empty, lane);\n            stage", "stage", "deadlock", FP64),
    Fault("a stage of fp64 released before it is read",
          "ring.advance();\n            // Behind", "ring.advance(); release(empty, lane); //",
          "race|one more arrival|ended unseen|into which", FP64),
    Fault("fp64 released by warps that do not count", "Config::mma_sync ? 4 : 1", "1",
          "one more arrival|race|ended unseen", FP64),
    Fault("the same eight columns of fp64 twice", "load_fragment<Config::b_major>(at, 1, step)",
          "load_fragment<Config::b_major>(at, 0, step)", "wrong", FP64),
    Fault("shared memory that ends before its stores", "output.drain(thread);", "",
          "may still read shared memory"),
    Fault("one row's factors for another", "epilogue.load(rows[half], row,",
          "epilogue.load(rows[half], row - 4 * half,", "wrong", epilogue=True),
    Fault("a column that is not there", "columns_left - static_cast<i32>(at);", "2;",
          "an access outside every array", DIRECT, epilogue=True),
    Fault("a pair at an odd element", "count == 1 || S::vectors", "true",
          "global address 0x[0-9a-f]+ is no multiple of 8", DIRECT, epilogue=True),
]  # fmt: skip


def run(cp: object, fault: Fault) -> None:
    """Multiply by the kernel of a fault, several tiles of several rounds of stages."""
    variant, odd = fault.variant, int(not fault.variant.aligned)
    m, n, k = 136, 144 + odd, 4 * variant.config.tile_k + 8
    x1, x2 = testing.integer_operands((m, k), (k, n), variant.dtype)
    a, b = (
        cp.asarray(np.array(as_stored(x), order=order))
        for x, order in zip((x1, x2), variant.orders, strict=True)
    )
    options = {}
    if fault.epilogue:
        options = {"scale_a": np.float32(2.0) ** (np.arange(m) % 3), "c": np.ones((m, n), F32),
                   "bias": np.arange(n).astype(BF16)}  # fmt: skip
    on_device = {name: cp.asarray(value) for name, value in options.items()}
    testing.assert_gemm_exact(multiply(variant, a, b, **on_device), x1, x2, **options)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found(cp, model: Model, fault):
    def changed(text: str) -> str:
        if "cupygemm_gemm(" not in text:
            return text
        assert fault.text in text
        return text.replace(fault.text, fault.instead)

    model.fault = changed
    found = (finding(cp, model, fault, seed) for seed in range(4))
    assert re.search(fault.said, next(filter(None, found), "nothing in four schedules"))


def finding(cp, model: Model, fault: Fault, seed: int) -> str:
    """Return what is wrong with a kernel by the schedule of a seed, or nothing."""
    model.seed = seed
    try:
        run(cp, fault)
    except (ModelError, AssertionError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "variant",
    [
        HALVES,
        CLUSTER,
        TWO_CONSUMERS,
        DIRECT,
        PROMOTED,
        REGISTERS,
        TURNED,
        NARROW,
        FP64,
        BYTES,
        BYTES_DIRECT,
    ],
)
def test_without_a_fault_nothing_is_found(cp, model, variant):
    for seed in range(3):
        model.seed = seed
        fused = variant.dtype == F16 and not variant.config.c_turned
        run(cp, Fault("none", "", "", "", variant, epilogue=fused))
