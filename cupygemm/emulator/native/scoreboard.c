/* Loads in flight and undefined registers, as far as the run loop can handle them alone.
 *
 * `hazard` returns what must happen before an instruction. Python examines it if one of its
 * registers waits for a load in a wave of the group. If a source has undefined bits there, or a
 * target has some to clear, it has a second run (second_run.c).
 * The first write of a register in a wave is recorded here. Python's versions are scoreboard.py and
 * definedness/uses.py. */
#include "loop.h"

static bool is_done(const struct loop *l, const struct instruction *load, const int32_t *needs,
                    int64_t wave) {
    int64_t waves = l->machine->num_waves;
    switch (load->counter) {
    case SCALAR_COUNTER: return l->scalar_done[wave] >= needs[wave];
    case VM_COUNTER: return l->vm_done[wave] >= needs[wave];
    case LDS_COUNTER: return l->lds_done[wave] >= needs[wave];
    default: return l->vm_done[wave] >= needs[wave] && l->lds_done[wave] >= needs[waves + wave];
    }
}

static bool overlaps(const uint64_t *a, const uint64_t *b, int words) {
    uint64_t common = 0;
    for (int k = 0; k < words; k++)
        common |= a[k] & b[k];
    return common != 0;
}

/* Whether an operand waits for a load in a wave of the group. Loads of one counter return in order,
 * except scalar ones: there, the younger of two loads wins. */
static bool is_pending(const struct loop *l, const struct instruction *i) {
    struct waves group = group_waves(l);
    for (int64_t k = 0; k < l->num_outstanding; k++) {
        int64_t slot = l->outstanding[k];
        const struct instruction *load = l->slot_loads[slot];
        bool in_order = i->counter == load->counter && i->counter != SCALAR_COUNTER;
        bool uses = overlaps(i->vector_reads, load->vector_writes, VECTOR_WORDS) ||
                    overlaps(i->scalar_reads, load->scalar_writes, SCALAR_WORDS) ||
                    (!in_order && (overlaps(i->vector_writes, load->vector_writes, VECTOR_WORDS) ||
                                   overlaps(i->scalar_writes, load->scalar_writes, SCALAR_WORDS)));
        if (!uses)
            continue;
        const int32_t *needs = l->slots + slot * 2 * l->machine->num_waves;
        for (int64_t at = 0; at < group.count; at++)
            if (!is_done(l, load, needs, wave_at(group, at)))
                return true;
    }
    return false;
}

/* Whether a group's waves are consecutive, so that arrays are contiguous. */
static bool follow_one_another(struct waves group) { return !group.ids && group.step == 1; }

static bool any_unwritten(const struct loop *l, int64_t reg) {
    const uint8_t *row = l->unwritten + reg * l->machine->num_waves;
    struct waves group = group_waves(l);
    uint8_t any = 0;
    if (follow_one_another(group))
        return memchr(row + group.first, 1, (size_t)group.count) != NULL;
    for (int64_t at = 0; at < group.count; at++)
        any |= row[wave_at(group, at)];
    return any;
}

static bool any_undefined(const struct loop *l, int64_t reg) {
    const uint32_t *row = l->machine->undefined_scalar + reg * l->machine->num_waves;
    struct waves group = group_waves(l);
    uint32_t any = 0;
    for (int64_t at = 0; at < group.count; at++)
        any |= row[wave_at(group, at)];
    return any != 0;
}

/* Record that the group writes a vector register without undefined bits. */
static void write_vector(struct loop *l, int64_t reg) {
    int64_t waves = l->machine->num_waves;
    uint8_t *row = l->unwritten + reg * waves;
    struct waves group = group_waves(l);
    if (follow_one_another(group))
        memset(row + group.first, 0, (size_t)group.count);
    else
        for (int64_t at = 0; at < group.count; at++)
            row[wave_at(group, at)] = 0;
    if (group.count == waves || !memchr(row, 1, (size_t)waves))
        l->suspect_vector[reg / 64] &= ~(1ull << reg % 64);
}

static void write_scalar(struct loop *l, int64_t reg) {
    int64_t waves = l->machine->num_waves;
    uint32_t *row = l->machine->undefined_scalar + reg * waves;
    struct waves group = group_waves(l);
    if (follow_one_another(group))
        memset(row + group.first, 0, (size_t)group.count * sizeof *row);
    else
        for (int64_t at = 0; at < group.count; at++)
            row[wave_at(group, at)] = 0;
    uint32_t any = 0;
    if (group.count < waves)
        for (int64_t wave = 0; wave < waves; wave++)
            any |= row[wave];
    if (!any)
        l->suspect_scalar[reg / 64] &= ~(1ull << reg % 64);
}

