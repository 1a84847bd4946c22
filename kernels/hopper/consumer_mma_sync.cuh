// The fp64 consumer: loads fragments to registers and multiplies them with mma.sync.
//
// Each warp multiplies 16 rows of each of its warpgroup's blocks by all columns of the tile, in
// steps of 8 k and two groups of 8 columns at a time. Loads run ahead of the multiplication: B by
// two groups, A by one step.
//
//   of a warp   mma 0, 1 | mma 2, 3 | ... | mma n - 2, n - 1            || mma 0, 1 | ...
//   B           2, 3     | 4, 5     | ... | 0, 1 of the next step       || 2, 3
//   A                                     | rows of the next step       ||
//
// Loads write registers that the current instructions do not read: a load that waited for the
// previous instruction would delay the next one. A warp waits for the next stage before it loads
// from there, and releases a stage once it has multiplied all of it. Two warps share each quarter
// of the tensor cores, so one multiplies while the other waits.
#pragma once

#include "hopper/fragments_f64.cuh"
#include "hopper/scheduler.cuh"

namespace cupygemm {

template <class Config> struct MmaSyncConsumer {
    using T = Tile<Config>;
    using Ring = RingPosition<Config::num_stages>;
    static constexpr u32 blocks = T::consumer_blocks;
    static constexpr u32 groups = Config::tile_n / 8;   // of 8 columns, for one instruction each
    static constexpr u32 group_bytes = 16 * slab_bytes; // of 16 indices in a slab
    static constexpr u32 slab_steps = T::slab_k / T::mma_k;
    static constexpr u32 stage_steps = T::slabs * slab_steps;

    static_assert(groups % 4 == 0, "B's four fragments must come round within a step");
    static_assert(stage_steps % 2 == 0, "A's two sets of rows must come round within a stage");
    static_assert(Config::num_stages > 1,
                  "a consumer waits for the next stage before it releases the last");

    // One warp. Sum all steps of a unit of work; `value` is as in Accumulators.
    CUPYGEMM_INLINE static void sum(const Work &work, SharedAddress shared, Ring &ring,
                                    double (&value)[blocks][Config::tile_n / 2]) {
        const u32 thread = thread_index(), lane = thread % 32;
        const u32 consumer = thread / warpgroup_size, warp = thread % warpgroup_size / 32;
        const SharedAddress a_first = shared + consumer * blocks * block_bytes +
                                      warp * group_bytes + fragment_offset<Config::a_major>(lane);
        const SharedAddress b_first = shared + T::a_bytes + fragment_offset<Config::b_major>(lane);
#pragma unroll
        for (auto &block : value) {
#pragma unroll
            for (auto &element : block)
                element = 0;
        }
        Rows a[2];     // this step's and the next step's
        Fragment b[4]; // two groups of columns, and the next two
        mbarrier_wait(T::full(shared, ring.stage), ring.parity);
        u32 stage = ring.stage * T::stage_bytes;
        load_rows(a[0], a_first + stage, 0);
        load_columns(b, b_first + stage, 0, 0);
        for (u32 stages = work.end - work.begin; stages > 0; --stages) {
            const SharedAddress empty = T::empty(shared, ring.stage);
            const bool more = stages > 1;
            ring.advance();
            // After the last stage, loads read the same stage again, and the data is unused.
            const u32 next_stage = more ? ring.stage * T::stage_bytes : stage;
#pragma unroll
            for (u32 step = 0; step < stage_steps; ++step) {
                const bool leaves = step + 1 == stage_steps;
                const u32 slab = step / slab_steps, next = leaves ? 0 : step + 1;
                const u32 next_slab = next / slab_steps, from = leaves ? next_stage : stage;
#pragma unroll
                for (u32 group = 0; group < groups; group += 2) {
                    const bool last = group + 2 == groups;
                    if (last && leaves && more)
                        mbarrier_wait(T::full(shared, ring.stage), ring.parity);
                    multiply(value, group, a[step % 2], b);
                    if (last) {
                        load_columns(b, b_first + from + next_slab * T::b_slab_bytes, 0,
                                     next % slab_steps);
                        load_rows(a[1 - step % 2], a_first + from + next_slab * T::a_slab_bytes,
                                  next % slab_steps);
                    } else {
                        load_columns(b, b_first + stage + slab * T::b_slab_bytes, group + 2,
                                     step % slab_steps);
                    }
                    multiply(value, group + 1, a[step % 2], b);
                }
            }
            release(empty, lane);
            stage = next_stage;
        }
    }

private:
    // A lane's two rows of each block.
    struct Rows {
        Fragment row[blocks], below[blocks];
    };

    CUPYGEMM_INLINE static void load_rows(Rows &rows, SharedAddress slab, u32 step) {
#pragma unroll
        for (u32 block = 0; block < blocks; ++block) {
            const SharedAddress at = slab + block * block_bytes;
            rows.row[block] = load_fragment<Config::a_major>(at, 0, step);
            rows.below[block] = load_fragment<Config::a_major>(at, 1, step);
        }
    }

    // Load two groups of columns.
    CUPYGEMM_INLINE static void load_columns(Fragment (&b)[4], SharedAddress slab, u32 group,
                                             u32 step) {
        const SharedAddress at = slab + group / 2 * group_bytes;
        b[group % 4] = load_fragment<Config::b_major>(at, 0, step);
        b[group % 4 + 1] = load_fragment<Config::b_major>(at, 1, step);
    }

    CUPYGEMM_INLINE static void multiply(double (&value)[blocks][Config::tile_n / 2], u32 group,
                                         const Rows &a, const Fragment (&b)[4]) {
#pragma unroll
        for (u32 block = 0; block < blocks; ++block)
            mma_m16n8k8(&value[block][group * 4], a.row[block], a.below[block], b[group % 4]);
    }

    // Release a stage: in every block that wrote to it, one lane arrives on behalf of this warp.
    CUPYGEMM_INLINE static void release(SharedAddress empty, u32 lane) {
        __syncwarp(); // every lane has read its data
        if constexpr (T::cluster_size == 1) {
            if (lane == 0)
                mbarrier_arrive(empty);
        } else {
            if (lane < Multicast<Config>::num_peers)
                mbarrier_arrive_cluster(empty, Multicast<Config>::peer(lane));
        }
    }
};

} // namespace cupygemm
