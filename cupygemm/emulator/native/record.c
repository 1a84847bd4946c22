/* Record the counts of a profile while the run loop executes. Python's version is
 * profiling/recorder.py and profiling/timing/trace.py; both may take turns within a batch. */
#include "record.h"

void count_conflicts(struct machine *m, const struct operation *op, const int64_t *ids,
                     int64_t first, int64_t step, int64_t count, const uint64_t *phases,
                     int64_t num_phases, int64_t *totals, int32_t *each);
void count_lines(struct machine *m, const struct operation *op, const int64_t *ids, int64_t first,
                 int64_t step, int64_t count, int64_t *totals);
void simulate_caches(struct machine *m, const struct operation *op, const int64_t *ids,
                     int64_t first, int64_t step, int64_t count, void *model, void *traffic,
                     void *each);

void start_recording(struct loop *l) {
    struct recorder *r = l->recorder;
    struct waves group = group_waves(l);
    r->num_places = r->ticks = 0;
    for (int64_t at = 0; r->complete && at < group.count; at++)
        if (r->traced[wave_at(group, at)])
            r->places[r->num_places++] = at;
}

bool can_record(const struct loop *l, const struct instruction *i) {
    const struct recorder *r = l->recorder;
    /* Room for the operations of the program's instructions that a wait may cover, per counter. */
    bool waits_fit = i->action != WAIT || r->num_waits + 2 * l->num_counts + 4 < r->waits_size;
    return waits_fit && r->trace_length + r->num_places <= r->trace_size;
}

/* -- the trace --------------------------------------------------------------------------------- */

/* Record the instruction in the traced waves of the group; `costs` are of all its waves. */
static void record_trace(struct loop *l, const struct instruction *i, const int32_t *costs,
                         const struct traced_access *outcomes) {
    struct recorder *r = l->recorder;
    struct waves group = group_waves(l);
    if (!r->num_places)
        return;
    for (int64_t k = 0; k < r->num_places; k++) {
        int64_t at = r->places[k];
        int32_t cost = costs ? costs[at] : -1;
        if (outcomes) {
            cost = (int32_t)(r->first_access + r->num_accesses);
            r->accesses[r->num_accesses++] = outcomes[at];
        }
        r->trace[r->trace_length++] =
            (struct traced){(int32_t)wave_at(group, at), (int32_t)i->pc, cost};
    }
    r->left -= r->num_places;
    if (r->left < 0)
        r->complete = r->num_places = 0;
}

/* -- counts ------------------------------------------------------------------------------------ */

void record_ticks(struct loop *l) {
    struct recorder *r = l->recorder;
    struct waves group = group_waves(l);
    for (int64_t at = 0; r->ticks && at < group.count; at++)
        r->clock[wave_at(group, at)] += r->ticks;
    r->ticks = 0;
}

void record_step(struct loop *l, const struct instruction *i) {
    l->recorder->ticks++;
    record_trace(l, i, NULL, NULL);
}

/* Several cores may count concurrently. */
void record_lanes(const struct loop *l, const struct instruction *i, struct waves waves) {
    int64_t lanes = 0;
    for (int64_t at = 0; at < waves.count; at++)
        lanes += __builtin_popcountll(scalar64(l->machine, EXEC, wave_at(waves, at)));
    __atomic_fetch_add(&l->recorder->lanes[i->index], lanes, __ATOMIC_RELAXED);
}

/* The clock includes the instruction itself, which `ticks` does not yet. */
static void remember(struct loop *l, int ring, const int32_t *issued, int64_t pc) {
    struct recorder *r = l->recorder;
    struct waves group = group_waves(l);
    for (int64_t at = 0; at < group.count; at++) {
        int64_t wave = wave_at(group, at);
        r->rings[ring][wave * RING + (issued[wave] & (RING - 1))] =
            (struct issued_operation){pc, r->clock[wave] + 1};
    }
}

void record_issue(struct loop *l, const struct instruction *i) {
    record_ticks(l);
    if (i->counter == VM_COUNTER || i->counter == FLAT_COUNTER)
        remember(l, VM_RING, l->vm_issued, i->pc);
    if (i->counter == LDS_COUNTER || i->counter == FLAT_COUNTER)
        remember(l, LDS_RING, l->lds_issued, i->pc);
    if (i->counter == SCALAR_COUNTER)
        remember(l, SCALAR_RING, l->scalar_issued, i->pc);
    l->recorder->ticks = 1;
}

