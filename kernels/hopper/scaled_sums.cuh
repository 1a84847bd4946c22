// The sums of operands with scales that change along k (block_scales.cuh): the sums of each step
// are scaled, and added in fp32.
#pragma once

#include "hopper/block_scales.cuh"
#include "hopper/warpgroup_mma.cuh"

namespace cupygemm {

template <class Config> struct ScaledSums {
    using T = Tile<Config>;
    using Ring = RingPosition<Config::num_stages>;
    using Mma = WarpgroupMma<Config>;

    // One consumer: sum all steps of a unit of work.
    CUPYGEMM_INLINE static void sum(const Work &work, u32 consumer, u32 thread,
                                    SharedAddress shared, Ring &ring, Accumulators<Config> &acc) {
        acc = {};
        if constexpr (T::sums_alternate)
            sum_alternately(work, consumer, thread, shared, ring, acc);
        else
            sum_steps(work, consumer, thread, shared, ring, acc);
    }

private:
    // The addresses of a stage that a consumer reads. They advance with the ring, so that all are
    // known when a step begins.
    struct Place {
        static constexpr u32 units = T::stage_bytes >> 4, last = Config::num_stages - 1;
        static constexpr u64 layout = descriptor_layout<Major::k>() >> 32 << 32;
        u32 a, b; // the low words of the descriptors
        ScalesOfStage<Config> scales;

        CUPYGEMM_INLINE Place(SharedAddress shared, u32 consumer, u32 thread, u32 stage)
            : a(static_cast<u32>(
                    descriptor<Major::k>(shared + consumer * T::consumer_blocks * block_bytes)) +
                stage * units),
              b(static_cast<u32>(descriptor<Major::k>(shared + T::a_bytes)) + stage * units),
              scales(T::scales(shared, stage), consumer, thread) {}

        CUPYGEMM_INLINE u64 a_of_block(u32 block) const {
            return layout | (a + block * (block_bytes >> 4)); // no carry leaves the low word
        }

        CUPYGEMM_INLINE void advance(u32 stage) {
            const u32 stages = stage == last ? 0 - last : 1;
            a += stages * units;
            b += stages * units;
            scales = scales.moved(stages);
        }
    };

    // While one consumer scales and adds, the others multiply. Instructions between the last
    // addition of a step and the first wgmma of the next delay both, so there are as few as
    // possible: the wait for the next stage has no branch around it, so that the compiler begins it
    // before the additions, and each second branch of the loop is left out where registers suffice.
    CUPYGEMM_INLINE static void sum_steps(const Work &work, u32 consumer, u32 thread,
                                          SharedAddress shared, Ring &ring,
                                          Accumulators<Config> &acc) {
        Place place(shared, consumer, thread, ring.stage);
        mbarrier_wait(T::full(shared, ring.stage), ring.parity);
#pragma unroll(Config::scale_per_column ? 1 : 2)
        for (u32 step = work.begin; step < work.end; ++step) {
            const SharedAddress empty = T::empty(shared, ring.stage);
            const Place now = place;
            place.advance(ring.stage);
            ring.advance();
            const bool is_end = step + 1 == work.end;
            const SharedAddress full = is_end ? T::passed(shared) : T::full(shared, ring.stage);
            const u32 parity = is_end ? 1 : ring.parity;
            const auto of_columns = now.scales.columns_of_step();
            auto of_rows = now.scales.rows_of_block(0);
#pragma unroll
            for (u32 block = 0; block < T::consumer_blocks; ++block) {
                const bool is_last = block + 1 == T::consumer_blocks;
                typename Config::Accumulator sums[1][Config::tile_n / 2];
                wgmma_fence(); // the additions read the sums
                Mma::multiply(now.a_of_block(block), Place::layout | now.b, false, sums);
                wgmma_commit();
                const auto factors = ScalesOfStage<Config>::factors(of_rows, of_columns);
                if (!is_last)
                    of_rows = now.scales.rows_of_block(block + 1);
                wgmma_wait<0>();
                Mma::settle(sums);
                if (is_last && !T::warps_release)
                    Mma::release(empty, thread);
                now.scales.add(acc.value[block], sums[0], factors);
            }
            if (T::warps_release)
                Mma::release(empty, thread);
            mbarrier_wait(full, parity);
        }
    }

    // With two sets of sums, which the steps of a run use alternately: while one step is
    // multiplied, the sums of the previous step are added.
    //
    //   multiply 0 | multiply 1 | multiply 2 | multiply 3 |       | multiply 4 | ...
    //              | add 0      | add 1      | add 2      | add 3 |            | ...
    //
    // The compiler would serialise all wgmma if one were in flight at a branch, so each run ends
    // without one in flight.
    CUPYGEMM_INLINE static void sum_alternately(const Work &work, u32 consumer, u32 thread,
                                                SharedAddress shared, Ring &ring,
                                                Accumulators<Config> &acc) {
        u32 step = work.begin;
        for (; step + T::long_run <= work.end; step += T::long_run)
            sum_run<T::long_run>(consumer, thread, shared, ring, acc);
        for (; step < work.end; step += T::step_group)
            sum_run<T::step_group>(consumer, thread, shared, ring, acc);
    }

    template <u32 count> CUPYGEMM_INLINE static void
    sum_run(u32 consumer, u32 thread, SharedAddress shared, Ring &ring, Accumulators<Config> &acc) {
        typename Config::Accumulator sums[2][1][Config::tile_n / 2];
        typename ScalesOfStage<Config>::Factors factors[2];
        Ring next = ring; // of the step that is multiplied next
        const auto add = [&](u32 i) {
            Mma::settle(sums[i]);
            scales_of(ring, consumer, thread, shared).add(acc.value[0], sums[i][0], factors[i]);
            Mma::release(T::empty(shared, ring.stage), thread);
            ring.advance();
        };
#pragma unroll
        for (u32 i = 0; i < count; ++i) {
            mbarrier_wait(T::full(shared, next.stage), next.parity);
            factors[i % 2] = scales_of(next, consumer, thread, shared).factors(0);
            wgmma_fence(); // the additions read the sums
            Mma::multiply(shared + next.stage * T::stage_bytes, consumer, false, sums[i % 2]);
            wgmma_commit();
            next.advance();
            if (i > 0) {
                wgmma_wait<1>();
                add((i - 1) % 2);
            }
        }
        wgmma_wait<0>();
        add((count - 1) % 2);
    }

    CUPYGEMM_INLINE static ScalesOfStage<Config> scales_of(const Ring &at, u32 consumer, u32 thread,
                                                           SharedAddress shared) {
        return {T::scales(shared, at.stage), consumer, thread};
    }
};

} // namespace cupygemm
