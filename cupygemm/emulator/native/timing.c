/* A cycle model of a compute unit, fed with the instructions that its waves executed.
 *
 *   cycle       0      1      2      3      4 ..
 *   SIMD        0      1      2      3      0 ..     each issues in its turn, up to one instruction
 *                                                    for each unit, from different waves
 *   waves  ─► VECTOR, MATRIX (of the SIMD), LDS_PIPE, VECTOR_MEMORY (of the CU), SCALAR, ...
 *
 * A wave issues in order and stalls on what it must wait for: a register that an MFMA has yet to
 * write, a busy unit, a counter, a barrier. Time skips to the next turn in which some
 * wave may issue. Among the waves of a SIMD that may issue, the highest priority wins, then the
 * oldest wave. */
#include "timing.h"

struct outstanding {
    int64_t done[MAX_OUTSTANDING]; /* a ring, in order of issue */
    int64_t issued;
    int64_t latest; /* of all: results return in order */
};

struct wave {
    const struct timing_wave *given;
    int64_t next; /* index of the next instruction in the stream */
    int64_t base; /* when it could issue if nothing held it */
    int64_t wake; /* earliest time */
    uint8_t reason;
    bool ended, arrived;
    int priority;
    struct outstanding vm, lgkm;
    int64_t scalar_done; /* scalar memory returns in any order */
    int64_t ready[REGISTERS], ready_matrix[REGISTERS];
    int64_t ready_accumulator[REGISTERS], ready_same[REGISTERS];
    int16_t owner_first[REGISTERS], owner_count[REGISTERS]; /* the last result that it belongs to */
};

struct workgroup {
    int64_t waves, arrived, barrier;
};

struct cu {
    const struct timing_input *in;
    struct timing_output *out;
    struct wave *waves;
    struct workgroup *workgroups;
    int64_t vector_free[SIMDS], matrix_free[SIMDS], lds_port[SIMDS];
    int64_t lds_free, memory_free, memory_returned;
    double l2_free, fabric_free, hbm_free;
};

static inline int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

/* -- registers --------------------------------------------------------------------------------- */

static int64_t readable(const struct wave *w, const struct timing_op *op) {
    int64_t when = 0;
    for (int i = 0; i < op->num_sources; i++) {
        const struct range *r = &op->sources[i];
        bool same =
            r->is_c && w->owner_first[r->first] == r->first && w->owner_count[r->first] == r->count;
        const int64_t *table = op->unit != MATRIX ? w->ready
                               : !r->is_c         ? w->ready_matrix
                               : same             ? w->ready_same
                                                  : w->ready_accumulator;
        for (int n = r->first; n < r->first + r->count; n++)
            when = later(when, table[n]);
    }
    /* A result must not overtake an earlier one in the same register. */
    for (int i = 0; i < op->num_results && op->unit != MATRIX; i++)
        for (int n = op->results[i].first; n < op->results[i].first + op->results[i].count; n++)
            when = later(when, w->ready[n]);
    return when;
}

static void write_results(struct wave *w, const struct timing_op *op, int64_t now) {
    for (int i = 0; i < op->num_results; i++)
        for (int n = op->results[i].first; n < op->results[i].first + op->results[i].count; n++) {
            w->ready[n] = now + op->ready;
            w->ready_matrix[n] = now + op->ready_matrix;
            w->ready_accumulator[n] = now + op->ready_accumulator;
            w->ready_same[n] = now + op->ready_same;
            w->owner_first[n] = op->results[i].first;
            w->owner_count[n] = op->results[i].count;
        }
}

/* -- counters ---------------------------------------------------------------------------------- */

static void count(struct outstanding *o, int64_t done) {
    o->latest = later(o->latest, done);
    o->done[o->issued++ % MAX_OUTSTANDING] = o->latest;
}

/* The time when at most `most` operations are outstanding. */
static int64_t drained(const struct outstanding *o, int64_t most) {
    int64_t place = o->issued - most;
    return place > 0 ? o->done[(place - 1) % MAX_OUTSTANDING] : 0;
}

static int64_t waited(const struct wave *w, const struct timing_op *op, uint8_t *reason) {
    int64_t vm = drained(&w->vm, op->vm), lgkm = drained(&w->lgkm, op->lgkm);
    if (op->lgkm == 0)
        lgkm = later(lgkm, w->scalar_done);
    *reason = vm > lgkm ? VMCNT : LGKMCNT;
    return later(vm, lgkm);
}

/* -- issue ------------------------------------------------------------------------------------- */

static void hold_until(int64_t time, uint8_t why, int64_t *when, uint8_t *reason) {
    if (time > *when) {
        *when = time;
        *reason = why;
    }
}

