/* The run loop in C: the data of a program, and its state. execution/native_loop.py mirrors
 * both structures, field for field.
 *
 * The loop executes the instructions that have a native form, for all waves of a group, until it
 * meets something that Python handles (enum event). Python then executes one instruction by the
 * reference path and calls the loop again. */
#ifndef CUPYGEMM_LOOP_H
#define CUPYGEMM_LOOP_H

#include "alu.h"

enum { VECTOR_WORDS = 8, SCALAR_WORDS = 3 }; /* bit masks over 512 and over 129 registers */

/* How the loop executes an instruction. */
enum action {
    IN_PYTHON,
    ALU,    /* an alu_function, for one wave */
    MATRIX, /* mfma_run */
    VECTOR_MEMORY,
    SCALAR_MEMORY,
    LDS_MEMORY,
    NOTHING,
    WAIT,
    BRANCH,
    BARRIER,
    END,
};

enum condition { ALWAYS, IF_SCC0, IF_SCC1, IF_VCCZ, IF_VCCNZ, IF_EXECZ, IF_EXECNZ };
enum looked_at { NEVER, IF_PARTIAL, ANYHOW, IF_ZERO, IF_INFINITE }; /* see definedness/lanes.py */
enum hazard { NO_HAZARD, UNDEFINED_BITS, FOR_PYTHON }; /* UNDEFINED_BITS: see second_run.h */
enum counter { NO_COUNTER, VM_COUNTER, LDS_COUNTER, SCALAR_COUNTER, FLAT_COUNTER };

/* Why the loop returned. */
enum event {
    DONE,        /* every wave has ended */
    NEEDS_GROUP, /* Python's scheduler chooses the waves */
    NOT_DECODED, /* the instruction at `pc` has not been decoded */
    STEP,        /* Python executes the instruction at `pc` */
    FAULT,       /* the memory instruction at `pc` stopped with `code` */
    UNDEFINED,   /* the load at `pc` found undefined bytes */
    STUCK,       /* no wave can run */
    ENDLESS,     /* no wave has ended for too long; `leader` would run next */
    FOLLOWED,    /* another batch has started, see following.h */
    AT_ACCESS,   /* the instruction at `pc` waits for its turn, see turns.h */
};

typedef int memory_function(struct machine *m, const struct operation *op, const int64_t *ids,
                            int64_t first, int64_t step, int64_t count, uint32_t pc);

/* An instruction of a program. */
struct instruction {
    int64_t pc, next_pc, target; /* target: where a branch goes */
    void *function;              /* of an ALU or memory instruction */
    const void *operation;       /* its operands */
    int32_t action, condition, counter;
    int32_t slot;                   /* in the scoreboard, for a load; else -1 */
    int32_t index;                  /* in `counts` */
    int32_t cost;                   /* nanoseconds that a wave takes, roughly */
    uint32_t mode_mask, mode_value; /* the function is valid where MODE & mask is value */
    uint32_t wait;                  /* operand of s_waitcnt */
    int32_t looked_at;              /* when to examine it although no register is undefined */
    int32_t ends_turn;              /* other batches access device memory next, see turns.h */
    int32_t counts_lanes;           /* a profile counts the lanes that execute it */
    const uint64_t *phases;         /* masks of lanes that LDS serves together, for a profile */
    int64_t num_phases;
    const struct second_run *second_run; /* run on undefined bits, NULL: in Python */
    uint64_t vector_reads[VECTOR_WORDS], vector_writes[VECTOR_WORDS];
    uint64_t scalar_reads[SCALAR_WORDS], scalar_writes[SCALAR_WORDS]; /* bit 128 is SCC */
};

struct recorder;
struct following;
struct turns;

struct loop {
    struct machine *machine;
    struct recorder *recorder;    /* NULL: no profile */
    struct instruction **program; /* by pc / 4; NULL: not decoded */
    int64_t program_words;
    int64_t *counts; /* waves that executed each instruction */
    int64_t num_counts;

    /* scoreboard.c */
    int32_t *vm_issued, *lds_issued, *scalar_issued; /* (num_waves,), as are the next */
    int32_t *vm_done, *lds_done, *scalar_done;
    int32_t *vm_released, *lds_released, *vm_passed, *lds_passed;
    int64_t *last_memory_pc;
    int32_t *slots; /* (num_slots, 2, num_waves): numbers of the load in its counters, 0 for none */
    struct instruction **slot_loads; /* (num_slots,) */
    int64_t num_slots;
    int64_t *outstanding; /* slots with a load that some wave has not waited for, oldest first */
    int64_t num_outstanding;
    uint8_t *unwritten; /* (512, num_waves): see marks.py */
    int64_t checks;     /* count what the waves issue and wait for */
    int64_t hazards;    /* and look for missing waits */
    uint64_t pending_vector[VECTOR_WORDS], pending_scalar[SCALAR_WORDS];
    uint64_t suspect_vector[VECTOR_WORDS], suspect_scalar[SCALAR_WORDS], marked[VECTOR_WORDS];

    /* schedule.c */
    uint8_t *alive, *at_barrier, *synchronised; /* (num_waves,) */
    uint8_t *early;                             /* (workgroups,) see early_ends.py */
    uint8_t *joins;                             /* (num_waves,) all 0 between uses */
    int64_t *last_run, *pcs;
    uint32_t *modes;
    int32_t *barrier_epoch; /* (workgroups,) */
    int64_t *others;        /* sorted program counters of runnable waves outside the group */
    int64_t num_others, ahead;
    int64_t lockstep;               /* the loop chooses the groups */
    int64_t shared;                 /* waves that spin yield: in every order but a random one */
    int64_t cluster, cluster_waves; /* the running one, and its waves */
    int64_t turn, fair, contended, fair_steps, patience, spent, limit, quantum;
    int64_t leader;
    int64_t work; /* wave-instructions until Python's scheduler chooses a group and looks around */

    /* the group */
    int64_t *ids;       /* its waves, ascending */
    int64_t *remaining; /* waves that have not executed the memory instruction that stopped */
    int64_t num_remaining;
    int64_t *listed; /* program counters of instructions that Python executes */
    int64_t num_listed;
    int64_t first, step, count; /* where `step` is not 0, the waves are first, first + step, ... */
    int64_t has_group, pc, mode, steps;
    int64_t resumed;             /* Python executed an instruction: the group may have to yield */
    int64_t code;                /* of the fault */
    int64_t current;             /* program counter of the latest memory instruction */
    struct following *following; /* the batches after this one, NULL: Python starts them */
    struct turns *turns;         /* the batches that run side by side, NULL: none */
    int64_t member;              /* its number among them */
};

static inline struct waves group_waves(const struct loop *l) {
    return (struct waves){l->step ? NULL : l->ids, l->first, l->step, l->count};
}

/* loop.c */
int run_batch(struct loop *l);

/* scoreboard.c */
enum hazard hazard(struct loop *l, const struct instruction *i);
void issue(struct loop *l, const struct instruction *i);
void wait_for(struct loop *l, uint32_t counts);
void release_wave(struct loop *l, int64_t wave);

/* second_run.c */
bool run_again(struct loop *l, const struct instruction *i);

/* schedule.c */
int next_group(struct loop *l);
bool yields(struct loop *l);
void stop_group(struct loop *l);
bool barrier(struct loop *l, const struct instruction *i, bool *goes_on);
bool end_waves(struct loop *l, const struct instruction *i);

#endif
