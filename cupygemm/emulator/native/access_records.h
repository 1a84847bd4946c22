/* The records of accesses to LDS and device memory, and what flags in LDS order. */
#ifndef CUPYGEMM_ACCESS_RECORDS_H
#define CUPYGEMM_ACCESS_RECORDS_H

#include <stdint.h>

#include "operation.h"

enum { MAX_WAVES = 16 };     /* of a workgroup */
enum { TOGETHER = 64 };      /* granules of LDS with one record, at most */
enum { PENDING_LOADS = 64 }; /* listed for each wave */
enum { FLAGS = 32 };         /* possible flags in LDS, per workgroup */
enum { STATES = 8 };         /* latest values of a flag, with what each orders */

/* The last accesses to an LDS byte, or to 2 to 16 of them (a granule, see `shadow_shift`). */
struct record {
    uint64_t write; /* the last write: operation's number in its wave, wave, how */
    uint64_t
        read; /* the reads since that write: number of the last, all readers, epoch, last reader */
};

/* The same for TOGETHER granules, whose own records are then out of date: all have this write, and
 * those of a mask have this read (lds_blocks.h). `write` is 0 where they are up to date. */
struct lds_block {
    uint64_t write, read, readers, first; /* the first granule; they need not be aligned */
};

/* A load from LDS that is not in the records, and the list of them (lds_pending.h). */
struct lds_load {
    uint64_t exec;
    uint32_t wave, seq, each, unused; /* granules of a lane */
    uint16_t granule[LANES];          /* the first one of each lane */
};

struct lds_pending {
    uint32_t count, recorded; /* loads since the last barrier: listed, and not */
    uint32_t low, high;       /* the listed loads are from granules between these */
};

/* One wave's access to 16 bytes of global memory: the time, the number among the wave's vector
 * memory operations, and a 16-bit mask of the bytes, of which the low 8 bits are above the wave's
 * number in the launch and the high 8 above the pc. */
struct site {
    uint32_t time, seq;
    uint32_t wave; /* bits 0-23 */
    uint32_t pc;   /* bits 0-21 in dwords, bit 22 COHERENT, bit 23 ATOMIC_SITE, SCALAR_SITE */
};

struct global_record {
    struct site write, read, other_read;
};

/* Accesses of a wave to all granules of a line, to the same bytes of each. A site with a time
 * replaces those of all its granules, whose records are then out of date. */
struct line_record {
    struct site write, read, other_read;
    uint32_t latest; /* time of the latest access that the granules' records have */
    uint32_t unused[3];
};

/* A store or atomic of a workgroup, and the number of operations that a wave of it had completed by
 * then, see global_order.h. The first release with that number. */
struct release {
    uint32_t time;
    int32_t done;
};

/* The times of an earlier launch in another stream that is unordered with this one. */
struct interval {
    uint32_t first, last;
};

/* What a flag in LDS orders after a write to it: how many operations of each wave come before what
 * follows a wait for it (lds_flags.h). */
struct flag_state {
    uint32_t value; /* that the write has left, set by the next one */
    int32_t wave;   /* that wrote it; -1: before the first write */
    uint32_t seq, unused;
    int32_t lds[MAX_WAVES], vm[MAX_WAVES]; /* vm: direct-to-LDS loads */
};

/* An LDS address that all active lanes of a store or an atomic have written. */
struct lds_flag {
    uint32_t address, used;  /* time of the last write, 0 if there is none */
    uint32_t writes, unused; /* the number of states so far */
    struct flag_state state[STATES];
};

/* The flags of a workgroup, and what each wave (first index) knows of the others through them. */
struct lds_flags {
    uint32_t time, unused;
    int32_t lds[MAX_WAVES][MAX_WAVES], vm[MAX_WAVES][MAX_WAVES];
    struct lds_flag flag[FLAGS];
};

#endif
