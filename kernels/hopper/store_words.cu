// Stores one number to adjacent words, such as counters that the next kernel needs to be zero.
//
// A memset in a graph takes longer, and waits for memsets before it, also in independent branches:
// one that follows a panel holds up the others (docs/explanation/factorisations_tried.rst).
#include "config.hpp"
#include "hopper/dependent_launch.cuh"

namespace cupygemm {

struct StoreWordsArgs {
    u64 to; // u64 words
    i64 value;
    i32 count, unused;
};
static_assert(sizeof(StoreWordsArgs) == 24,
              "StoreWordsArgs must match the dtype that the launcher packs");

} // namespace cupygemm

extern "C" __global__ void __launch_bounds__(cupygemm::Config::threads)
    cupygemm_store_words(const cupygemm::StoreWordsArgs args) {
    using namespace cupygemm;
    const u32 at = blockIdx.x * Config::threads + threadIdx.x;
    wait_for_work_before();
    if (at < static_cast<u32>(args.count))
        reinterpret_cast<i64 *>(args.to)[at] = args.value;
}
