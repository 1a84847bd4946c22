/* Choose the waves that run next, and hold waves at barriers: schedule.py's lockstep order.
 *
 * Rare cases (a barrier that ended waves have skipped, a launch that does not end) are
 * left to Python, before anything has changed. */
#include "barrier_lanes.h"
#include "lds_pending.h"
#include "loop.h"

enum { TURN_STEPS = 16, LEAST_STEPS = 500, LEAST_PATIENCE = 32, LOOK_AROUND = 16 };
static const int64_t NOWHERE = 1ll << 62;

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* -- the next group ---------------------------------------------------------------------------- */

static bool is_runnable(const struct loop *l, int64_t wave) {
    return l->alive[wave] && !l->at_barrier[wave];
}

static int64_t cluster_end(const struct loop *l) {
    int64_t end = (l->cluster + 1) * l->cluster_waves;
    return end < l->machine->num_waves ? end : l->machine->num_waves;
}

static int64_t oldest_wave(const struct loop *l) {
    int64_t oldest = -1;
    for (int64_t wave = 0; wave < l->machine->num_waves; wave++)
        if (is_runnable(l, wave) && (oldest < 0 || l->last_run[wave] < l->last_run[oldest]))
            oldest = wave;
    return oldest;
}

static int64_t lowest_wave(const struct loop *l) {
    int64_t lowest = -1;
    for (int64_t wave = l->cluster * l->cluster_waves; wave < cluster_end(l); wave++)
        if (is_runnable(l, wave) && (lowest < 0 || l->pcs[wave] < l->pcs[lowest]))
            lowest = wave;
    return lowest;
}

/* The first wave from `first` on that can run, or -1. */
static int64_t runnable_from(const struct loop *l, int64_t first) {
    for (int64_t wave = first; wave < l->machine->num_waves; wave++)
        if (is_runnable(l, wave))
            return wave;
    return -1;
}

/* Return the runnable wave whose program counter decides, or -1 if none can run. */
static int64_t choose_leader(struct loop *l) {
    if (l->fair || l->turn % LOOK_AROUND == 0) {
        int64_t oldest = oldest_wave(l);
        if (oldest < 0)
            return -1;
        bool starving = l->turn - l->last_run[oldest] > l->patience;
        if (l->fair || starving) {
            l->fair = 0;
            l->cluster = oldest / l->cluster_waves;
            if (starving)
                l->patience = larger(l->patience / 2, LEAST_PATIENCE);
            return oldest;
        }
    }
    int64_t lowest = lowest_wave(l);
    if (lowest >= 0)
        return lowest;
    int64_t next = runnable_from(l, cluster_end(l));
    if (next < 0)
        next = runnable_from(l, 0);
    if (next < 0)
        return -1;
    l->cluster = next / l->cluster_waves;
    return lowest_wave(l);
}

/* Whether a wave outside the cluster can run. */
static bool others_wait(const struct loop *l) {
    int64_t begin = l->cluster * l->cluster_waves, end = cluster_end(l);
    uint8_t any = 0;
    for (int64_t wave = 0; wave < begin; wave++)
        any |= l->alive[wave] & !l->at_barrier[wave];
    for (int64_t wave = end; wave < l->machine->num_waves; wave++)
        any |= l->alive[wave] & !l->at_barrier[wave];
    return any;
}

static void add_other(struct loop *l, int64_t pc) {
    int64_t place = l->num_others;
    while (place && l->others[place - 1] > pc)
        place--;
    if (place && l->others[place - 1] == pc)
        return;
    memmove(l->others + place + 1, l->others + place,
            (size_t)(l->num_others - place) * sizeof *l->others);
    l->others[place] = pc;
    l->num_others++;
}

/* Record whether the waves are evenly spaced. */
static void find_spacing(struct loop *l) {
    l->first = l->ids[0];
    l->step = l->count > 1 ? l->ids[1] - l->ids[0] : 1;
    for (int64_t at = 1; at < l->count; at++)
        if (l->ids[at] - l->ids[at - 1] != l->step) {
            l->step = 0;
            return;
        }
}

