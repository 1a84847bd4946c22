"""The fitted constants of Hopper's cost models: what each of them means.

The values are in `constants`, which ``python -m benchmarks.fit hopper`` writes. Cycles are those of
`HopperArch.clock_mhz`. A share is a fraction by which something takes longer, for example 0.05.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class KernelConstants:
    """The constants of the model of a kernel's time, see `cupygemm._backends.hopper.cost.model`.

    A table for clusters gives the value for clusters of so many blocks or more.

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
        Share for each 64 columns that a tile has fewer than 128: it reads more of A from shared
        memory.
    three_consumers : float
        Factor of the tensor cores' time: while one consumer waits, two multiply.
    alone : float
        The same for a block without multicast that computes several tiles.
    tall_fragments, wide_turns : float
        Of operands of 32 bits, the share that a consumer of more than 64 rows adds that loads A to
        registers, and that consumers in turns add whose tiles have more than 128 columns.
    power, power_alone : float
        The share that long products lose to the limit of power, and how many times as much the
        blocks without multicast lose.
    long_work : float
        Multiply-adds times bytes of an element of a long product.
    step, lone_step : float
        Cycles of each step of k, and further ones where a consumer has the SM to itself.
    issue, issue_box : float
        Cycles that the producer takes for a step, and for each of the step's boxes.
    l2_of_sm : float
        Bytes per clock that an SM takes in.
    slice_clocks : float
        Clocks in which a slice of L2 gives a line.
    uneven : float
        How unevenly lines lie on the slices, see `_load_cycles`.
    merged_alone, merged_in_clusters : float
        Exponent of the number of requests for a line that reach its slice; 1 if none meet.
    sent, meeting : mapping of int to float
        The share by which loads of clusters take longer, and the cycles that each of their steps
        adds for 128 bytes of k: the blocks wait for each other.
    meeting_alone : float
        How many times as many of these cycles, where a consumer has the SM to itself.
    lines, lines_sent, lines_l2, lines_memory : float
        Share of the bytes that rows which begin within lines add: for the SM that asks for them,
        for one that they are multicast to, for L2, and for the memory.
    camping_along_k, camping_across : float
        Share that rows that begin at multiples of 4 KiB add in L2, by whether k lies along them.
    narrow : float
        Share that tiles add whose columns begin and end within lines.
    batch : float
        Factor of the loads of a batch: the tiles of a small matrix fetch it from memory all at
        once.
    epilogue, epilogue_bytes, epilogue_bytes_f64 : float
        Cycles of the end of a tile, and bytes per clock that it stores, of fp64 too.
    transposed_c : float
        Factor of the stores where a kernel computes the transpose.
    one_buffer : float
        The same where a block of results waits for the one before it.
    cluster : float
        Cycles of a tile in a cluster, whose blocks begin it when the slowest does.
    memory_of_sm : float
        Bytes per clock that an SM takes in of what L2 does not hold.
    memory : float
        Bytes per clock of the memory.
    warm : float
        Time of the memory for what L2 still holds from the call before, as a share of the full
        time.
    warm_bytes_all, warm_bytes_none : float
        L2 holds all of a product of up to the first number of bytes, and from the second on hardly
        any of it.
    strip, stream_memory : float
        Share by which the memory reads strips of one line more slowly, and wider ones less so; and
        share where clusters are at different depths.
    cold_bytes_none, cold_bytes_all : float
        From the first number of bytes on, the rate at which SMs receive data from memory begins to
        count; from the second on it counts fully.
    idle_alone, idle_in_clusters : float
        Share that the memory loses where all SMs are idle, without clusters and with them.
    overlap : float
        Share of the time of what does not bind, which delays what does.
    add, add_bytes : float
        Cycles of the kernel that adds parts of k, and the bytes per clock that it reads.
    wait, wait_evenly, wait_behind : float
        Cycles in which a cluster waits for what others leave (stream-K); where each cluster
        computes one part of one tile, and all parts are equal; and where there are more tiles than
        clusters.
    sum_bytes : float
        The bytes per clock of the sums that it adds.
    cut : float
        Factor by which tiles that are cut must promise to be sooner: cutting costs power, too.
    lone_block : float
        Factor of promoted sums of one block of rows: nothing is multiplied while it is added.
    exchange, exchange_bytes : float
        Cycles in which the blocks of a cluster exchange the sums of parts of k, and the bytes per
        clock that a block reads of others.
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


@dataclass(frozen=True, eq=False)
class Fp64Constants:
    """The times of cuBLAS's fp64 products, and of copies of unaligned operands.

    Attributes
    ----------
    launch : float
        Cycles.
    fma_per_clock, fma_per_clock_of_batches : float
        Multiply-adds of an SM, whose tensor cores do 128 at a clock of their own.
    unaligned : float
        Factor where rows do not begin at multiples of 16 bytes.
    copy_bytes_per_clock : float
        Bytes that this library's copies read and write in a clock of the GPU.
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
        Cycles of each operand's copy, which is a kernel more.
    copy_bytes_per_clock : float
        Bytes that are read and written in a clock of the GPU.
    """

    launch: float
    fma_per_clock: float
    copy: float
    copy_bytes_per_clock: float