/* Whether an operand is undefined in the group; if none is, record the instruction's writes. */
static bool is_undefined(struct loop *l, const struct instruction *i) {
    for (int k = 0; k < VECTOR_WORDS; k++) {
        if ((i->vector_reads[k] | i->vector_writes[k]) & l->marked[k])
            return true;
        for (uint64_t left = i->vector_reads[k] & l->suspect_vector[k]; left; left &= left - 1)
            if (any_unwritten(l, 64 * k + first_lane(left)))
                return true;
    }
    for (int k = 0; k < SCALAR_WORDS; k++)
        for (uint64_t left = i->scalar_reads[k] & l->suspect_scalar[k]; left; left &= left - 1)
            if (any_undefined(l, 64 * k + first_lane(left)))
                return true;
    for (int k = 0; k < VECTOR_WORDS; k++)
        for (uint64_t left = i->vector_writes[k] & l->suspect_vector[k]; left; left &= left - 1)
            write_vector(l, 64 * k + first_lane(left));
    for (int k = 0; k < SCALAR_WORDS; k++)
        for (uint64_t left = i->scalar_writes[k] & l->suspect_scalar[k]; left; left &= left - 1)
            write_scalar(l, 64 * k + first_lane(left));
    return false;
}

static bool any_lane_off(const struct loop *l) {
    struct waves group = group_waves(l);
    uint64_t all = ~0ull;
    for (int64_t at = 0; at < group.count; at++)
        all &= scalar64(l->machine, EXEC, wave_at(group, at));
    return all != ~0ull;
}

/* Whether the vector register that an instruction reads has these bits, but for the sign, in an
 * active lane. */
static bool any_lane_has(const struct loop *l, const struct instruction *i, uint32_t bits) {
    struct waves group = group_waves(l);
    int64_t reg = 0;
    while (!i->vector_reads[reg / 64])
        reg += 64;
    reg += first_lane(i->vector_reads[reg / 64]);
    for (int64_t at = 0; at < group.count; at++) {
        int64_t wave = wave_at(group, at);
        const uint32_t *row = vector_row(l->machine, reg, wave);
        uint64_t exec = scalar64(l->machine, EXEC, wave), found = 0;
        for (int lane = 0; lane < LANES; lane++)
            found |= (uint64_t)(row[lane] << 1 == bits << 1) << lane;
        if (found & exec)
            return true;
    }
    return false;
}

/* Whether an instruction reads lanes that may be off, is a marker (definedness/lanes.py), or
 * divides by zero (definedness/divisions.py). */
static bool is_looked_at(const struct loop *l, const struct instruction *i) {
    switch (i->looked_at) {
    case IF_PARTIAL: return !ignores(l->machine, INACTIVE_LANE) && any_lane_off(l);
    case IF_ZERO: return any_lane_has(l, i, 0);
    case IF_INFINITE: return any_lane_has(l, i, 0x7F800000);
    default: return true;
    }
}

enum hazard hazard(struct loop *l, const struct instruction *i) {
    if (l->hazards && i->looked_at && is_looked_at(l, i))
        return FOR_PYTHON;
    uint64_t pending = 0, suspect = 0;
    for (int k = 0; k < VECTOR_WORDS; k++) {
        uint64_t uses = i->vector_reads[k] | i->vector_writes[k];
        pending |= uses & l->pending_vector[k];
        suspect |= uses & l->suspect_vector[k];
    }
    for (int k = 0; k < SCALAR_WORDS; k++) {
        uint64_t uses = i->scalar_reads[k] | i->scalar_writes[k];
        pending |= uses & l->pending_scalar[k];
        suspect |= uses & l->suspect_scalar[k];
    }
    if (pending && is_pending(l, i))
        return FOR_PYTHON;
    return suspect && is_undefined(l, i) ? UNDEFINED_BITS : NO_HAZARD;
}

/* -- after an instruction ---------------------------------------------------------------------- */

static void add_masks(struct loop *l, const struct instruction *load) {
    for (int k = 0; k < VECTOR_WORDS; k++)
        l->pending_vector[k] |= load->vector_writes[k];
    for (int k = 0; k < SCALAR_WORDS; k++)
        l->pending_scalar[k] |= load->scalar_writes[k];
}

static bool is_outstanding(const struct loop *l, int64_t slot) {
    for (int64_t k = 0; k < l->num_outstanding; k++)
        if (l->outstanding[k] == slot)
            return true;
    return false;
}

