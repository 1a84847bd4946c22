/* The run loop: execute a batch of workgroups as far as C can.
 *
 *   group ─► instruction ─► hazards ─► count ─► execute ─► next instruction, or another group
 *
 * ALU and matrix instructions cannot fail and touch nothing that waves share. A straight run of
 * them is collected and executed for a few waves at a time, whose registers then stay in the
 * processor's cache. Memory instructions, branches and barriers execute for the whole group, in
 * order. */
#include "loop.h"
#include "following.h"
#include "lds_pending.h"
#include "record.h"
#include "threads.h"
#include "turns.h"

enum { RUN_LENGTH = 256, CHUNK = 32 };
enum { WORTH_SHARING = 80000 }; /* nanoseconds from which helpers save more than they cost */

void mfma_run(const void *op, uint32_t *vgpr, int64_t stride, const int64_t *waves, int64_t begin,
              int64_t end);

/* Instructions that are counted but not yet executed. */
struct run {
    const struct instruction *at[RUN_LENGTH];
    int length;
    int64_t cost; /* of one wave */
};

static void execute(const struct loop *l, const struct instruction *i, struct waves part) {
    struct machine *m = l->machine;
    if (i->action == MATRIX) {
        int64_t stride = m->row_dwords;
        if (part.ids)
            mfma_run(i->operation, m->vgpr, stride, part.ids, 0, part.count);
        else
            for (int64_t at = 0; at < part.count; at++)
                mfma_run(i->operation, m->vgpr, stride, NULL, wave_at(part, at),
                         wave_at(part, at) + 1);
        return;
    }
    alu_function *function = (alu_function *)i->function;
    if (function == valu_lanewise)
        valu_waves(m, i->operation, part);
    else if (function == salu)
        salu_waves(m, i->operation, part);
    else
        for (int64_t at = 0; at < part.count; at++)
            function(m, i->operation, wave_at(part, at));
}

/* The waves at positions [begin, end) of a group. */
static struct waves part_of(struct waves group, int64_t begin, int64_t end) {
    return (struct waves){group.ids ? group.ids + begin : NULL, group.first + begin * group.step,
                          group.step, end - begin};
}

struct shared_run {
    const struct loop *loop;
    const struct run *run;
    struct waves group;
    int64_t chunk;
};

static void execute_chunk(void *context, int64_t number) {
    const struct shared_run *s = context;
    int64_t begin = number * s->chunk, end = begin + s->chunk;
    struct waves part = part_of(s->group, begin, end < s->group.count ? end : s->group.count);
    for (int k = 0; k < s->run->length; k++) {
        if (s->loop->recorder && s->run->at[k]->counts_lanes)
            record_lanes(s->loop, s->run->at[k], part);
        execute(s->loop, s->run->at[k], part);
    }
}

/* Execute the collected instructions, on several cores if it is worthwhile. */
static void flush(const struct loop *l, struct run *r) {
    if (!r->length)
        return;
    struct shared_run s = {l, r, group_waves(l), CHUNK};
    bool pays = r->cost * l->count >= WORTH_SHARING;
    if (pays && l->count < num_threads() * 2 * CHUNK)
        s.chunk = (l->count + 2 * num_threads() - 1) / (2 * num_threads());
    int64_t chunks = (l->count + s.chunk - 1) / s.chunk;
    if (pays)
        share(execute_chunk, &s, chunks);
    else
        for (int64_t number = 0; number < chunks; number++)
            execute_chunk(&s, number);
    r->length = 0;
    r->cost = 0;
}

/* -- memory ------------------------------------------------------------------------------------ */

enum { MOST_PARTS = 64 };

/* An LDS instruction that several cores execute; each part is some workgroups. */
struct shared_access {
    const struct instruction *instruction;
    struct waves group;
    int64_t bounds[MOST_PARTS + 1];
    struct machine machines[MOST_PARTS];
    int codes[MOST_PARTS];
};

static int run_memory(struct machine *m, const struct instruction *i, struct waves w) {
    memory_function *function = (memory_function *)i->function;
    return function(m, i->operation, w.ids, w.first, w.step, w.count, (uint32_t)i->pc);
}

static void access_part(void *context, int64_t number) {
    struct shared_access *s = context;
    struct waves part = part_of(s->group, s->bounds[number], s->bounds[number + 1]);
    s->codes[number] = run_memory(&s->machines[number], s->instruction, part);
}

