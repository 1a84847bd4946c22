// Cooperative groups: the grid, the block, tiles of a wave, and coalesced (active) lanes.
// The smaller groups are views of the wave and the block, so sync is a barrier or a fence. A grid
// synchronises by two counters in the module, and needs a cooperative launch.
#pragma once

#include <device/launch.h>
#include <device/warp.h>
#include <device/warp_sync.h>

#define HIP_CG __device__ inline __attribute__((convergent))
#define HIP_CG_FREE HIP_DEVICE __attribute__((convergent))
// A function that CUDA has and HIP lacks: it does not compile with HIP, either.
#define HIP_CG_ONLY_CUDA(remedy)                                                                   \
    __attribute__((unavailable("a function of CUDA's groups that HIP does not have: "              \
                               "use " remedy)))

namespace cooperative_groups {
struct thread_block {
    HIP_CG unsigned int size() const { return blockDim.x * blockDim.y * blockDim.z; }
    HIP_CG unsigned int num_threads() const { return size(); }
    HIP_CG unsigned int thread_rank() const {
        return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    }
    HIP_CG dim3 group_index() const { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
    HIP_CG dim3 thread_index() const { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
    HIP_CG dim3 group_dim() const { return dim3(blockDim.x, blockDim.y, blockDim.z); }
    HIP_CG dim3 dim_threads() const { return group_dim(); }
    HIP_CG bool is_valid() const { return true; }
    HIP_CG void sync() const { __syncthreads(); }
};
HIP_CG_FREE thread_block this_thread_block() { return {}; }

// The number of arrived workgroups, and of completed barriers. The last to arrive releases all.
inline __device__ unsigned int cupygemm_grid_arrived, cupygemm_grid_rounds;

HIP_CG void cupygemm_grid_wait(unsigned int workgroups) {
    unsigned int *arrived = &cupygemm_grid_arrived, *rounds = &cupygemm_grid_rounds;
    unsigned int before = __hip_atomic_load(rounds, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    unsigned int others =
        __hip_atomic_fetch_add(arrived, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
    if (others == workgroups - 1) {
        __hip_atomic_store(arrived, 0u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
        __hip_atomic_fetch_add(rounds, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
    }
    while (__hip_atomic_load(rounds, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == before) {
        __builtin_amdgcn_s_sleep(1);
    }
}

struct grid_group {
    HIP_CG unsigned long long size() const {
        return (unsigned long long)this_thread_block().size() * gridDim.x * gridDim.y * gridDim.z;
    }
    HIP_CG unsigned long long num_threads() const { return size(); }
    HIP_CG unsigned long long block_rank() const {
        return blockIdx.x + (unsigned long long)gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    }
    HIP_CG unsigned long long thread_rank() const {
        return block_rank() * this_thread_block().size() + this_thread_block().thread_rank();
    }
    // Those of a block, as in HIP.
    HIP_CG dim3 group_dim() const { return this_thread_block().group_dim(); }
    __device__ unsigned int num_blocks() const HIP_CG_ONLY_CUDA("gridDim");
    __device__ dim3 dim_blocks() const HIP_CG_ONLY_CUDA("gridDim");
    __device__ dim3 block_index() const HIP_CG_ONLY_CUDA("blockIdx");
    HIP_CG bool is_valid() const { // a cooperative launch sets hidden_multigrid_sync_arg
        return ((const unsigned long long *)__builtin_amdgcn_implicitarg_ptr())[11] != 0;
    }
    HIP_CG void sync() const {
        if (!is_valid()) {
            asm volatile("s_trap 34"); // reported as a launch that is not cooperative
        }
        __syncthreads();
        if (this_thread_block().thread_rank() == 0) {
            cupygemm_grid_wait(gridDim.x * gridDim.y * gridDim.z);
        }
        __syncthreads();
    }
};
HIP_CG_FREE grid_group this_grid() { return {}; }

// Lanes of a wave: those that were active when it was made, or a part of another such group.
struct coalesced_group {
    unsigned long long lanes;
    unsigned int tile = 0, tiles = 1;
    HIP_CG unsigned int size() const { return __builtin_popcountll(lanes); }
    HIP_CG unsigned int num_threads() const { return size(); }
    HIP_CG unsigned int thread_rank() const {
        return __builtin_popcountll(lanes & __lanemask_lt());
    }
    HIP_CG unsigned int meta_group_rank() const { return tile; }
    HIP_CG unsigned int meta_group_size() const { return tiles; }
    HIP_CG void sync() const { __syncwarp(); }
    HIP_CG unsigned long long mask() const { return lanes; }
    HIP_CG int lane_of(unsigned int rank) const { return __builtin_ctzll(from(rank)); }
    // The lanes from a given one on.
    HIP_CG unsigned long long from(unsigned int rank) const {
        unsigned long long left = lanes;
        for (unsigned int i = 0; i < rank; i++) {
            left &= left - 1;
        }
        return left;
    }
    template <typename T> HIP_CG T shfl(T value, unsigned int rank) const {
        return hip_value_of_lane(value, lane_of(rank % size()));
    }
    template <typename T> HIP_CG T shfl_down(T value, unsigned int delta) const {
        unsigned int rank = thread_rank() + delta;
        return hip_value_of_lane(value, lane_of(rank < size() ? rank : thread_rank()));
    }
    template <typename T> HIP_CG T shfl_up(T value, unsigned int delta) const {
        unsigned int rank = thread_rank();
        return hip_value_of_lane(value, lane_of(rank >= delta ? rank - delta : rank));
    }
    HIP_CG int any(int predicate) const { return (__ballot(predicate) & lanes) != 0; }
    HIP_CG int all(int predicate) const { return (__ballot(predicate == 0) & lanes) == 0; }
    HIP_CG unsigned long long ballot(int predicate) const { return ranks(__ballot(predicate)); }
    template <typename T> HIP_CG unsigned long long match_any(T value) const {
        return ranks(__match_any(value));
    }
    template <typename T> HIP_CG unsigned long long match_all(T value, int &same) const {
        return ranks(__match_all_sync(lanes, value, &same));
    }

private:
    // A mask of lanes as a mask of ranks.
    HIP_CG unsigned long long ranks(unsigned long long chosen) const {
        unsigned long long packed = 0;
        int place = 0;
        for (unsigned long long left = lanes; left; left &= left - 1, place++) {
            packed |= (chosen >> __builtin_ctzll(left) & 1) << place;
        }
        return packed;
    }
};
HIP_CG_FREE coalesced_group coalesced_threads() { return {__activemask()}; }

// A tile of `n` consecutive lanes, a power of two up to 64, and its place among its parent's tiles.
template <unsigned int n, typename Parent = void> struct thread_block_tile {
    static_assert(n >= 1 && n <= 64 && (n & (n - 1)) == 0, "a tile has a power of two of lanes");
    template <typename Group> HIP_CG explicit thread_block_tile(const Group &parent)
        : tile(parent.thread_rank() / n), tiles((parent.size() + n - 1) / n) {}
    template <typename Other> HIP_CG thread_block_tile(const thread_block_tile<n, Other> &other)
        : tile(other.meta_group_rank()), tiles(other.meta_group_size()) {}
    HIP_CG static constexpr unsigned int size() { return n; }
    HIP_CG static constexpr unsigned int num_threads() { return n; }
    HIP_CG unsigned int thread_rank() const { return this_thread_block().thread_rank() % n; }
    HIP_CG unsigned int meta_group_rank() const { return tile; }
    HIP_CG unsigned int meta_group_size() const { return tiles; }
    HIP_CG void sync() const { __syncwarp(); }
    HIP_CG unsigned long long mask() const { return ranks() << first_lane(); }
    template <typename T> HIP_CG T shfl(T value, int rank) const { return __shfl(value, rank, n); }
    template <typename T> HIP_CG T shfl_down(T value, unsigned int delta) const {
        return __shfl_down(value, delta, n);
    }
    template <typename T> HIP_CG T shfl_up(T value, unsigned int delta) const {
        return __shfl_up(value, delta, n);
    }
    template <typename T> HIP_CG T shfl_xor(T value, unsigned int other) const {
        return __shfl_xor(value, (int)other, n);
    }
    HIP_CG unsigned long long ballot(int predicate) const {
        return __ballot(predicate) >> first_lane() & ranks();
    }
    HIP_CG int any(int predicate) const { return ballot(predicate) != 0; }
    HIP_CG int all(int predicate) const { return ballot(predicate == 0) == 0; }
    template <typename T> HIP_CG unsigned long long match_any(T value) const {
        return __match_any(value) >> first_lane() & ranks();
    }
    template <typename T> HIP_CG unsigned long long match_all(T value, int &same) const {
        return __match_all_sync(mask(), value, &same) >> first_lane() & ranks();
    }

private:
    unsigned int tile, tiles;
    HIP_CG static constexpr unsigned long long ranks() {
        return n == 64 ? ~0ull : (1ull << n % 64) - 1;
    }
    HIP_CG unsigned int first_lane() const { return __lane_id() & ~(n - 1); }
};
template <unsigned int n, typename Parent>
HIP_CG_FREE thread_block_tile<n, Parent> tiled_partition(const Parent &parent) {
    return thread_block_tile<n, Parent>(parent);
}

// Any group, for functions that are not templates: a copy of its size and of this thread's place.
struct thread_group {
    HIP_CG thread_group(unsigned int threads, unsigned int rank)
        : threads(threads), rank(rank), is_block(false) {}
    HIP_CG thread_group(const thread_block &group)
        : threads(group.size()), rank(group.thread_rank()), is_block(true) {}
    template <typename Group> HIP_CG thread_group(const Group &group)
        : thread_group(group.size(), group.thread_rank()) {}
    HIP_CG unsigned int size() const { return threads; }
    HIP_CG unsigned int num_threads() const { return threads; }
    HIP_CG unsigned int thread_rank() const { return rank; }
    HIP_CG bool is_valid() const { return true; }
    HIP_CG void sync() const {
        if (is_block)
            __syncthreads();
        else
            __syncwarp();
    }

private:
    unsigned int threads, rank;
    bool is_block;
};
using tiled_group = thread_group;
HIP_CG_FREE thread_group this_thread() { return {1u, 0u}; }

// Tiles whose size is known at run time only.
HIP_CG_FREE void cupygemm_check_tile(unsigned int n) {
    if (n == 0 || n > 64 || (n & (n - 1)) != 0) {
        asm volatile("s_trap 35"); // reported as a size that no tile has
    }
}
template <typename Parent>
HIP_CG_FREE thread_group tiled_partition(const Parent &parent, unsigned int n) {
    cupygemm_check_tile(n);
    return {n, parent.thread_rank() % n};
}
HIP_CG_FREE coalesced_group tiled_partition(const coalesced_group &parent, unsigned int n) {
    cupygemm_check_tile(n);
    unsigned int tile = parent.thread_rank() / n;
    coalesced_group rest = {parent.from(tile * n)};
    unsigned long long behind = rest.size() > n ? rest.from(n) : 0;
    return {rest.lanes ^ behind, tile, (parent.size() + n - 1) / n};
}

// The lanes of a tile or a coalesced group that have the same condition as this lane.
template <typename Group>
HIP_CG_FREE coalesced_group binary_partition(const Group &group, bool condition) {
    unsigned long long all = group.mask(), chosen = __ballot(condition) & all;
    return {condition ? chosen : all ^ chosen};
}

template <typename Group, typename Label>
__device__ coalesced_group labeled_partition(const Group &group, Label label) HIP_CG_ONLY_CUDA(
    "match_any() of the group, and shfl() to the first of the lanes that it names");

#define HIP_CG_OPERATION(name, combined)                                                           \
    template <typename T> struct name {                                                            \
        HIP_CG T operator()(T a, T b) const { return combined; }                                   \
    };
HIP_CG_OPERATION(plus, a + b)
HIP_CG_OPERATION(less, b < a ? b : a)
HIP_CG_OPERATION(greater, a < b ? b : a)
HIP_CG_OPERATION(bit_and, (a & b))
HIP_CG_OPERATION(bit_or, a | b)
HIP_CG_OPERATION(bit_xor, a ^ b)
#undef HIP_CG_OPERATION
template <typename Group, typename T, typename Operation>
HIP_CG_FREE T reduce(const Group &group, T value, Operation operation) {
    return hip_reduce(group.mask() & __activemask(), value, operation);
}

// CUDA's copies that a group starts and waits for; HIP lacks them, so they do not compile there.
#define HIP_CG_ABSENT                                                                              \
    __attribute__((unavailable("HIP has no asynchronous copies of groups: let each thread copy "   \
                               "its part, and call sync() of the group before the copy is read")))
template <typename Group, typename... Rest>
__device__ void memcpy_async(const Group &group, Rest... rest) HIP_CG_ABSENT;
template <typename Group> __device__ void wait(const Group &group) HIP_CG_ABSENT;
template <unsigned int stages, typename Group>
__device__ void wait_prior(const Group &group) HIP_CG_ABSENT;
#undef HIP_CG_ABSENT

template <typename Group> HIP_CG_FREE void sync(const Group &group) { group.sync(); }
template <typename Group> HIP_CG_FREE auto thread_rank(const Group &group) {
    return group.thread_rank();
}
template <typename Group> HIP_CG_FREE auto group_size(const Group &group) { return group.size(); }
template <typename Group> HIP_CG_FREE bool is_valid(const Group &group) { return group.is_valid(); }
} // namespace cooperative_groups

#undef HIP_CG
#undef HIP_CG_FREE
#undef HIP_CG_ONLY_CUDA
