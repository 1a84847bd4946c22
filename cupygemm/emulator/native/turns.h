/* Batches that run side by side, on all available cores.
 *
 *   member 0   ── accesses ───────────── accesses ─────
 *   member 1   ─────────── accesses ───────────── accesses
 *
 * They share nothing but device memory, and access it in turns: each member makes one access and
 * those that soon follow it in straight code, or begins its next batch, and the turn passes on. So
 * the order of all accesses, and the records of races, depend neither on the number of cores nor on
 * which is faster.
 * execution/side_by_side.py mirrors the structures, and runs the reference path in this order. */
#ifndef CUPYGEMM_TURNS_H
#define CUPYGEMM_TURNS_H

#include "loop.h"

enum { MEMBERS = 4, NO_EVENT = -1 }; /* MEMBERS: on any number of cores */

enum member_state {
    CAN_RUN, /* up to its next access */
    WAITS,   /* for its turn */
    RUNS,
    HAS_ENDED,
};

struct member {
    struct loop *loop;
    int32_t state;
    int32_t event;  /* why its loop has returned, NO_EVENT: it is running */
    int64_t thread; /* the thread with its registers in the cache, -1: none */
};

struct turns {
    struct member members[MEMBERS];
    int64_t turn;    /* the member that may access device memory; -1: all have ended */
    int64_t stopped; /* that member has an event for Python */
    int64_t first;   /* the first workgroup that no member has begun */
    int64_t groups;  /* in a batch; the last one may have fewer */
    int64_t end;     /* workgroups of the launch */
    int64_t work;    /* wave-instructions until Python handles signals */
};

/* Whether an instruction accesses memory that batches share. */
static inline bool is_ordered(const struct instruction *i) {
    return i->counter == VM_COUNTER || i->counter == SCALAR_COUNTER || i->counter == FLAT_COUNTER;
}

static inline bool has_turn(const struct turns *t, int64_t member) {
    return __atomic_load_n(&t->turn, __ATOMIC_ACQUIRE) == member;
}

void pass_turn(struct turns *t);

#endif