/* Split the group at workgroup boundaries; returns the number of parts. */
static int64_t split(const struct machine *m, struct shared_access *s) {
    int64_t wanted = 4 * num_threads() < MOST_PARTS ? 4 * num_threads() : MOST_PARTS, parts = 0;
    s->bounds[0] = 0;
    while (s->bounds[parts] < s->group.count && parts < MOST_PARTS) {
        int64_t end = s->bounds[parts] + (s->group.count + wanted - 1) / wanted;
        if (end > s->group.count || parts == MOST_PARTS - 1)
            end = s->group.count;
        while (end < s->group.count &&
               m->workgroup[wave_at(s->group, end)] == m->workgroup[wave_at(s->group, end - 1)])
            end++;
        s->bounds[++parts] = end;
    }
    return parts;
}

/* Keep the waves that remain when parts have stopped. The first of these waves has the fault. */
static void keep_remaining(struct loop *l, const struct shared_access *s, int64_t parts) {
    int64_t left = 0;
    for (int64_t k = 0; k < parts; k++) {
        if (!s->codes[k])
            continue;
        int64_t from = s->bounds[k] + s->machines[k].fault.position;
        for (int64_t at = from; at < s->bounds[k + 1]; at++)
            l->remaining[left++] = wave_at(s->group, at);
    }
    l->num_remaining = left;
    l->machine->fault.position = 0;
}

static int share_lds(struct loop *l, const struct instruction *i) {
    struct machine *m = l->machine;
    struct shared_access s;
    s.instruction = i;
    s.group = group_waves(l);
    int64_t parts = split(m, &s);
    if (m->undefined_address)
        memset(m->undefined_address, 0, (size_t)m->num_waves * sizeof *m->undefined_address);
    for (int64_t k = 0; k < parts; k++) {
        s.machines[k] = *m;
        s.machines[k].num_undefined = 1; /* its first action would be to clear it */
    }
    share(access_part, &s, parts);
    int code = OK;
    for (int64_t k = 0; k < parts; k++) {
        m->num_undefined += s.machines[k].num_undefined - 1;
        if (!s.codes[k] || code)
            continue;
        code = s.codes[k];
        m->needed_shift = s.machines[k].needed_shift;
        m->fault = s.machines[k].fault;
    }
    if (code)
        keep_remaining(l, &s, parts);
    return code;
}

static int access_memory(struct loop *l, const struct instruction *i) {
    bool apart = i->action == LDS_MEMORY && l->count * i->cost >= WORTH_SHARING;
    l->num_remaining = 0;
    return apart && num_threads() > 1 ? share_lds(l, i) : run_memory(l->machine, i, group_waves(l));
}

/* -- branches ---------------------------------------------------------------------------------- */

static bool is_taken(const struct machine *m, int condition, int64_t wave) {
    switch (condition) {
    case IF_SCC0: return !m->scc[wave];
    case IF_SCC1: return m->scc[wave];
    case IF_VCCZ: return scalar64(m, VCC, wave) == 0;
    case IF_VCCNZ: return scalar64(m, VCC, wave) != 0;
    case IF_EXECZ: return scalar64(m, EXEC, wave) == 0;
    case IF_EXECNZ: return scalar64(m, EXEC, wave) != 0;
    default: return true;
    }
}

/* Set `pc`; if the waves disagree, set the pc of each wave and stop the group. */
static void branch(struct loop *l, const struct instruction *i) {
    struct waves group = group_waves(l);
    int64_t taken = group.count;
    if (i->condition != ALWAYS) {
        taken = 0;
        for (int64_t at = 0; at < group.count; at++)
            taken += is_taken(l->machine, i->condition, wave_at(group, at));
    }
    if (taken == group.count || taken == 0) {
        l->pc = taken ? i->target : i->next_pc;
        return;
    }
    for (int64_t at = 0; at < group.count; at++) {
        int64_t wave = wave_at(group, at);
        l->pcs[wave] = is_taken(l->machine, i->condition, wave) ? i->target : i->next_pc;
    }
    l->has_group = 0;
}

/* -- one instruction --------------------------------------------------------------------------- */

enum { GOES_ON = -1 };

