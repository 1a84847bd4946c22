// The steps of an LU panel whose workgroups publish the rows of their candidates (lu_panel.hpp).
//
//   every thread    largest element of its rows at position >= step
//   32 threads      the largest of their rows
//   workgroup       the largest of the workgroup
//   every thread    the update of the step before, in the next column
//   team            the head of the largest element's row is published: it and the next element
//   every thread    the update of the step before, in the other columns
//   team            the rest of that row is published; wait for all -> the pivot
//   every thread    multiplier, and the update of this step in the next column
//
// So the rest of a pivot's row is used while the next pivot is looked for.
#pragma once

#include "common/solvers/lu_pivot.hpp"

namespace cupygemm {

// Factor columns of a matrix of `m` rows in `steps` steps. `flags` and `records` are the team's.
template <class Team> CUPYGEMM_INLINE void factor_steps(Team &team, Shared &shared, Held &held,
                                                        Pivots &pivots, u32 m, u32 steps, u32 rank,
                                                        u32 thread, u32 &step, u32 *flags,
                                                        u64 records) {
    const u32 lane = thread % 32, group = thread / 32;
    auto &row = held.row;
    S factor[rows] = {};               // of the step before
    const W *pivot_row = shared.zeros; // of the step before
    W *const head = shared.record, *const of_row = head + head_words;
#pragma unroll 1
    for (u32 j = 0; j < steps; ++j, ++step) {
        const Candidate best = held.best(j, m);
        const bool leads = has_largest_of_32(best.magnitude, best.position);
        const bool publishes = group == publisher_of(shared, best, leads, step, lane, group);
        const bool owns = publishes && leads;
        S next[rows];
#pragma unroll
        for (u32 r = 0; r < rows; ++r)
            next[r] = width < 3 ? row[r][width - 1]
                                : minus_product(row[r][1 % width], factor[r],
                                                from_words<S>(&pivot_row[2 % width * words]));
        if (owns) { // without a candidate, the head says so
            head[0] = best.magnitude;
            head[1] = best.position;
#pragma unroll
            for (u32 r = 0; r < rows; ++r)
                if (held.position[r] == best.position) {
                    to_words(divisor_of(best.magnitude, row[r][0]), head + 2);
                    to_words(j + 1 < width ? next[r] : S{}, head + 2 + words);
                }
        }
#pragma unroll
        for (u32 k = 2; k < width; ++k) { // an element of the pivot's row serves all rows
            const S element =
                k + 1 < width ? from_words<S>(&pivot_row[(k + 1) % width * words]) : S{};
#pragma unroll
            for (u32 r = 0; r < rows; ++r) {
                row[r][k - 1] =
                    k + 1 < width ? minus_product(row[r][k], factor[r], element) : row[r][k];
                compute_now(row[r][k - 1]);
            }
        }
        if (publishes) {
#pragma unroll
            for (u32 r = 0; r < rows; ++r)
                if (owns && held.position[r] == best.position) {
#pragma unroll
                    for (u32 k = 2; k < width; ++k)
                        to_words(row[r][k - 1], of_row + k * words);
                }
            wave_barrier(); // head and row are complete; the row's last elements are multipliers
            team.publish(records, rank, step, lane, head, head_words + (width - j) * words);
        }
        team.template exchange<threads>(flags, records, rank, step, thread);

        const Pivot pivot = pivot_of(team, step, lane);
        const auto element = [&](u32 i) {
            return from_words<S>(team.head(step, pivot.slot, 2 + i * words));
        };
        pivot_row = team.row(step, pivot.slot);
        pivots.note(pivot.magnitude, pivot.position, j, lane);
        S entering[rows];
        divide(pivot.magnitude, element(0), held, entering);
#pragma unroll
        for (u32 r = 0; r < rows; ++r) {
            const bool active = pivot.swaps(held.position[r], j);
            factor[r] = active ? entering[r] : S{};
            entering[r] = active ? entering[r] : row[r][0];
            row[r][0] = minus_product(next[r], factor[r], element(1));
            row[r][width - 1] = entering[r];
        }
    }
}

} // namespace cupygemm
