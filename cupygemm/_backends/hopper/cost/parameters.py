"""The meaning of the fitted constants of Hopper's cost models.

The values are in `constants`, which ``python -m benchmarks.fit hopper`` writes. Cycles are those of
`HopperArch.clock_mhz`. A share is the fraction by which something takes longer, for example 0.05.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False, repr=False, init=False)
class KernelConstants:
    """The constants of the model of a kernel's time, see `cupygemm._backends.hopper.cost.model`.

    A key of a table for clusters is the smallest number of blocks to which a value applies.

    Attributes
    ----------
    launch : float
        Cycles until the first stage is full, and from the last store to the kernel's end.
    launch_of_clusters : mapping of int to float
        Cycles that the launch of clusters adds.
    mma : float
        Time of the tensor cores, as a multiple of that at their full rate.
    mma_f64 : mapping of int to float
        The same for fp64, by the number of consumers: one alone cannot hide its loads.
    below_128 : float
        Share for each 64 columns by which a tile is narrower than 128: it reads more of A from
        shared memory.
    three_consumers : float
        Factor of the tensor cores' time: while one consumer waits, two multiply.
    alone : float
        The same for a block without multicast that computes several tiles.
    tall_fragments, wide_turns : float
        For 32-bit operands, the share of a consumer with more than 64 rows that loads A to
        registers, and the share of consumers in turns whose tiles have more than 128 columns.
    power, power_alone : float
        The share that long products lose to the power limit, and the factor of this share for
        blocks without multicast.
    long_work : float
        Multiply-adds times bytes of an element of a long product.
    step, lone_step : float
        Cycles of each step of k, and additional cycles if a consumer is alone on its SM.
    issue, issue_box : float
        Cycles of the producer for a step, and for each of the step's boxes.
    l2_of_sm : float
        Bytes per clock that an SM receives.
    slice_clocks : float
        Clocks in which a slice of L2 delivers a line.
    uneven : float
        How unevenly lines are distributed over the slices, see `_load_cycles`.
    merged_alone, merged_in_clusters : float
        Exponent of the number of requests for a line that reach its slice; 1 if none meet.
    sent, meeting : mapping of int to float
        The share by which loads of clusters take longer, and the cycles that each of their steps
        adds for 128 bytes of k: the blocks wait for each other.
    meeting_alone : float
        Factor of these cycles if a consumer is alone on its SM.
    lines, lines_sent, lines_l2, lines_memory : float
        Share of bytes that rows add that begin within lines: for the SM that requests them, for an
        SM that receives them by multicast, for L2, and for the memory.
    camping_along_k, camping_across : float
        Share that rows that begin at multiples of 4 KiB add in L2, if they are along k and if not.
    narrow : float
        Share that tiles add whose columns begin and end within lines.
    batch : float
        Factor of the loads of a batch: all tiles of a small matrix fetch it from memory
        simultaneously.
    epilogue, epilogue_bytes, epilogue_bytes_f64 : float
        Cycles of the end of a tile, and bytes per clock that it stores, also in fp64.
    transposed_c : float
        Factor of the stores if a kernel computes the transpose.
    one_buffer : float
        The same if a block of results waits for the previous one.
    half_sectors : float
        Share by which the stores take longer if tiles begin amid sectors of a row of C.
    cluster : float
        Cycles of a tile in a cluster, whose blocks begin when the slowest block does.
    memory_of_sm : float
        Bytes per clock that an SM receives of data that is not in L2.
    memory : float
        Bytes per clock of the memory.
    warm : float
        Time of the memory for data that L2 still holds from the previous call, as a share of the
        full time.
    warm_bytes_all, warm_bytes_none : float
        L2 holds all of a product up to the first number of bytes, and hardly any of it from the
        second on.
    strip, stream_memory : float
        Share by which the memory reads strips of one line more slowly, and wider strips less so;
        and share if clusters are at different depths.
    cold_bytes_none, cold_bytes_all : float
        The rate at which SMs receive data from memory begins to matter at the first number of
        bytes, and matters fully from the second on.
    idle_alone, idle_in_clusters : float
        Share that the memory loses while all SMs are idle, without clusters and with them.
    overlap : float
        Share of the time of other resources that is added to the time of the bottleneck.
    add, add_bytes : float
        Cycles of the kernel that adds parts of k, and the bytes per clock that it reads.
    wait, wait_evenly, wait_behind : float
        Cycles in which a cluster waits for the sums of others (stream-K): in general; if each
        cluster computes one part of one tile, and all parts are equal; and if there are more tiles
        than clusters.
    sum_bytes : float
        The bytes per clock of the sums that it adds.
    cut : float
        Factor by which split tiles must be faster to be chosen: splitting also costs power.
    lone_block : float
        Factor of promoted sums of one block of rows: the tensor cores are idle while it is added.
    exchange, exchange_bytes : float
        Cycles in which the blocks of a cluster exchange the sums of parts of k, and the bytes per
        clock that a block reads from others.
    """

    launch: float
    launch_of_clusters: Mapping[int, float]
    mma: float
    mma_f64: Mapping[int, float]
    below_128: float
    three_consumers: float
    alone: float
    tall_fragments: float
    wide_turns: float
    power: float
    power_alone: float
    long_work: float
    step: float
    lone_step: float
    issue: float
    issue_box: float
    l2_of_sm: float
    slice_clocks: float
    uneven: float
    merged_alone: float
    merged_in_clusters: float
    sent: Mapping[int, float]
    meeting: Mapping[int, float]
    meeting_alone: float
    lines: float
    lines_sent: float
    lines_l2: float
    lines_memory: float
    camping_along_k: float
    camping_across: float
    narrow: float
    batch: float
    epilogue: float
    epilogue_bytes: float
    epilogue_bytes_f64: float
    transposed_c: float
    one_buffer: float
    half_sectors: float
    cluster: float
    memory_of_sm: float
    memory: float
    warm: float
    warm_bytes_all: float
    warm_bytes_none: float
    strip: float
    stream_memory: float
    cold_bytes_none: float
    cold_bytes_all: float
    idle_alone: float
    idle_in_clusters: float
    overlap: float
    add: float
    add_bytes: float
    wait: float
    wait_evenly: float
    wait_behind: float
    sum_bytes: float
    cut: float
    lone_block: float
    exchange: float
    exchange_bytes: float

    def __init__(self, **values: Any) -> None:
        """Set all fields; a generated method of so many arguments takes long to compile."""
        if values.keys() != self.__annotations__.keys():
            raise TypeError(f"other fields than {', '.join(self.__annotations__)}")
        vars(self).update(values)


@dataclass(frozen=True, eq=False)
class Fp64Constants:
    """The times of cuBLAS's fp64 products, and of copies of unaligned operands.

    Attributes
    ----------
    launch : float
        Cycles.
    fma_per_clock, fma_per_clock_of_batches : float
        Multiply-adds of an SM, whose tensor cores do 128 per clock, at a separate clock.
    unaligned : float
        Factor if rows do not begin at multiples of 16 bytes.
    copy_bytes_per_clock : float
        Bytes that this library's copies read and write per clock of the GPU.
    """

    launch: float
    fma_per_clock: float
    fma_per_clock_of_batches: float
    unaligned: float
    copy_bytes_per_clock: float


@dataclass(frozen=True, eq=False)
class Fp32Constants:
    """The times of cuBLAS's fp32 products, and of splitting operands into tf32.

    Attributes
    ----------
    launch : float
        Cycles.
    fma_per_clock : float
        Multiply-adds of an SM, which has 128 lanes of fp32.
    copy : float
        Cycles of each operand's copy, an additional kernel.
    copy_bytes_per_clock : float
        Bytes that are read and written per clock of the GPU.
    """

    launch: float
    fma_per_clock: float
    copy: float
    copy_bytes_per_clock: float
