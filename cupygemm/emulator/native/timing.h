/* The input and output of the timing model of a compute unit; profiling/timing mirrors
 * these structures and gives the sources of the numbers. Times are in clock cycles. */
#ifndef CUPYGEMM_TIMING_H
#define CUPYGEMM_TIMING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIMDS = 4,
    TURN = 4, /* a SIMD issues every fourth cycle */
    REGISTERS = 512,
    MAX_RANGES = 5,
    MAX_OUTSTANDING = 64, /* memory operations of a counter; vmcnt has 6 bits */
};

/* The unit that executes an instruction. Those up to SCALAR_MEMORY are issued to a unit, one each
 * per SIMD and turn; the others are executed in the wave's instruction buffer. */
enum unit { VECTOR, MATRIX, SCALAR, VECTOR_MEMORY, LDS_PIPE, SCALAR_MEMORY, BRANCH, BUFFER };

enum flag {
    BLOCKS_VECTOR = 1, /* MFMA that leaves the vector unit idle */
    STORES = 2,
    COUNTS_VM = 4,
    COUNTS_LGKM = 8,
    WAITS = 16,
    BARRIER = 32,
    SETS_PRIORITY = 64,
    WRITES_LDS = 128, /* direct-to-LDS load */
};

/* Why a wave could not issue earlier. `Reason` in timing/pipeline.py has them in this order. */
enum reason {
    NOT_STALLED,
    DEPENDENCY,  /* a result of the matrix or vector unit */
    MATRIX_BUSY, /* another MFMA occupies the unit */
    VECTOR_BUSY,
    LDS_BUSY, /* the path from the SIMD to LDS */
    MEMORY_BUSY,
    VMCNT,
    LGKMCNT,
    COUNTER_FULL,
    AT_BARRIER,
    ARBITRATION, /* another wave of the SIMD was issued */
    NUM_REASONS,
};

struct range {
    int16_t first, count, is_c, unused; /* is_c: the accumulator of an MFMA */
};

/* A static instruction. */
struct timing_op {
    int32_t unit, flags;
    int32_t hold;                                        /* until the wave can issue its next */
    int32_t busy;                                        /* of the unit */
    int32_t ready;                                       /* until others may read the result, */
    int32_t ready_matrix, ready_accumulator, ready_same; /* until an MFMA may: as A or B, as part of
                                                            C, as the very same C */
    int32_t vm, lgkm;                                    /* of an s_waitcnt */
    int32_t priority;
    int32_t num_sources, num_results;
    struct range sources[MAX_RANGES], results[2];
};

/* The requests of a vector memory instruction to the caches. */
struct memory_access {
    int32_t cycles;                /* of vL1D */
    int32_t latency;               /* of the farthest level that it reached */
    int32_t l2, fabric, memory, _; /* bytes from each, the launch's average */
};

struct timing_wave {
    int64_t first, count; /* its part of the stream */
    int32_t workgroup, simd;
};

struct timing_machine {
    int32_t lds_latency, scalar_latency, barrier_latency, memory_queue;
    double l2_rate, fabric_rate, memory_rate; /* this CU's bytes per cycle */
};

/* The executed instructions of all waves, one after another. `cost` is the LDS cycles of an LDS
 * instruction, and the index of a vector memory instruction's access. */
struct timing_input {
    const struct timing_machine *machine;
    const struct timing_op *ops;
    const int32_t *stream, *cost;
    const struct memory_access *accesses;
    const struct timing_wave *waves;
    int64_t num_waves, num_workgroups;
};

struct timing_output {
    int64_t *issue, *end; /* by place in the stream */
    uint8_t *reason;
    int64_t cycles;
    int64_t busy[BUFFER + 1]; /* summed over SIMDs */
};

#endif
