// The mainloop: a producer thread keeps a ring of shared tiles full, and consumer warpgroups drain
// it.
//
//   producer    wait empty 0 | load 0 | wait empty 1 | load 1 | ...   runs ahead by num_stages
//   consumer 0  wait full 0 | wgmma 0 | wait full 1 | wgmma 1 | 0 done: release 0 | ...
//   consumer 1  the same, on its rows of the tile: while one waits, the other multiplies
//
// Each consumer has one group of wgmma in flight while it issues the next. A stage has two
// barriers: `full` counts bytes, and `empty` counts one arrival from each consumer of each block
// for which the stage is loaded.
//
// `promote`: the tensor cores accumulate 8-bit floats with only 14 bits. The sums of two steps
// therefore go to separate registers, one block of 64 rows at a time, and are added in fp32. A
// consumer then waits for its group before it adds, while the other consumer's group keeps the
// tensor cores busy:
//   block 0  wait full 0 | wgmma 0 | wait full 1 | wgmma 1 | 0, 1 done | add
//   block 1  wgmma 0 | wgmma 1 | 0 done: release 0 | 1 done: release 1 | add
// `block_scaled`: the same for every single step, and the sums are scaled as they are added.
//
// The blocks of a cluster share rows and columns of tiles. Each loads its share of a common operand
// and multicasts it, which reduces traffic from L2 (multicast.cuh). wgmma has no fp64; its
// consumers are in consumer_mma_sync.cuh.
#pragma once

#include "hopper/consumer_mma_sync.cuh"
#include "hopper/fragments.cuh"
#include "hopper/scaled_sums.cuh"
#include "hopper/scheduler.cuh"

