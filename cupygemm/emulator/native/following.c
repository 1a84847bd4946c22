/* Start the batch of workgroups that follows another one. The Python version is in batch.py. */
#include "following.h"

enum { VGPRS = 256 };

/* Whether no wave has written a vector register since the batch started. */
static bool is_untouched(const struct loop *l, int64_t reg) {
    const uint8_t *row = l->unwritten + reg * l->machine->num_waves;
    return l->suspect_vector[reg / 64] >> reg % 64 & 1 &&
           !memchr(row, 0, (size_t)l->machine->num_waves);
}

static void clear_vectors(const struct loop *l, int64_t first, int64_t end) {
    const struct machine *m = l->machine;
    for (int64_t reg = first; reg < end; reg++)
        if (!is_untouched(l, reg))
            memset(vector_row(m, reg, 0), 0, (size_t)m->num_waves * LANES * sizeof *m->vgpr);
}

static void set_initial(const struct initial *i) {
    size_t bytes = (size_t)i->bytes;
    for (int64_t k = 0; k < i->times; k++) {
        uint8_t *to = (uint8_t *)i->to + k * i->bytes;
        if (i->from)
            memcpy(to, i->from, bytes);
        else
            memset(to, 0, bytes);
    }
}

/* Set the workgroup's ids in each wave. */
static void set_ids(const struct following *f, int64_t waves_per_group) {
    for (int64_t group = 0; group < f->groups; group++) {
        int64_t number = f->first + group;
        int64_t id[3] = {number % f->grid_x, number / f->grid_x % f->grid_y,
                         number / (f->grid_x * f->grid_y)};
        for (int axis = 0; axis < 3; axis++)
            for (int64_t k = 0; f->ids[axis] && k < waves_per_group; k++)
                f->ids[axis][group * waves_per_group + k] = (uint32_t)id[axis];
    }
}

/* Waves without a workgroup, at the end of the launch's last batch, have ended. */
static void end_absent(const struct loop *l, int64_t groups) {
    int64_t waves = groups * l->machine->waves_per_group;
    if (waves < l->machine->num_waves)
        memset(l->alive + waves, 0, (size_t)(l->machine->num_waves - waves));
}

/* Start the batch whose first workgroup is `first`, in place of one that has ended. */
void start_batch(struct loop *l, struct following *f, int64_t first) {
    clear_vectors(l, f->kept_vectors, f->vectors);
    clear_vectors(l, VGPRS, VGPRS + f->accumulators);
    for (int64_t k = 0; k < f->num_initial; k++)
        set_initial(f->initial + k);
    *l = f->loop;
    *l->machine = f->machine;
    f->begun++;
    f->first = first;
    l->machine->first_wave = first * l->machine->waves_per_group;
    set_ids(f, l->machine->waves_per_group);
    end_absent(l, f->end - first);
}

/* Start the next batch; returns whether there is one. */
bool follow(struct loop *l, struct following *f) {
    if (f->first + f->groups >= f->end)
        return false;
    start_batch(l, f, f->first + f->groups);
    return true;
}

int64_t size_of_following(void) { return sizeof(struct following); }
