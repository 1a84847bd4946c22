// Consumers that take turns at whole tiles (`ping_pong`): one multiplies while the other stores.
//
//   consumer 0  multiply tile 0 | store tile 0     | multiply tile 2 | store tile 2     | ...
//   consumer 1  wait            | multiply tile 1  | store tile 1    | multiply tile 3  | ...
//
// The tensor cores therefore do not wait for the epilogue. A consumer begins when the other one has
// issued its last wgmma. By then every earlier stage of the ring has been full, so the parity that
// it waits for belongs to its own phase and not to an earlier one.
#pragma once

#include "hopper/cluster.cuh"
#include "hopper/tile.cuh"

namespace cupygemm {

// Otherwise all consumers compute their rows of each tile.
template <class Config, bool ping_pong = Config::ping_pong> struct Turns {
    u32 consumer; // the consumer whose rows of a tile it computes

    CUPYGEMM_INLINE explicit Turns(u32 warpgroup) : consumer(warpgroup) {}
    template <class Ring> CUPYGEMM_INLINE bool takes(Ring &, u32) { return true; }
    CUPYGEMM_INLINE void begin() {}
    template <class Scheduler, class Args>
    CUPYGEMM_INLINE void let_other_begin(const Scheduler &, const Args &) const {}
};

template <class Config> struct Turns<Config, true> {
    static constexpr u32 first_barrier = 4; // after those of the block and of the staging buffers
    static constexpr u32 consumer = 0;      // each computes all rows
    u32 warpgroup, turn = 0;

    CUPYGEMM_INLINE explicit Turns(u32 warpgroup) : warpgroup(warpgroup) {}

    // Whether the next tile is this consumer's; the steps of other tiles are skipped.
    template <class Ring> CUPYGEMM_INLINE bool takes(Ring &ring, u32 steps) {
        const bool mine = (turn++ & 1) == warpgroup;
        if (!mine)
            ring.skip(steps);
        return mine;
    }

    // Wait until the other consumer has issued its last wgmma; the first tile has no predecessor.
    CUPYGEMM_INLINE void begin() {
        if (turn != 1)
            pair_sync(first_barrier + warpgroup);
    }

    // Allow the other consumer to begin, if it has a tile.
    template <class Scheduler, class Args>
    CUPYGEMM_INLINE void let_other_begin(Scheduler scheduler, const Args &args) const {
        scheduler.advance(args);
        if (scheduler.more())
            pair_arrive(first_barrier + 1 - warpgroup);
    }
};

} // namespace cupygemm
