// Reserves some SMs of one GPC for a panel, from before its first launch until its last has ended.
//
//   this kernel   | one warp of each thread block waits for a word ................... | end
//   panel         | block 0 | block 1 | ... | the last block | the word is set
//
// A cluster of thread blocks, which needs SMs of one GPC, factors a block of a panel. Between two
// blocks these SMs are free for a moment. A product whose thread blocks wait for SMs would occupy
// them, and the next block would wait for the product's end. This kernel uses so much shared memory
// that no thread block of a product fits on the same SM, but a thread block of a panel does.
//
// It ends after `most_ns` in any case: otherwise, the reservations of many streams might leave a
// panel no SMs.
#include "config.hpp"
#include "hopper/ordered_words.cuh"

namespace cupygemm {

struct HoldArgs {
    u64 word; // u64, zero until the panel is factored
    u64 most_ns;
};
static_assert(sizeof(HoldArgs) == 16, "HoldArgs must match the dtype that the launcher packs");

CUPYGEMM_INLINE u64 nanoseconds() {
    u64 time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

} // namespace cupygemm

extern "C" __global__ void __launch_bounds__(32) __cluster_dims__(cupygemm::Config::team, 1, 1)
    cupygemm_hold_units(const cupygemm::HoldArgs args) {
    using namespace cupygemm;
    if (threadIdx.x != 0)
        return;
    const u64 start = nanoseconds();
    while (load_acquire(args.word) == 0 && nanoseconds() - start < args.most_ns)
        asm volatile("nanosleep.u32 500;");
}