namespace cupygemm {

template <class Config> struct WarpSpecializedMainloop {
    using T = Tile<Config>;
    using Ring = RingPosition<Config::num_stages>;
    using Mma = WarpgroupMma<Config>;

    // One thread. Load all steps of a unit of work.
    template <class Args> CUPYGEMM_INLINE static void
    produce(const Args &args, const Work &work, u32 rank, SharedAddress shared, Ring &ring) {
        const BoxIndex batch = batch_box<Config::operand_rank>(args, work.batch);
        const BoxIndex a_batch = moved(batch, args.a_moves), b_batch = moved(batch, args.b_moves);
        for (u32 step = work.begin; step < work.end; ++step, ring.advance()) {
            const u32 of_k = step_of_k<Config>(args, work, step);
            const SharedAddress full = T::full(shared, ring.stage);
            const SharedAddress a = shared + ring.stage * T::stage_bytes, b = a + T::a_bytes;
            mbarrier_wait(T::empty(shared, ring.stage), ring.parity ^ 1);
            mbarrier_arrive_expect_tx(full, args.stage_bytes);
#pragma unroll
            for (u32 slab = 0; slab < T::slabs; ++slab) {
                const u32 k = of_k * Config::tile_k + slab * T::slab_k;
                load<Config::a_major, Config::tile_m, Config::cluster_n>(
                    a + slab * T::a_slab_bytes, args.a, args.a, a_batch, work.row, k,
                    Multicast<Config>::column(rank), args.a_share, full,
                    Multicast<Config>::wants_a(rank));
                load<Config::b_major, Config::tile_n, Config::cluster_m>(
                    b + slab * T::b_slab_bytes, args.b, narrow_b(args), b_batch, work.column, k,
                    Multicast<Config>::row(rank), args.b_share, full,
                    Multicast<Config>::wants_b(rank));
            }
        }
    }

    // One warpgroup. Sum all steps of a unit of work, and return the result of `meanwhile`, which
    // is called while the last group of wgmma runs, or afterwards where the sums are added in
    // registers.
    template <class Args, class Meanwhile>
    CUPYGEMM_INLINE static auto consume(const Args &args, const Work &work, u32 consumer,
                                        u32 thread, SharedAddress shared, Ring &ring,
                                        Accumulators<Config> &acc, const Meanwhile &meanwhile) {
        if constexpr (Config::mma_sync) {
            MmaSyncConsumer<Config>::sum(work, shared, ring, acc.value);
            return meanwhile();
        } else if constexpr (Config::block_scaled) {
            ScaledSums<Config>::sum(work, consumer, thread, shared, ring, acc);
            return meanwhile();
        } else if constexpr (T::a_in_registers) {
            return sum_from_registers(work, consumer, thread, shared, ring, acc, meanwhile);
        } else if constexpr (Config::promote) {
            sum_in_registers(work, consumer, thread, shared, ring, acc);
            return meanwhile();
        } else {
            return sum_in_tensor_cores(work, consumer, thread, shared, ring, acc, meanwhile);
        }
    }

private:
    template <class Args> CUPYGEMM_INLINE static const TensorMap &narrow_b(const Args &args) {
        if constexpr (T::b_rest != 0)
            return args.narrow_b;
        else
            return args.b;
    }

    template <class Meanwhile> CUPYGEMM_INLINE static auto
    sum_in_tensor_cores(const Work &work, u32 consumer, u32 thread, SharedAddress shared,
                        Ring &ring, Accumulators<Config> &acc, const Meanwhile &meanwhile) {
        u32 previous = ring.stage;
        for (u32 step = work.begin; step < work.end; ++step, ring.advance()) {
            mbarrier_wait(T::full(shared, ring.stage), ring.parity);
            wgmma_fence(); // the epilogue read the accumulators
            Mma::multiply(shared + ring.stage * T::stage_bytes, consumer * T::consumer_blocks,
                          step != work.begin, acc.value);
            wgmma_commit();
            wgmma_wait<1>(); // the previous step is done with its stage
            if (step != work.begin)
                Mma::release(T::empty(shared, previous), thread);
            previous = ring.stage;
        }
        auto result = meanwhile();
        wgmma_wait<0>();
        Mma::settle(acc.value);
        Mma::release(T::empty(shared, previous), thread);
        return result;
    }

    // A comes from registers, which have two sets: each step's set is loaded while the previous
    // step is multiplied.
    template <class Meanwhile> CUPYGEMM_INLINE static auto
    sum_from_registers(const Work &work, u32 consumer, u32 thread, SharedAddress shared, Ring &ring,
                       Accumulators<Config> &acc, const Meanwhile &meanwhile) {
        Fragments<Config> fragments[2];
        u32 previous = ring.stage;
        const auto take = [&](Fragments<Config> &a, u32 step) {
            mbarrier_wait(T::full(shared, ring.stage), ring.parity);
            const SharedAddress stage = shared + ring.stage * T::stage_bytes;
            a.load(stage, consumer, thread);
            wgmma_fence(); // A has been read, and the epilogue read the accumulators
            const u64 b = descriptor<Major::k>(stage + T::a_bytes);
#pragma unroll
            for (u32 k = 0; k < Config::tile_k / T::mma_k; ++k) {
                const u32 slab = k * T::mma_k / T::slab_k,
                          step_in_slab = k % (T::slab_k / T::mma_k);
#pragma unroll
                for (u32 block = 0; block < T::consumer_blocks; ++block)
                    wgmma_mma_async(acc.value[block], a.value[block][k],
                                    b + (slab * T::b_slab_bytes >> 4) +
                                        step_in_slab * descriptor_step<Major::k, T::mma_k>(),
                                    k != 0 || step != work.begin);
            }
            wgmma_commit();
            wgmma_wait<1>(); // the previous step is done with its stage and its registers
            if (step != work.begin)
                Mma::release(T::empty(shared, previous), thread);
            previous = ring.stage;
            ring.advance();
        };
        for (u32 step = work.begin; step < work.end; step += 2) { // in pairs: T::step_group is 2
            take(fragments[0], step);
            take(fragments[1], step + 1);
        }
        auto result = meanwhile();
        wgmma_wait<0>();
        Mma::settle(acc.value);
        Mma::release(T::empty(shared, previous), thread);
        return result;
    }

    // The tensor cores sum only the steps of a group. The first block of rows waits for each stage
    // when it needs it, and the last block releases each stage as soon as it has been read. The
    // ring holds two groups, so a stage held back until its group ends would be late for the next
    // group.
    CUPYGEMM_INLINE static void sum_in_registers(const Work &work, u32 consumer, u32 thread,
                                                 SharedAddress shared, Ring &ring,
                                                 Accumulators<Config> &acc) {
        static_assert(T::step_group <= 2,
                      "only the first and the last stage of a group are released");
        acc = {};
        for (u32 step = work.begin; step < work.end; step += T::step_group) {
            Ring group[T::step_group];
#pragma unroll
            for (auto &place : group) {
                place = ring;
                ring.advance();
            }
#pragma unroll
            for (u32 block = 0; block < T::consumer_blocks; ++block) {
                typename Config::Accumulator sums[1][Config::tile_n / 2];
                const bool last = block + 1 == T::consumer_blocks;
                wgmma_fence(); // the additions read the sums
#pragma unroll
                for (u32 i = 0; i < T::step_group; ++i) {
                    if (block == 0)
                        mbarrier_wait(T::full(shared, group[i].stage), group[i].parity);
                    Mma::multiply(shared + group[i].stage * T::stage_bytes,
                                  consumer * T::consumer_blocks + block, i != 0, sums);
                    wgmma_commit();
                }
                if (last && T::step_group > 1) {
                    wgmma_wait<1>(); // the group's first step is done with its stage
                    Mma::release(T::empty(shared, group[0].stage), thread);
                }
                wgmma_wait<0>();
                Mma::settle(sums);
                if (last)
                    Mma::release(T::empty(shared, group[T::step_group - 1].stage), thread);
#pragma unroll
                for (u32 i = 0; i < Config::tile_n / 2; ++i)
                    acc.value[block][i] += sums[0][i];
            }
        }
    }

    // Load a share of `rows` indices of m or n, for all blocks that need them. If a slab's rows are
    // indices, a share is one box of `rows_of_box` rows, fewer if the matrix has fewer. If its rows
    // are k, each box covers as many indices as fill a row; the last box may use the `narrow` map
    // and fill less. These boxes are divided among the blocks; if there are too few boxes, the k of
    // each box are divided instead.
    template <Major major, u32 rows, u32 shares>
    CUPYGEMM_INLINE static void load(SharedAddress slab, const TensorMap &map,
                                     const TensorMap &narrow, BoxIndex box, u32 row, u32 k,
                                     u32 share, u32 rows_of_box, SharedAddress full, u16 wanted) {
        constexpr bool multicast = shares > 1;
        constexpr bool by_k = major == Major::row && rows / shares % T::slab_k != 0;
        constexpr u32 count = by_k ? rows : rows / shares;
        constexpr u32 box_rows = major == Major::k ? count : T::slab_k;
        constexpr u32 box_k = T::slab_k / (by_k ? shares : 1);
        static_assert((by_k ? T::slab_k : rows) % shares == 0, "shares must be equal");
        const u32 step = major == Major::k ? rows_of_box : count; // from one share to the next
        const u32 first = multicast && !by_k ? share * step : 0;
        const u32 first_k = by_k ? share * box_k : 0;
#pragma unroll
        for (u32 at = 0; at < count; at += box_rows) {
            const i32 index = static_cast<i32>(row + first + at);
            const i32 of_k = static_cast<i32>(k + first_k);
            box.inner = major == Major::k ? of_k : index;
            box.outer = major == Major::k ? index : of_k;
            const bool is_narrow = major == Major::row && at + box_rows > count;
            tma_load<Config::operand_rank, multicast>(slab + (first + at + first_k) * slab_bytes,
                                                      is_narrow ? narrow : map, box, full, wanted);
        }
    }
};

} // namespace cupygemm
