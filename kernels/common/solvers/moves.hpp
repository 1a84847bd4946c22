// Row swaps as moves: the final place of each row after all swaps of a panel.
#pragma once

#include "common/numeric.hpp"
#include "common/threads.hpp"

namespace cupygemm {

constexpr u32 none = ~0u;

struct Move {
    u32 destination, source; // rows; destination `none` if nothing moves
};

// Move `index` of the swaps of rows first, first + 1, ... with rows pivots[0], pivots[1], ... Swaps
// before `from` are not applied. The first `max_pivots` moves go to the swapped rows, in order, and
// the others to rows below. A move of a row to itself has equal fields. With `inverse`, the last
// swap is applied first.
template <u32 max_pivots> CUPYGEMM_INLINE Move traced_move(const u32 *pivots, u32 index, u32 first,
                                                           u32 from, u32 count, bool inverse) {
    const u32 i = index % max_pivots, turn = inverse ? count - 1 - i : i;
    const bool beyond = index >= max_pivots;
    if (i >= count || from >= count)
        return {none, none};
    u32 destination = beyond ? pivots[i] : first + i;
    if (beyond && (i < from || destination - first < count))
        return {none, none}; // one of the swapped rows, or not displaced
    u32 source = destination;
    bool again = false; // a later swap with this row has the same destination
    // Unrolled, since a step is shorter than the wait for a pivot from shared memory.
#pragma unroll 8
    for (u32 step = count; step-- > from;) {
        const u32 j = inverse ? count - 1 - step : step, row = first + j, other = pivots[j];
        again |= other == destination && step > turn;
        source = source == row ? other : source == other ? row : source;
    }
    if (beyond && again)
        return {none, none};
    return {destination, source};
}

} // namespace cupygemm