/* The earliest known issue time of the wave's next instruction, and what it waits for. */
static int64_t earliest(struct cu *cu, struct wave *w, const struct timing_op *op, int64_t now,
                        uint8_t *reason) {
    const struct timing_machine *m = cu->in->machine;
    int simd = w->given->simd;
    int64_t when = w->base;
    if (op->flags & WAITS) {
        uint8_t why;
        int64_t time = waited(w, op, &why);
        hold_until(time, why, &when, reason);
        return when;
    }
    if (op->flags & BARRIER) {
        struct workgroup *g = &cu->workgroups[w->given->workgroup];
        if (w->arrived) { /* released by now: `wake` was infinite until then */
            hold_until(g->barrier, AT_BARRIER, &when, reason);
            return when;
        }
        if (when > now)
            return when;
        w->arrived = true;
        *reason = AT_BARRIER;
        if (++g->arrived < g->waves)
            return INT64_MAX;
        g->arrived = 0;
        g->barrier = now + m->barrier_latency;
        for (int64_t i = 0; i < cu->in->num_waves; i++)
            if (cu->waves[i].given->workgroup == w->given->workgroup && cu->waves[i].arrived)
                cu->waves[i].wake = g->barrier;
        return g->barrier;
    }
    hold_until(readable(w, op), DEPENDENCY, &when, reason);
    if (op->flags & COUNTS_LGKM && op->unit == LDS_PIPE)
        hold_until(drained(&w->lgkm, 14), COUNTER_FULL, &when, reason);
    if (op->flags & COUNTS_VM)
        hold_until(drained(&w->vm, 62), COUNTER_FULL, &when, reason);
    switch (op->unit) {
    case MATRIX: hold_until(cu->matrix_free[simd], MATRIX_BUSY, &when, reason); /* fall through */
    case VECTOR: hold_until(cu->vector_free[simd], VECTOR_BUSY, &when, reason); break;
    case LDS_PIPE: hold_until(cu->lds_port[simd], LDS_BUSY, &when, reason); break;
    case VECTOR_MEMORY:
        hold_until(cu->memory_free - m->memory_queue, MEMORY_BUSY, &when, reason);
        break;
    default: break;
    }
    return when;
}

static void transfer(double *free, double rate, int32_t bytes, int64_t *start) {
    if (!bytes)
        return;
    *free = (*free > (double)*start ? *free : (double)*start) + bytes / rate;
    *start = later(*start, (int64_t)*free);
}

/* Send an access through vL1D, in order of issue, and through the levels below it. Returns the time
 * at which its data arrive: vL1D returns them in order, for all waves. */
static int64_t access_memory(struct cu *cu, const struct timing_op *op, int32_t index,
                             int64_t now) {
    const struct timing_machine *m = cu->in->machine;
    const struct memory_access *a = &cu->in->accesses[index];
    cu->memory_free = later(cu->memory_free, now) + a->cycles;
    int64_t time = cu->memory_free;
    transfer(&cu->l2_free, m->l2_rate, a->l2, &time);
    transfer(&cu->fabric_free, m->fabric_rate, a->fabric, &time);
    transfer(&cu->hbm_free, m->memory_rate, a->memory, &time);
    time += a->latency;
    if (op->flags & STORES)
        return time;
    cu->memory_returned = later(time, cu->memory_returned + a->cycles);
    return cu->memory_returned;
}

/* LDS serves a SIMD's accesses one after another, and those of all SIMDs in order of arrival. */
static int64_t access_lds(struct cu *cu, const struct timing_op *op, int simd, int32_t cycles,
                          int64_t now) {
    int64_t start = later(cu->lds_free, now + TURN);
    cu->lds_free = start + cycles;
    cu->lds_port[simd] = later(now + op->busy, start);
    return later(cu->lds_free, now + op->busy) + cu->in->machine->lds_latency;
}

