// The steps of an LU panel in a cluster, where heads and rows are messages (lu_panel.hpp).
//
//   every thread    largest element of its rows at position >= step
//   32 threads      the largest of their rows, whose head is sent to all
//   every thread    wait for the row of the pivot before the last -> its update of other columns
//   32 threads      if they hold the last pivot's row, it is complete now, and is sent to all
//   every thread    wait for all heads -> the pivot and the start of its row
//   every thread    multiplier, and the update of this step in the next two columns
//
// So no step waits for a row but that of two steps ago, and who sends a row has sent its next head
// before. For that, a head tells more than its row is ready for. With row p(s) of the pivot of step
// s and multipliers m(s) of the head's row, the head of step j is
//
//   column j, j + 1    complete, the first as a divisor
//   column j + 2, + 3  without the updates of steps j - 2 and j - 1
//   m(j - 1), m(j - 2)
//
// Who receives it has row p(j - 2), so it can complete column j + 2, for which it needs one element
// of p(j - 1) more. This is column j + 2 of a row whose head was that of step j - 1: its fourth
// element, completed one step later than the third.
//
// The update moves the columns of a row down by one register, so that the current column is always
// in the first and the loop over columns is not unrolled; multipliers enter at the last.
#pragma once

#include "common/solvers/lu_pivot.hpp"

namespace cupygemm {

// As factor_steps of lu_steps.hpp. `row_number` counts the rows that are sent.
template <class Team> CUPYGEMM_INLINE void factor_late_steps(Team &team, Shared &shared, Held &held,
                                                             Pivots &pivots, u32 m, u32 steps,
                                                             u32 rank, u32 thread, u32 &step,
                                                             u32 &row_number) {
    const u32 lane = thread % 32, group = from_lane(thread / 32, 0),
              slot = Team::by_groups ? rank * num_groups + group : rank;
    auto &row = held.row;
    S factor[rows] = {}, factor_before[rows] = {}; // of the step before, and of that before it
    S fourth{}, fourth_factor{};                   // of the last pivot's row, to be completed
    bool published = false;                        // in the step before
    u32 last_slot = ~0u;                           // of the pivot then
    W *const head = shared.heads[group];
    const auto row_of = [&](u32 j) { return row_number + j; };
#pragma unroll 1
    for (u32 j = 0; j < steps; ++j, ++step) {
        const Candidate best = held.best(j, m);
        S own = row[0][0], next = row[0][1], third = row[0][2], last = row[0][3];
        S multiplier = factor[0], multiplier_before = factor_before[0];
#pragma unroll
        for (u32 r = 1; r < rows; ++r) {
            const bool is_best = held.position[r] == best.position;
            own = is_best ? row[r][0] : own;
            next = is_best ? row[r][1] : next;
            third = is_best ? row[r][2] : third;
            last = is_best ? row[r][3] : last;
            multiplier = is_best ? factor[r] : multiplier;
            multiplier_before = is_best ? factor_before[r] : multiplier_before;
        }
        // Every thread divides, beside the comparison.
        const S divisor = divisor_of(best.magnitude, own);
        const bool leads = has_largest_of_32(best.magnitude, best.position);
        const bool published_before = published;
        published =
            Team::by_groups || group == publisher_of(shared, best, leads, step, lane, group);
        if (published && leads) { // without a candidate, the head says so
            head[0] = best.magnitude;
            head[1] = best.position;
            to_words(divisor, head + 2);
            to_words(j + 1 < width ? next : S{}, head + 2 + words);
            to_words(j + 2 < width ? third : S{}, head + 2 + 2 * words);
            to_words(j + 3 < width ? last : S{}, head + 2 + 3 * words);
            to_words(multiplier, head + 2 + 4 * words);
            to_words(multiplier_before, head + 2 + 5 * words);
        }
        S next_of[rows];
#pragma unroll
        for (u32 r = 0; r < rows; ++r)
            next_of[r] = row[r][1];
        if (published) {
            wave_barrier(); // the head is complete
            team.publish_head(slot, step, lane, head);
        }

        const W *const arrived = j < 2 ? shared.zeros : team.row(row_of(j - 2));
        if (j >= 2)
            team.wait_row(row_of(j - 2), thread);
        const auto of_arrived = [&](u32 k) { // in the column of register k
            return k + 2 < width ? from_words<S>(&arrived[(k + 2) % width * words]) : S{};
        };
#pragma unroll
        for (u32 k = 2; k < width; ++k) // an element of the pivot's row serves all rows
#pragma unroll
            for (u32 r = 0; r < rows; ++r) {
                row[r][k - 1] = k + 2 < width
                                    ? minus_product(row[r][k], factor_before[r], of_arrived(k))
                                    : row[r][k];
                compute_now(row[r][k - 1]);
            }
        const S fourth_of_last = minus_product(fourth, fourth_factor, of_arrived(2));
        if (published_before && last_slot == slot) {
#pragma unroll
            for (u32 r = 0; r < rows; ++r)
                if (held.position[r] == j - 1) {
#pragma unroll
                    for (u32 k = 4; k < width; ++k)
                        to_words_alone(row[r][k - 2], shared.record + k * words);
                }
            wave_barrier(); // the row is complete; its last elements are multipliers
            team.publish_row(row_of(j - 1), lane, shared.record, (width - (j - 1)) * words);
        }
        team.wait_head(step, thread);

        const Pivot pivot = pivot_of(team, step, lane);
        const auto element = [&](u32 i) {
            return from_words<S>(team.head(step, pivot.slot, 2 + i * words));
        };
        last_slot = pivot.slot;
        pivots.note(pivot.magnitude, pivot.position, j, lane);
        S entering[rows];
        divide(pivot.magnitude, element(0), held, entering);
        const S third_of_pivot = minus_product(minus_product(element(2), element(5), of_arrived(2)),
                                               element(4), fourth_of_last);
        fourth = minus_product(element(3), element(5), of_arrived(3));
        fourth_factor = element(4);
#pragma unroll
        for (u32 r = 0; r < rows; ++r) {
            const bool active = pivot.swaps(held.position[r], j);
            const S third_of_row = minus_product(row[r][1], factor[r], fourth_of_last);
            factor_before[r] = factor[r];
            factor[r] = active ? entering[r] : S{};
            entering[r] = active ? entering[r] : row[r][0];
            row[r][0] = minus_product(next_of[r], factor[r], element(1));
            row[r][1] = minus_product(third_of_row, factor[r], third_of_pivot);
            row[r][width - 1] = entering[r];
        }
    }
    if (steps < 2)
        return;
    // Complete the columns after the last step. The columns that it updated are complete.
    const u32 last_row = row_of(steps - 2);
    team.wait_row(last_row, thread);
    const W *const arrived = team.row(last_row);
#pragma unroll
    for (u32 k = 2; k + 2 < width; ++k)
#pragma unroll
        for (u32 r = 0; r < rows; ++r)
            row[r][k] = minus_product(row[r][k], factor_before[r],
                                      from_words<S>(&arrived[(k + 2) * words]));
    row_number += steps - 1;
}

} // namespace cupygemm