int next_group(struct loop *l) {
    if (l->work <= 0)
        return NEEDS_GROUP;
    int64_t leader = choose_leader(l), waves = l->machine->num_waves;
    if (leader < 0)
        return memchr(l->alive, 1, (size_t)waves) ? STUCK : DONE;
    l->spent += TURN_STEPS;
    l->leader = leader;
    if (l->spent > l->limit)
        return ENDLESS;
    l->pc = l->pcs[leader];
    l->mode = l->modes[leader];
    l->count = l->num_others = 0;
    l->turn++;
    int64_t last_other = -1;
    for (int64_t wave = l->cluster * l->cluster_waves; wave < cluster_end(l); wave++) {
        if (!is_runnable(l, wave))
            continue;
        if (l->pcs[wave] == l->pc && l->modes[wave] == l->mode) {
            l->ids[l->count++] = wave;
            l->last_run[wave] = l->turn;
        } else if (l->pcs[wave] != last_other) {
            add_other(l, last_other = l->pcs[wave]);
        }
    }
    l->contended = l->num_others > 0 || others_wait(l);
    l->ahead = NOWHERE;
    for (int64_t k = 0; k < l->num_others; k++)
        if (l->others[k] > l->pc) {
            l->ahead = l->others[k];
            break;
        }
    l->quantum = l->fair_steps;
    l->steps = 0;
    l->has_group = 1;
    find_spacing(l);
    return STEP;
}

/* -- yielding ---------------------------------------------------------------------------------- */

static bool meets_others(const struct loop *l) {
    if (!l->num_others)
        return false;
    if (l->pc > l->ahead)
        return true;
    for (int64_t k = 0; k < l->num_others; k++)
        if (l->others[k] == l->pc)
            return true;
    return false;
}

void stop_group(struct loop *l) {
    struct waves group = group_waves(l);
    for (int64_t at = 0; at < group.count; at++)
        l->pcs[wave_at(group, at)] = l->pc;
    l->has_group = 0;
}

/* Count a step, and stop the group if it meets other waves or its quantum is spent. */
bool yields(struct loop *l) {
    l->steps++;
    bool exhausted = l->steps >= l->quantum;
    if (!exhausted && !meets_others(l))
        return false;
    stop_group(l);
    if (exhausted) {
        l->spent += l->quantum;
        if (l->shared && l->contended) {
            l->fair = 1;
            l->fair_steps = larger(l->fair_steps / 2, LEAST_STEPS);
        }
    }
    return true;
}

/* -- barriers ---------------------------------------------------------------------------------- */

enum { HELD, COMPLETE, SKIPPED };

/* The state of a workgroup when the waves that `joins` marks arrive at a barrier, or end. The
 * waves of a workgroup are contiguous. */
static int workgroup_state(const struct loop *l, int64_t workgroup, int joining, int64_t pc) {
    int64_t size = l->machine->waves_per_group, start = workgroup * size;
    int64_t waiting = 0, ended = 0, place = -1;
    for (int64_t wave = start; wave < start + size; wave++) {
        bool mine = l->joins[wave];
        bool waits = mine ? joining == BARRIER : l->at_barrier[wave];
        ended += mine ? joining == END : !l->alive[wave];
        waiting += waits;
        if (waits)
            place = larger(place, mine ? pc : l->pcs[wave]);
    }
    if (!waiting || waiting + ended < size)
        return HELD;
    for (int64_t wave = start; ended && wave < start + size; wave++)
        if (l->joins[wave] ? joining == END : !l->alive[wave])
            if (l->early[workgroup] || l->synchronised[wave] || l->last_memory_pc[wave] >= place)
                return SKIPPED;
    return COMPLETE;
}

