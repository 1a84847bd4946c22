// The launch of a grid: its clusters run one after the other, each with new shared memory.
#include "scheduler.hpp"

#include <stdio.h>
#include <sys/mman.h>

namespace hopper_model {

namespace {

constexpr u32 max_shared_bytes = 227 << 10, registers_of_sm = 65536;

struct Launch {
    void (*kernel)(const void *arguments);
    const void *arguments;
    u32 grid[3], block[3], cluster[3];
    u32 shared_bytes;
    u64 seed;
};

const Launch *launched;

void run_kernel() { launched->kernel(launched->arguments); }

template <class T> T *zeros(u32 count) { return static_cast<T *>(calloc(count, sizeof(T))); }

void make(Block &block, u32 rank) {
    const u32 threads = launched->block[0], bytes = launched->shared_bytes;
    block = Block{};
    block.cluster = &cluster;
    block.rank = rank;
    block.num_threads = block.running = threads;
    block.shared_bytes = bytes;
    const u32 room = bytes + 1024; // so that it begins at a multiple of 1024
    block.shared = static_cast<u8 *>(aligned_alloc(1024, room & ~1023u));
    memset(block.shared, 0xff, bytes); // NaN, or -1
    block.landing = zeros<u8>(bytes / 16 + 1);
    block.read = zeros<u8>(bytes / 16 + 1);
    block.written = zeros<u16>(bytes / 4 + 1);
    block.warps = zeros<WarpMeeting>(threads / warp_size);
    const u32 groups = (threads + warpgroup_size - 1) / warpgroup_size;
    block.warpgroups = zeros<Warpgroup *>(groups);
    for (u32 i = 0; i < groups; ++i)
        block.warpgroups[i] = make_warpgroup();
}

void free_conditions(Block &block) {
    for (Mbarrier &barrier : block.barriers) {
        free(barrier.next);
        free(barrier.condition->waiting.items);
        free(barrier.condition);
    }
    for (NamedBarrier &barrier : block.named)
        free(barrier.condition.waiting.items);
    for (u32 i = 0; i < block.num_threads / warp_size; ++i)
        free(block.warps[i].condition.waiting.items);
    free(block.registers_freed.waiting.items);
}

void destroy(Block &block) {
    free_conditions(block);
    for (u32 i = 0; i < (block.num_threads + warpgroup_size - 1) / warpgroup_size; ++i)
        free_warpgroup(block.warpgroups[i]);
    free(block.warpgroups);
    free(block.barriers.items);
    free(block.shared);
    free(block.landing);
    free(block.read);
    free(block.written);
    free(block.warps);
}

void make_threads(Block &block, Index index) {
    const u32 count = block.num_threads;
    // The registers that __launch_bounds__(count, 1) leaves for each thread; see setmaxnreg.
    const u32 registers = registers_of_sm / count & ~7u;
    for (u32 i = 0; i < count; ++i) {
        Thread &thread = add_thread();
        thread.place = {
            {i, 0, 0}, index, {launched->grid[0], launched->grid[1], launched->grid[2]}};
        thread.block = &block;
        thread.index = i;
        thread.registers = registers < 255 ? registers : 255;
    }
}

bool run_cluster(u32 first, u32 y) {
    const u32 size = launched->cluster[0];
    static Block blocks[8];
    cluster = Cluster{};
    cluster.blocks = blocks;
    cluster.size = size;
    for (u32 rank = 0; rank < size; ++rank) {
        make(blocks[rank], rank);
        make_threads(blocks[rank], {first + rank, y, 0});
    }
    const bool succeeded = run_threads(run_kernel);
    for (u32 rank = 0; rank < size; ++rank)
        destroy(blocks[rank]);
    free(cluster.condition.waiting.items);
    forget_loads();
    return succeeded;
}

const char *refusal() {
    const Launch &l = *launched;
    if (l.block[1] != 1 || l.block[2] != 1 || l.block[0] % warp_size || l.block[0] > 1024)
        return "the model takes blocks of whole warps along x";
    if (l.cluster[1] != 1 || l.cluster[2] != 1 || l.cluster[0] > 8 || l.grid[0] % l.cluster[0])
        return "the grid is not of whole clusters along x";
    if (l.shared_bytes > max_shared_bytes || l.grid[1] > 65535 || l.grid[2] != 1)
        return "the launch asks for more than a GPU has";
    return nullptr;
}

} // namespace

// Run a grid; return null, or the text of the error.
extern "C" const char *hopper_launch(const Launch *launch) {
    launched = launch;
    if (const char *why = refusal())
        return why;
    begin_schedule(launch->seed);
    for (u32 y = 0; y < launch->grid[1]; ++y)
        for (u32 x = 0; x < launch->grid[0]; x += launch->cluster[0])
            if (!run_cluster(x, y))
                return error_text;
    return nullptr;
}

} // namespace hopper_model
