/* Races of a copy or a fill with the launches of other streams. */

#include "global_shadow.h"

/* Find an access in `records` and `lines`, which begin at address `base`, that races with a copy or
 * a fill of [start, end), in the launches of some intervals. Returns whether there is one: its
 * address, its time, its pc, whether it writes. */
int find_rival(struct global_record *records, struct line_record *lines, uint64_t base,
               uint64_t start, uint64_t end, int writes, const struct interval *rivals,
               int64_t count, int64_t *found) {
    for (uint64_t place = start & ~(uint64_t)(GRANULE - 1); place < end; place += GRANULE) {
        const struct global_record *r = record_at(records, lines, place - base);
        uint64_t first = place > start ? place : start;
        uint64_t last = place + GRANULE < end ? place + GRANULE : end;
        uint32_t bytes = bytes_in(place, first, (int)(last - first));
        const struct site *sites[] = {&r->write, &r->read, &r->other_read};
        for (int i = 0; i < (writes ? 3 : 1); i++) {
            uint32_t common = bytes_of_site(sites[i]) & bytes;
            if (!common || !within(rivals, count, sites[i]->time))
                continue;
            found[0] = (int64_t)place + __builtin_ctz(common);
            found[1] = sites[i]->time;
            found[2] = 4 * (int64_t)(sites[i]->pc & PC_BITS);
            found[3] = i == 0;
            return 1;
        }
    }
    return 0;
}

/* Find bytes of [start, end) that a launch, from time `first` on, has both read and written.
 * Returns the number described, at most `capacity`, one for each pair of instructions: the address,
 * the pcs of the read and of the write, whether the read came later. */
int64_t find_overwritten(struct global_record *records, struct line_record *lines, uint64_t base,
                         uint64_t start, uint64_t end, uint32_t first, int64_t capacity,
                         int64_t *found) {
    int64_t count = 0;
    for (uint64_t place = start & ~(uint64_t)(GRANULE - 1); place < end; place += GRANULE) {
        const struct global_record *r = record_at(records, lines, place - base);
        uint64_t low = place > start ? place : start;
        uint64_t high = place + GRANULE < end ? place + GRANULE : end;
        uint32_t bytes = bytes_in(place, low, (int)(high - low)) & bytes_of_site(&r->write);
        const struct site *sites[] = {&r->read, &r->other_read};
        for (int i = 0; i < 2 && r->write.time >= first; i++) {
            uint32_t common = bytes_of_site(sites[i]) & bytes;
            if (!common || sites[i]->time < first)
                continue;
            int64_t pair[] = {(int64_t)place + __builtin_ctz(common),
                              4 * (int64_t)(sites[i]->pc & PC_BITS),
                              4 * (int64_t)(r->write.pc & PC_BITS), sites[i]->time > r->write.time};
            int64_t same = 0;
            while (same < count && memcmp(&found[4 * same + 1], &pair[1], 3 * sizeof *pair))
                same++;
            if (same == count && count < capacity)
                memcpy(&found[4 * count++], pair, sizeof pair);
        }
    }
    return count;
}