/* Release a workgroup's waves; returns their number. */
static int64_t release_workgroup(struct loop *l, int64_t workgroup) {
    int64_t size = l->machine->waves_per_group, released = 0;
    pass_lds_barrier(l->machine, workgroup);
    for (int64_t wave = workgroup * size; wave < (workgroup + 1) * size; wave++) {
        if (!l->at_barrier[wave])
            continue;
        l->at_barrier[wave] = 0;
        release_wave(l, wave);
        released++;
    }
    l->barrier_epoch[workgroup]++;
    return released;
}

/* Whether a workgroup of the group would complete a barrier that ended waves have skipped. */
static bool any_skipped(const struct loop *l, int joining, int64_t pc) {
    struct waves group = group_waves(l);
    int64_t previous = -1;
    bool skipped = false;
    for (int64_t at = 0; at < group.count; at++)
        l->joins[wave_at(group, at)] = 1;
    for (int64_t at = 0; at < group.count && !skipped; at++) {
        int64_t workgroup = l->machine->workgroup[wave_at(group, at)];
        if (workgroup != previous)
            skipped = workgroup_state(l, workgroup, joining, pc) == SKIPPED;
        previous = workgroup;
    }
    for (int64_t at = 0; at < group.count; at++)
        l->joins[wave_at(group, at)] = 0;
    return skipped;
}

/* Release the complete workgroups of the group, whose waves are at the barrier or have ended. */
static int64_t release_complete(struct loop *l) {
    struct waves group = group_waves(l);
    int64_t size = l->machine->waves_per_group, previous = -1, released = 0;
    for (int64_t at = 0; at < group.count; at++) {
        int64_t workgroup = l->machine->workgroup[wave_at(group, at)];
        if (workgroup == previous)
            continue;
        previous = workgroup;
        int64_t waiting = 0, ended = 0;
        for (int64_t wave = workgroup * size; wave < (workgroup + 1) * size; wave++) {
            waiting += l->at_barrier[wave];
            ended += !l->alive[wave];
        }
        if (waiting && waiting + ended == size)
            released += release_workgroup(l, workgroup);
    }
    return released;
}

/* Record the lanes at a barrier; returns false if some have skipped an earlier one. */
static bool note_lanes(struct loop *l, int64_t pc) {
    struct waves group = group_waves(l);
    for (int64_t at = 0; at < group.count; at++)
        if (lanes_rejoin(l->machine, wave_at(group, at)))
            return false;
    for (int64_t at = 0; at < group.count; at++)
        note_barrier(l->machine, wave_at(group, at), pc);
    return true;
}

/* Execute s_barrier; returns false if Python must. `goes_on`: the group is released immediately. */
bool barrier(struct loop *l, const struct instruction *i, bool *goes_on) {
    struct waves group = group_waves(l);
    bool all = l->count == l->machine->num_waves;
    if (!all && any_skipped(l, BARRIER, i->next_pc))
        return false;
    if (l->machine->skipped && !note_lanes(l, i->pc))
        return false;
    for (int64_t at = 0; at < group.count; at++) {
        int64_t wave = wave_at(group, at);
        l->pcs[wave] = i->next_pc;
        l->synchronised[wave] = 1;
        l->at_barrier[wave] = 1;
    }
    int64_t mine = 0, released = release_complete(l);
    for (int64_t at = 0; at < group.count; at++)
        mine += !l->at_barrier[wave_at(group, at)];
    *goes_on = released == l->count && mine == l->count;
    return true;
}

/* Execute s_endpgm; returns false if Python must. */
bool end_waves(struct loop *l, const struct instruction *i) {
    struct waves group = group_waves(l);
    bool waiting = memchr(l->at_barrier, 1, (size_t)l->machine->num_waves) != NULL;
    if (waiting && any_skipped(l, END, i->pc))
        return false;
    for (int64_t at = 0; at < group.count; at++) {
        l->alive[wave_at(group, at)] = 0;
        l->pcs[wave_at(group, at)] = i->pc;
    }
    l->spent = 0;
    if (waiting)
        release_complete(l);
    return true;
}