/* Number an operation of each wave; `needs` may be NULL. The arrays do not overlap. */
static void number_operations(int32_t *restrict issued, int32_t *restrict needs,
                              struct waves group) {
    if (!follow_one_another(group)) {
        for (int64_t at = 0; at < group.count; at++) {
            int64_t wave = wave_at(group, at);
            issued[wave]++;
            if (needs)
                needs[wave] = issued[wave];
        }
        return;
    }
    for (int64_t wave = group.first; wave < group.first + group.count; wave++)
        issued[wave]++;
    if (needs)
        memcpy(needs + group.first, issued + group.first, (size_t)group.count * sizeof *needs);
}

/* Count a memory instruction; its results become unreadable until a wait covers it. */
void issue(struct loop *l, const struct instruction *i) {
    struct waves group = group_waves(l);
    int64_t waves = l->machine->num_waves;
    bool vm = i->counter == VM_COUNTER || i->counter == FLAT_COUNTER;
    bool lds = i->counter == LDS_COUNTER || i->counter == FLAT_COUNTER;
    int32_t *needs = i->slot < 0 ? NULL : l->slots + i->slot * 2 * waves;
    if (needs && !is_outstanding(l, i->slot))
        memset(needs, 0, 2 * (size_t)waves * sizeof *needs);
    for (int64_t at = 0; at < group.count; at++)
        l->last_memory_pc[wave_at(group, at)] = i->pc;
    if (!l->checks)
        return;
    if (vm)
        number_operations(l->vm_issued, needs, group);
    if (lds)
        number_operations(l->lds_issued, needs ? needs + (vm ? waves : 0) : NULL, group);
    if (i->counter == SCALAR_COUNTER)
        number_operations(l->scalar_issued, needs, group);
    if (!needs || !l->hazards)
        return;
    add_masks(l, i);
    if (!is_outstanding(l, i->slot))
        l->outstanding[l->num_outstanding++] = i->slot;
}

static bool all_done(const struct loop *l, int64_t slot) {
    int64_t waves = l->machine->num_waves;
    const int32_t *needs = l->slots + slot * 2 * waves;
    const struct instruction *load = l->slot_loads[slot];
    bool pending = false;
    if (load->counter == VM_COUNTER || load->counter == LDS_COUNTER) {
        const int32_t *done = load->counter == VM_COUNTER ? l->vm_done : l->lds_done;
        for (int64_t wave = 0; wave < waves; wave++)
            pending |= done[wave] < needs[wave];
        return !pending;
    }
    for (int64_t wave = 0; wave < waves; wave++)
        pending |= !is_done(l, load, needs, wave);
    return !pending;
}

/* Raise the counts of a wave to all but the latest few of its operations. The arrays do not
 * overlap, and the loop over consecutive waves vectorises. */
static inline void raise_waves(int32_t *restrict done, const int32_t *restrict issued, int32_t few,
                               struct waves group) {
    if (group.ids || group.step != 1) {
        for (int64_t at = 0; at < group.count; at++) {
            int64_t wave = wave_at(group, at);
            int32_t number = issued[wave] - few;
            done[wave] = done[wave] < number ? number : done[wave];
        }
        return;
    }
    for (int64_t wave = group.first; wave < group.first + group.count; wave++) {
        int32_t number = issued[wave] - few;
        done[wave] = done[wave] < number ? number : done[wave];
    }
}

/* Execute s_waitcnt. The largest values wait, too: no more operations than a counter can count are
 * in flight. */
void wait_for(struct loop *l, uint32_t counts) {
    struct waves group = group_waves(l);
    int32_t vm = (int32_t)((counts & 15) | (counts >> 10 & 0x30)), lgkm = counts >> 8 & 15;
    raise_waves(l->vm_done, l->vm_issued, vm, group);
    raise_waves(l->lds_done, l->lds_issued, lgkm, group);
    if (lgkm == 0)
        raise_waves(l->scalar_done, l->scalar_issued, 0, group);
    if (!l->num_outstanding)
        return;
    memset(l->pending_vector, 0, sizeof l->pending_vector);
    memset(l->pending_scalar, 0, sizeof l->pending_scalar);
    int64_t left = 0;
    for (int64_t k = 0; k < l->num_outstanding; k++) {
        int64_t slot = l->outstanding[k];
        if (all_done(l, slot))
            continue;
        l->outstanding[left++] = slot;
        add_masks(l, l->slot_loads[slot]);
    }
    l->num_outstanding = left;
}

/* Record that a wave passes a barrier. */
void release_wave(struct loop *l, int64_t wave) {
    if (!l->checks)
        return;
    l->lds_released[wave] = l->lds_done[wave];
    l->vm_released[wave] = l->vm_done[wave];
    l->vm_passed[wave] = l->vm_issued[wave];
    l->lds_passed[wave] = l->lds_issued[wave];
}