/* Execute an instruction that is not collected; returns an event, or GOES_ON. */
static int perform(struct loop *l, const struct instruction *i) {
    struct machine *m = l->machine;
    bool goes_on = true;
    l->pc = i->next_pc;
    switch (i->action) {
    case WAIT:
        if (l->recorder)
            record_wait(l, i);
        else if (l->checks)
            wait_for(l, i->wait);
        break;
    case BRANCH: branch(l, i); break;
    case BARRIER:
        if (!barrier(l, i, &goes_on)) {
            l->pc = i->pc;
            return STEP;
        }
        l->has_group = goes_on;
        break;
    case END:
        if (!end_waves(l, i)) {
            l->pc = i->pc;
            return STEP;
        }
        l->has_group = 0;
        break;
    default: break;
    }
    if (i->action < VECTOR_MEMORY || i->action > LDS_MEMORY) {
        if (l->recorder && i->counts_lanes)
            record_lanes(l, i, group_waves(l));
        if (l->recorder && i->action != WAIT)
            record_step(l, i);
        return GOES_ON;
    }
    issue(l, i);
    if (l->recorder) {
        record_issue(l, i);
        record_memory(l, i);
    }
    l->current = i->pc;
    l->code = access_memory(l, i);
    if (l->code)
        l->pc = i->pc;
    else
        m->tainted = false;
    int event = l->code ? FAULT : m->num_undefined ? UNDEFINED : GOES_ON;
    if (event == GOES_ON && l->turns && i->ends_turn)
        pass_turn(l->turns);
    return event;
}

static bool is_collected(const struct instruction *i) {
    return i->action == ALU || i->action == MATRIX;
}

/* Whether a memory instruction has a finding, so that Python knows what to ignore there. */
static bool is_listed(const struct loop *l, const struct instruction *i) {
    for (int64_t k = 0; k < l->num_listed; k++)
        if (l->listed[k] == i->pc)
            return true;
    return false;
}

/* Look for hazards of an instruction; returns false if Python must examine it. */
static bool may_go_on(struct loop *l, const struct instruction *i, struct run *collected) {
    if (i->looked_at >= IF_ZERO)
        flush(l, collected); /* whose results say what is divided by */
    enum hazard found = hazard(l, i);
    if (found != UNDEFINED_BITS || !i->second_run)
        return found == NO_HAZARD;
    flush(l, collected); /* the second run may read their results */
    return run_again(l, i);
}

/* Run the group; returns GOES_ON when it has stopped. */
static int run_group(struct loop *l) {
    struct run collected = {.length = 0, .cost = 0};
    l->machine->mode = l->mode;
    if (l->recorder)
        start_recording(l);
    int event = GOES_ON;
    while (l->has_group) {
        int64_t word = l->pc / 4;
        struct instruction *i = l->pc >= 0 && word < l->program_words ? l->program[word] : NULL;
        if (!i || i->pc != l->pc || i->index >= l->num_counts || i->slot >= l->num_slots ||
            (l->recorder && !can_record(l, i)))
            event = NOT_DECODED;
        else if (l->turns && is_ordered(i) && !has_turn(l->turns, l->member))
            event = AT_ACCESS;
        else if (i->action == IN_PYTHON || is_listed(l, i) ||
                 ((uint64_t)l->mode & i->mode_mask) != i->mode_value ||
                 !may_go_on(l, i, &collected))
            event = STEP;
        if (event != GOES_ON)
            break;
        if (is_collected(i)) {
            collected.at[collected.length++] = i;
            collected.cost += i->cost;
            l->pc = i->next_pc;
            if (l->recorder)
                record_step(l, i);
        } else if (i->action == NOTHING && !l->recorder) {
            l->pc = i->next_pc;
        } else {
            flush(l, &collected);
            event = perform(l, i);
        }
        if (event == STEP)
            break;
        l->counts[i->index] += l->count;
        l->work -= l->count;
        if (event != GOES_ON)
            break;
        if (collected.length == RUN_LENGTH)
            flush(l, &collected);
        if (l->has_group)
            yields(l);
    }
    flush(l, &collected);
    if (l->recorder)
        record_ticks(l);
    return event;
}

static int run_groups(struct loop *l) {
    if (l->resumed && l->has_group)
        yields(l);
    l->resumed = 0;
    for (;;) {
        if (!l->has_group) {
            int found = l->lockstep ? next_group(l) : NEEDS_GROUP;
            if (found != STEP)
                return found;
        }
        int event = run_group(l);
        if (event != GOES_ON)
            return event;
    }
}

/* Run until the batch ends or waits for its turn, or Python is needed; returns the event. */
int run_batch(struct loop *l) {
    begin_deferring(l->machine);
    int event = run_groups(l);
    if (event != AT_ACCESS)
        end_deferring(l->machine, event == DONE);
    return event;
}

/* Run this batch and the ones after it, until Python is needed; returns the event. */
int run_loop(struct loop *l) {
    for (;;) {
        struct following *f = l->following;
        int64_t work = l->work;
        int event = run_batch(l);
        if (event != DONE || !f)
            return event;
        f->work -= work - l->work;
        if (!follow(l, f))
            return DONE;
        if (f->work <= 0)
            return FOLLOWED;
    }
}

int64_t size_of_loop(void) { return sizeof(struct loop); }
int64_t size_of_instruction(void) { return sizeof(struct instruction); }
