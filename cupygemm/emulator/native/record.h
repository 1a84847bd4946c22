/* The counts of the run loop when a launch is profiled: profiling/native_recorder.py mirrors the
 * structures, and profiling/recorder.py defines the counts. */
#ifndef CUPYGEMM_RECORD_H
#define CUPYGEMM_RECORD_H

#include "loop.h"

/* Operations recorded per wave and counter; the counters are vmcnt, LDS and scalar memory. */
enum { RING = 64, NUM_RINGS = 3, VM_RING = 0, LDS_RING, SCALAR_RING };

/* An operation that a wave issued, and the wave's clock at that time. */
struct issued_operation {
    int64_t pc, clock;
};

/* How often an s_waitcnt waited for an operation, for one of its two counters. One of the
 * other numbers in place of the operation's program counter marks another count. */
enum { FREE = 0, WAITING_WAVES = -1, DISTANCE = -2 };
struct wait_count {
    int64_t wait; /* program counter times 2, 1 more for lgkmcnt, plus 2; FREE for no entry */
    int64_t operation, times;
};

/* An instruction that a traced wave executed, with its LDS cycles or the number of its memory
 * access, or -1. */
struct traced {
    int32_t wave, pc, cost;
};

/* Bytes of one wave's memory access, and lines by the cache in which they were found. */
struct traced_access {
    int32_t counts[5];
};

struct recorder {
    int64_t *clock;                            /* (num_waves,) instructions executed */
    struct issued_operation *rings[NUM_RINGS]; /* (num_waves, RING) */
    int64_t *before;                           /* (3, num_waves) room for a wait */
    int64_t *lanes, *conflicts, *lines;        /* (num_counts,), (num_counts, 3), (num_counts, 5) */
    void **traffic;                            /* (num_counts,) struct traffic */
    void *caches;                              /* struct cache_model */
    struct wait_count *waits; /* a hash table; the number of entries is a power of 2 */
    int64_t num_waits, waits_size;
    const uint8_t *traced; /* (num_waves,) */
    int64_t *places;       /* positions in the group of its traced waves */
    struct traced *trace;
    struct traced_access *accesses;
    int32_t *cycles;                /* (num_waves,) */
    struct traced_access *outcomes; /* (num_waves,) */
    int64_t num_places, trace_length, trace_size, num_accesses;
    int64_t first_access; /* number of accesses[0] in the launch */
    int64_t left, complete;
    int64_t ticks; /* instructions of the group that its clocks lack */
};

/* Start recording after the group, or its place, has changed. */
void start_recording(struct loop *l);

/* Whether there is room to record an instruction. */
bool can_record(const struct loop *l, const struct instruction *i);

/* Record an instruction that accesses registers only. */
void record_step(struct loop *l, const struct instruction *i);
void record_lanes(const struct loop *l, const struct instruction *i, struct waves waves);

/* Record a memory instruction that has been issued, before it executes. */
void record_issue(struct loop *l, const struct instruction *i);
void record_memory(struct loop *l, const struct instruction *i);

/* Execute s_waitcnt and count the operations that it waits for. */
void record_wait(struct loop *l, const struct instruction *i);

/* Bring the clocks of the group up to date. */
void record_ticks(struct loop *l);

#endif