void record_memory(struct loop *l, const struct instruction *i) {
    struct recorder *r = l->recorder;
    struct waves g = group_waves(l);
    struct machine *m = l->machine;
    const int32_t *costs = NULL;
    const struct traced_access *outcomes = NULL;
    if (i->counts_lanes)
        record_lanes(l, i, g);
    if (i->action == VECTOR_MEMORY) {
        struct traced_access *each = r->num_places ? r->outcomes : NULL;
        if (each)
            memset(each, 0, (size_t)g.count * sizeof *each);
        simulate_caches(m, i->operation, g.ids, g.first, g.step, g.count, r->caches,
                        r->traffic[i->index], each);
        count_lines(m, i->operation, g.ids, g.first, g.step, g.count, r->lines + 5 * i->index);
        if (i->num_phases) /* FLAT, which may reach LDS */
            count_conflicts(m, i->operation, g.ids, g.first, g.step, g.count, i->phases,
                            i->num_phases, r->conflicts + 3 * i->index, NULL);
        outcomes = each;
    } else if (i->action == LDS_MEMORY && i->num_phases) {
        memset(r->cycles, 0, (size_t)g.count * sizeof *r->cycles);
        count_conflicts(m, i->operation, g.ids, g.first, g.step, g.count, i->phases, i->num_phases,
                        r->conflicts + 3 * i->index, r->cycles);
        costs = r->cycles;
    }
    record_trace(l, i, costs, outcomes);
}

/* -- waits ------------------------------------------------------------------------------------- */

static void count_wait(struct recorder *r, int64_t wait, int64_t operation, int64_t times) {
    uint64_t hash = ((uint64_t)wait * 31 + (uint64_t)operation) * 0x9E3779B97F4A7C15ull;
    int64_t place = (int64_t)(hash >> 32) & (r->waits_size - 1);
    struct wait_count *found = r->waits + place;
    while (found->wait != FREE && (found->wait != wait || found->operation != operation)) {
        place = (place + 1) & (r->waits_size - 1);
        found = r->waits + place;
    }
    if (found->wait == FREE) {
        *found = (struct wait_count){wait, operation, 0};
        r->num_waits++;
    }
    found->times += times;
}

/* Count the operations of one ring that a wave has waited for; returns the clock of the youngest,
 * or 0. */
static int64_t count_operations(struct recorder *r, int64_t wait, int ring, int64_t wave,
                                int64_t before, int64_t after) {
    const struct issued_operation *operations = r->rings[ring] + wave * RING;
    int64_t pending = after - before < RING ? after - before : RING;
    for (int64_t back = 0; back < pending; back++)
        count_wait(r, wait, operations[(after - back) & (RING - 1)].pc, 1);
    return pending > 0 ? operations[after & (RING - 1)].clock : 0;
}

static void count_waiting(struct recorder *r, int64_t wait, int64_t wave, int64_t youngest) {
    if (youngest <= 0)
        return;
    count_wait(r, wait, WAITING_WAVES, 1);
    count_wait(r, wait, DISTANCE, r->clock[wave] - 1 - youngest);
}

void record_wait(struct loop *l, const struct instruction *i) {
    struct recorder *r = l->recorder;
    struct waves group = group_waves(l);
    int64_t waves = l->machine->num_waves, wait = 2 * i->pc + 2;
    record_step(l, i);
    record_ticks(l);
    for (int64_t at = 0; at < group.count; at++) {
        int64_t wave = wave_at(group, at);
        r->before[wave] = l->vm_done[wave];
        r->before[waves + wave] = l->lds_done[wave];
        r->before[2 * waves + wave] = l->scalar_done[wave];
    }
    wait_for(l, i->wait);
    for (int64_t at = 0; at < group.count; at++) {
        int64_t wave = wave_at(group, at);
        const int64_t *before = r->before + wave;
        int64_t vm = count_operations(r, wait, VM_RING, wave, before[0], l->vm_done[wave]);
        int64_t lds =
            count_operations(r, wait + 1, LDS_RING, wave, before[waves], l->lds_done[wave]);
        int64_t scalar = count_operations(r, wait + 1, SCALAR_RING, wave, before[2 * waves],
                                          l->scalar_done[wave]);
        count_waiting(r, wait, wave, vm);
        count_waiting(r, wait + 1, wave, lds > scalar ? lds : scalar);
    }
}

int64_t size_of_recorder(void) { return sizeof(struct recorder); }
