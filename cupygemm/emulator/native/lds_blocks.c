#include "lds_blocks.h"

/* Bring the records of all granules up to date. */
void spread_lds_blocks(struct machine *m) {
    int64_t each = blocks_of_group(m);
    int64_t groups = m->shadow ? m->num_waves / m->waves_per_group : 0;
    for (int64_t group = 0; group < groups; group++)
        for (int64_t k = 0; k < each; k++)
            if (m->blocks[group * each + k].write)
                spread_block(m->shadow + group * m->shadow_stride, m->blocks + group * each + k);
}
