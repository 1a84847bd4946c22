// The scheduler of tiles by SM: a block computes the tile with the number of its SM. So an SM reads
// the same part of an operand in every call, and L2 keeps one copy of it.
//
// The grid has one block for each SM, and no SM has room for two. Still, two blocks may run on one
// SM one after the other, for example while another stream runs. They compute the same tile and
// store the same values, and another tile is left over. So blocks also mark the numbers of their
// SMs while they compute. The block that marks last computes the tiles that are left, and clears
// the marks. It does so before it lets the next launch of its stream start, whose blocks mark
// theirs in the same memory.
//
//   memory:        marks of 32 SMs (word) | number of blocks that have marked
//   shared memory: barrier | tiles that are left for this block, in words of 32 | SM of the block
//
// One thread reads the number of the SM for the whole block: it may change if the block is
// preempted.
//
// Without memory for marks, or if the numbers of SMs exceed those of blocks, a block computes the
// tile of its own number.
#pragma once

#include "hopper/dependent_launch.cuh"
#include "hopper/mbarrier.cuh"
#include "hopper/scheduler.cuh"

namespace cupygemm {

CUPYGEMM_INLINE u32 sm_number() {
    u32 number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return number;
}

// The number of SMs, or a larger one if their numbers have gaps.
CUPYGEMM_INLINE u32 sm_numbers() {
    u32 count;
    asm("mov.u32 %0, %%nsmid;" : "=r"(count));
    return count;
}

CUPYGEMM_INLINE u32 set_bits(u64 address, u32 bits) {
    u32 word;
    asm volatile("atom.relaxed.gpu.global.or.b32 %0, [%1], %2;"
                 : "=r"(word)
                 : "l"(address), "r"(bits)
                 : "memory");
    return word;
}

CUPYGEMM_INLINE u32 exchange_word(u64 address, u32 value) {
    u32 word;
    asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], %2;"
                 : "=r"(word)
                 : "l"(address), "r"(value)
                 : "memory");
    return word;
}

// Add one to a word after all earlier accesses of this thread, and return its previous value.
CUPYGEMM_INLINE u32 count_behind(u64 address) {
    u32 word;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(word)
                 : "l"(address)
                 : "memory");
    return word;
}

CUPYGEMM_INLINE void store_shared_word(SharedAddress to, u32 word) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}

CUPYGEMM_INLINE u32 load_shared_word(SharedAddress from) {
    u32 word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
    return word;
}

template <class Config> struct SmScheduler : Scheduler<Config> {
    static constexpr u32 words = mark_words, none = ~0u;
    SharedAddress barrier;
    u32 word = 0, bits = 0; // of the tiles that are left; `word` counts from 1

    CUPYGEMM_INLINE explicit SmScheduler(const HopperArgs &args) : Scheduler<Config>(args) {}

    // One thread, before the other threads of the block read the words that it stores.
    CUPYGEMM_INLINE static void prepare(SharedAddress shared) {
        mbarrier_init(shared + Tile<Config>::marks_at, 1);
        store_shared_word(sm_at(shared), sm_number());
    }

    CUPYGEMM_INLINE static SharedAddress sm_at(SharedAddress shared) {
        return shared + Tile<Config>::marks_at + sizeof(u64) + words * sizeof(u32);
    }

    // Start with the tile of the block's SM.
    CUPYGEMM_INLINE void begin(const HopperArgs &args, SharedAddress shared) {
        barrier = shared + Tile<Config>::marks_at;
        if (is_placed(args)) {
            this->unit = load_shared_word(sm_at(shared));
            if (this->unit >= this->units)
                advance(args);
        }
    }

    template <class Args> CUPYGEMM_INLINE void advance(const Args &) {
        if (word == 0)
            mbarrier_wait(barrier, 0);
        while (bits == 0 && word < words)
            bits = load_shared_word(barrier + sizeof(u64) + word++ * sizeof(u32));
        this->unit = bits == 0 ? none : (word - 1) * 32 + __ffs(bits) - 1;
        bits &= bits - 1;
    }

    CUPYGEMM_INLINE static bool is_placed(const HopperArgs &args) {
        return args.workspace != 0 && sm_numbers() == cluster_count();
    }

    // One warp. Mark the block's SM, and let the next kernel start.
    CUPYGEMM_INLINE static void mark(const HopperArgs &args, SharedAddress shared, u32 lane) {
        const SharedAddress at = shared + Tile<Config>::marks_at;
        u32 left = 0;
        if (is_placed(args)) {
            const u32 sm = load_shared_word(sm_at(shared)), blocks = cluster_count();
            u32 before = 0;
            if (lane == 0) {
                if (sm < blocks)
                    set_bits(args.workspace + sm / 32 * sizeof(u32), 1u << sm % 32);
                before = count_behind(args.workspace + words * sizeof(u32));
            }
            if (__shfl_sync(~0u, before, 0) == blocks - 1) { // the last block
                if (lane <= words)                           // the counter is the last word
                    left = ~exchange_word(args.workspace + lane * sizeof(u32), 0);
            }
        }
        if (lane < words)
            store_shared_word(at + sizeof(u64) + lane * sizeof(u32), left);
        __syncwarp();
        if (lane == 0)
            mbarrier_arrive(at);
        let_next_kernel_start();
    }
};

// Other schedulers need no start, and mark nothing.
template <class Config, class Args> CUPYGEMM_INLINE void
begin_on_sm(SmScheduler<Config> &scheduler, const Args &args, SharedAddress shared) {
    scheduler.begin(args, shared);
}
template <class Scheduler, class Args>
CUPYGEMM_INLINE void begin_on_sm(Scheduler &, const Args &, SharedAddress) {}

template <class Config, class Args> CUPYGEMM_INLINE void
mark_sm(const SmScheduler<Config> &, const Args &args, SharedAddress shared, u32 lane) {
    SmScheduler<Config>::mark(args, shared, lane);
}
template <class Scheduler, class Args>
CUPYGEMM_INLINE void mark_sm(const Scheduler &, const Args &, SharedAddress, u32) {}

} // namespace cupygemm
