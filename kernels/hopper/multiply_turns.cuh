// Two consumers that multiply in turns, and add outside the tensor cores in between.
//
//   consumer 0  multiply | add      | multiply | add      | ...
//   consumer 1  wait     | multiply | add      | multiply | ...
//
// Both multiply equally often, so each waits for its turn and passes it on, from the first step of
// the first tile to the last step of the last one. Consumer 1 passes the first turn.
#pragma once

#include "hopper/cluster.cuh"

namespace cupygemm {

template <class Config, bool in_turns = Config::block_scaled && Config::num_consumers == 2>
struct MultiplyTurns {
    static constexpr u32 passed_after = 2;

    CUPYGEMM_INLINE static void start(u32) {}
    CUPYGEMM_INLINE static void begin(u32) {}
    CUPYGEMM_INLINE static void pass(u32) {}
    CUPYGEMM_INLINE static void finish(u32) {}
};

template <class Config> struct MultiplyTurns<Config, true> {
    static constexpr u32 first_barrier = 4; // after those of the block and of the staging buffers
    // Of a step's four wgmma, so many are done when the turn is passed on. The others keep the
    // tensor cores busy until the other consumer's first one arrives.
    static constexpr u32 passed_after = 2;

    CUPYGEMM_INLINE static void start(u32 consumer) {
        if (consumer == 1)
            pass(consumer);
    }
    CUPYGEMM_INLINE static void begin(u32 consumer) { pair_sync(first_barrier + consumer); }
    CUPYGEMM_INLINE static void pass(u32 consumer) { pair_arrive(first_barrier + 1 - consumer); }

    // Take the turn that nobody needs, so that no barrier is left half complete.
    CUPYGEMM_INLINE static void finish(u32 consumer) {
        if (consumer == 0)
            begin(consumer);
    }
};

} // namespace cupygemm
