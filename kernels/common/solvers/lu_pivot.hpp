// What the threads of a team hold and tell each other while they factor an LU panel (lu_panel.hpp).
#pragma once

#include "common/solvers/block_before.hpp"
#include "config.hpp"

namespace cupygemm {

using S = Config::Scalar;
using R = Real<S>;
using W = Word<S>;
constexpr u32 width = Config::width, rows = Config::rows, threads = Config::threads;
constexpr u32 num_groups = threads / 32, most_pivots = 32;
static_assert(width <= most_pivots, "the moves of a block have as many places");
constexpr u32 words = Parts<S>::words;
constexpr u32 whole = 16 / sizeof(W); // words of 16 bytes, in which messages are sent
constexpr bool is_late = rows_are_late<Config::team>;
static_assert(!is_late || width >= 4, "a head tells the first four elements of its row");

// A head is the bits of a magnitude, a position, a divisor and elements of a row. A row is all
// elements.
constexpr u32 head_words = (is_late ? 8 : 4) * words;
constexpr u32 row_words = (width * words + whole - 1) / whole * whole;

// The bits of a magnitude, which are ordered as the numbers are, with NaN above all.
CUPYGEMM_INLINE W rank_of(S x) { return bits_of(signed_magnitude(x)) & (~static_cast<W>(0) >> 1); }

// A pivot: the bits of its magnitude, and its row. Among equal ones, the first row wins.
struct Candidate {
    W magnitude;
    u32 position; // ~0: none

    CUPYGEMM_INLINE bool meet(W other, u32 at) {
        const bool wins = (other > magnitude) | ((other == magnitude) & (at < position));
        magnitude = wins ? other : magnitude;
        position = wins ? at : position;
        return wins;
    }
};

using Before = BlockBefore<S, width, threads>;
using Exchange = PivotTeam<W, Config::team, num_groups, head_words, row_words>;

struct Shared {
    RowStage<S, width> stages[num_groups];
    Before before;
    Exchange team;
    alignas(16) W heads[num_groups][head_words]; // to be published
    alignas(16) W record[head_words + row_words];
    W zeros[row_words];
    W magnitudes[2][num_groups]; // by the parity of the step
    u32 positions[2][num_groups];
};
static_assert(!is_late || sizeof(Shared) <= 48 << 10, "a launch gets no more without asking");

// Find the group of 32 threads with the largest candidate of the workgroup.
CUPYGEMM_INLINE u32 publisher_of(Shared &shared, Candidate best, bool leads, u32 step, u32 lane,
                                 u32 group) {
    if (leads) {
        shared.magnitudes[step % 2][group] = best.magnitude;
        shared.positions[step % 2][group] = best.position;
    }
    workgroup_barrier(); // the candidates of all groups of 32 are in shared memory
    const bool compares = lane < num_groups;
    return largest_of_32(compares ? shared.magnitudes[step % 2][lane % num_groups] : 0,
                         compares ? shared.positions[step % 2][lane % num_groups] : ~0u);
}

// The rows of a thread, and their places in the panel.
struct Held {
    S row[rows][width]; // (row, column); after some steps, register k holds column k + steps
    u32 position[rows];

    // The largest element of the first column, in rows at position `step` or later.
    CUPYGEMM_INLINE Candidate best(u32 step, u32 m) const {
        Candidate found{0, ~0u};
#pragma unroll
        for (u32 r = 0; r < rows; ++r) {
            const bool competes = position[r] >= step && position[r] < m;
            found.meet(competes ? rank_of(row[r][0]) : 0, competes ? position[r] : ~0u);
        }
        return found;
    }
};

// The pivots of the steps so far. A lane's number is that of a step.
struct Pivots {
    u32 of_lane = 0;
    i32 failed = 0; // 1 + the first column without a pivot, or 0

    CUPYGEMM_INLINE void note(W magnitude, u32 position, u32 step, u32 lane) {
        failed = magnitude == 0 && failed == 0 ? static_cast<i32>(step) + 1 : failed;
        of_lane = lane == step ? position : of_lane;
    }
};

// Whether to multiply by the inverse of a pivot of some magnitude. The inverse of a smaller number
// may overflow, and that of a larger one vanish.
CUPYGEMM_INLINE bool by_inverse(W magnitude) {
    constexpr R least = 2 * Config::smallest_invertible; // of a complex number, a part is larger
    return magnitude >= bits_of(least) && magnitude <= bits_of(1 / (4 * least));
}

// By what a pivot's column is divided: its inverse to multiply by, or itself.
CUPYGEMM_INLINE S divisor_of(W magnitude, S pivot) {
    return by_inverse(magnitude) ? inverse(pivot) : pivot;
}

CUPYGEMM_INLINE void divide(W magnitude, S divisor, const Held &held, S (&quotients)[rows]) {
    if (by_inverse(magnitude)) {
#pragma unroll
        for (u32 r = 0; r < rows; ++r)
            quotients[r] = times(held.row[r][0], divisor);
    } else {
#pragma unroll
        for (u32 r = 0; r < rows; ++r)
            quotients[r] = divided(held.row[r][0], magnitude == 0 ? of_real<S>(1) : divisor);
    }
}

// The pivot of a step, among the heads of a team.
struct Pivot {
    W magnitude;
    u32 position, slot; // its head is there

    CUPYGEMM_INLINE bool is_zero() const { return magnitude == 0; }
    // Take part in the swap of the pivot's row and that of the step, and tell whether a row that
    // was at `position` is now below the step, so that it is divided.
    CUPYGEMM_INLINE bool swaps(u32 &at, u32 step) const {
        at = at == position ? step : at == step ? position : at;
        return at > step && !is_zero();
    }
};

CUPYGEMM_INLINE Pivot pivot_of(const Exchange &team, u32 step, u32 lane) {
    constexpr u32 slots = Exchange::slots;
    const auto word = [&](u32 slot, u32 i) { return *team.head(step, slot, i); };
    Candidate mine{0, ~0u};
    u32 slot = lane;
    if (slots % 32 == 0 || lane < slots)
        mine = {word(lane, 0), static_cast<u32>(word(lane, 1))};
#pragma unroll
    for (u32 first = 32; first < slots; first += 32)
        if (slots % 32 == 0 || first + lane < slots)
            if (mine.meet(word(first + lane, 0), static_cast<u32>(word(first + lane, 1))))
                slot = first + lane;
    if constexpr (slots == 1)
        slot = 0;
    else
        slot = from_lane(slot, largest_of_32(mine.magnitude, mine.position));
    return {word(slot, 0), static_cast<u32>(word(slot, 1)), slot};
}

} // namespace cupygemm
