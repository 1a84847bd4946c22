/* Batches of workgroups that follow one another in the same arrays without a return to Python.
 *
 * Python starts a batch (execution/batch.py) and describes here how the next one starts: in the
 * same state, except for the workgroups' ids. execution/following.py mirrors the structures. */
#ifndef CUPYGEMM_FOLLOWING_H
#define CUPYGEMM_FOLLOWING_H

#include "loop.h"

/* The contents of an array when a batch starts: `bytes` bytes, repeated, or zeros. */
struct initial {
    void *to;
    const void *from; /* NULL: zeros */
    int64_t bytes, times;
};

struct following {
    struct loop loop;       /* as the batch starts */
    struct machine machine; /* likewise */
    const struct initial *initial;
    int64_t num_initial;
    uint32_t *ids[3];       /* scalar registers with a workgroup's id, NULL for none */
    int64_t grid_x, grid_y; /* workgroups of the launch */
    int64_t vectors;        /* VGPRs that the kernel may use */
    int64_t accumulators;   /* AGPRs likewise */
    int64_t kept_vectors;   /* the first ones, whose contents `initial` has */
    int64_t first;          /* number of the batch's first workgroup in the launch */
    int64_t groups;         /* in a batch; the last one may have fewer */
    int64_t end;            /* workgroups of the launch */
    int64_t begun;          /* batches that C has started */
    int64_t work;           /* wave-instructions until Python handles signals */
};

bool follow(struct loop *l, struct following *f);
void start_batch(struct loop *l, struct following *f, int64_t first);

#endif