static void issue(struct cu *cu, struct wave *w, const struct timing_op *op, int64_t now) {
    int64_t place = w->next++, end = now + op->busy;
    int simd = w->given->simd;
    int32_t cost = cu->in->cost[place];
    uint8_t unit = (uint8_t)op->unit;
    cu->out->busy[unit] += unit == LDS_PIPE        ? cost
                           : unit == VECTOR_MEMORY ? cu->in->accesses[cost].cycles
                                                   : op->busy;
    switch (unit) {
    case MATRIX:
        cu->matrix_free[simd] = now + op->busy;
        cu->vector_free[simd] = now + (op->flags & BLOCKS_VECTOR ? op->busy : TURN);
        break;
    case VECTOR: cu->vector_free[simd] = now + op->busy; break;
    case LDS_PIPE: end = access_lds(cu, op, simd, cost, now); break;
    case VECTOR_MEMORY:
        end = access_memory(cu, op, cost, now);
        if (op->flags & WRITES_LDS)
            cu->lds_free = later(cu->lds_free, now) + op->busy;
        break;
    case SCALAR_MEMORY:
        end = now + cu->in->machine->scalar_latency;
        w->scalar_done = later(w->scalar_done, end);
        break;
    default: break;
    }
    if (op->flags & COUNTS_VM)
        count(&w->vm, end);
    if (op->flags & COUNTS_LGKM && unit != SCALAR_MEMORY)
        count(&w->lgkm, end);
    if (op->flags & SETS_PRIORITY)
        w->priority = op->priority;
    if (op->flags & BARRIER)
        w->arrived = false;
    write_results(w, op, now);
    cu->out->issue[place] = now;
    cu->out->end[place] = end;
    cu->out->reason[place] = now > w->base ? w->reason : NOT_STALLED;
    cu->out->cycles = later(cu->out->cycles, later(end, now + op->hold));
    w->base = w->wake = now + op->hold;
    w->reason = NOT_STALLED;
    w->ended = w->next == w->given->first + w->given->count;
}

/* End a wave, which then no longer counts at barriers. */
static void leave(struct cu *cu, struct wave *w, int64_t now) {
    struct workgroup *g = &cu->workgroups[w->given->workgroup];
    g->waves--;
    if (!g->waves || g->arrived < g->waves || !g->arrived)
        return;
    g->arrived = 0;
    g->barrier = now + cu->in->machine->barrier_latency;
    for (int64_t i = 0; i < cu->in->num_waves; i++)
        if (cu->waves[i].given->workgroup == w->given->workgroup && cu->waves[i].arrived)
            cu->waves[i].wake = g->barrier;
}

/* Execute a SIMD's turn. `order` are its waves. */
static void turn(struct cu *cu, const int32_t *order, int64_t num, int64_t now) {
    bool used[BUFFER + 1] = {false};
    for (int priority = 3; priority >= 0; priority--)
        for (int64_t i = 0; i < num; i++) {
            struct wave *w = &cu->waves[order[i]];
            if (w->ended || w->priority != priority || w->wake > now)
                continue;
            const struct timing_op *op = &cu->in->ops[cu->in->stream[w->next]];
            int64_t when = earliest(cu, w, op, now, &w->reason);
            if (when > now) {
                w->wake = when;
                continue;
            }
            int unit = op->unit == MATRIX ? VECTOR : op->unit; /* they share the way */
            if (unit != BUFFER && used[unit]) {
                w->reason = ARBITRATION;
                w->wake = now + TURN;
                continue;
            }
            used[unit] = true;
            issue(cu, w, op, now);
            if (w->ended)
                leave(cu, w, now);
        }
}

/* The next turn of a SIMD from `time` on. */
static int64_t align(int64_t time, int simd) { return time + ((simd - time) % TURN + TURN) % TURN; }

static int64_t next_time(const struct cu *cu) {
    int64_t next = INT64_MAX;
    for (int64_t i = 0; i < cu->in->num_waves; i++) {
        const struct wave *w = &cu->waves[i];
        if (w->ended || w->wake == INT64_MAX)
            continue;
        int64_t time = align(w->wake, w->given->simd);
        next = time < next ? time : next;
    }
    return next;
}

/* Simulate the waves of a compute unit from their start to their end. Returns 0; 1 if waves wait
 * at a barrier that the others never reach; 2 without memory. */
int timing_simulate(const struct timing_input *in, struct timing_output *out) {
    struct cu cu = {.in = in, .out = out};
    cu.waves = calloc((size_t)in->num_waves, sizeof *cu.waves);
    cu.workgroups = calloc((size_t)in->num_workgroups, sizeof *cu.workgroups);
    int32_t *order = malloc((size_t)in->num_waves * SIMDS * sizeof *order);
    int64_t num[SIMDS] = {0};
    int result = cu.waves && cu.workgroups && order ? 0 : 2;
    for (int64_t i = 0; i < in->num_waves && !result; i++) {
        const struct timing_wave *given = &in->waves[i];
        cu.waves[i].given = given;
        cu.waves[i].next = given->first;
        cu.waves[i].ended = !given->count;
        cu.workgroups[given->workgroup].waves += given->count != 0;
        order[given->simd * in->num_waves + num[given->simd]++] = (int32_t)i;
    }
    while (!result) {
        int64_t now = next_time(&cu);
        if (now == INT64_MAX)
            break;
        int simd = (int)(now % TURN);
        turn(&cu, order + simd * in->num_waves, num[simd], now);
    }
    for (int64_t i = 0; i < in->num_waves && !result; i++)
        result = cu.waves[i].ended ? 0 : 1;
    free(cu.waves);
    free(cu.workgroups);
    free(order);
    return result;
}
