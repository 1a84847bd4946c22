// The state of the machine: a cluster of blocks, each with threads and shared memory.
//
// One cluster runs at a time. An asynchronous operation is a record that completes as late as
// possible, or in a seeded order. Until then its bytes are locked, and an access to them is an
// error. Each unit has a file of its own.
#pragma once

#include "interface.hpp"

#include <stdlib.h>
#include <string.h>

namespace hopper_model {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

constexpr u32 warp_size = 32, warpgroup_size = 128;

// A growing array of elements without destructors.
template <class T> struct List {
    T *items = nullptr;
    u32 size = 0, capacity = 0;

    T &push(const T &item) {
        if (size == capacity) {
            capacity = capacity ? 2 * capacity : 8;
            items = static_cast<T *>(realloc(static_cast<void *>(items), capacity * sizeof(T)));
        }
        return items[size++] = item;
    }
    void remove(u32 index) {
        memmove(static_cast<void *>(items + index), items + index + 1,
                (--size - index) * sizeof(T));
    }
    void clear() { size = 0; }
    T &operator[](u32 index) { return items[index]; }
    T *begin() { return items; }
    T *end() { return items + size; }
};

struct Block;
struct Cluster;
struct Thread;

// Threads that wait for a condition, which they test again when they are woken.
struct Condition {
    List<Thread *> waiting;
};

// A copy of a box of a tensor to or from shared memory, not complete yet.
struct TmaCopy {
    const void *map; // null for adjacent bytes
    u64 from;        // of adjacent bytes, and their number
    u32 bytes;
    i32 box[5]; // innermost first
    u32 offset; // in shared memory
    u32 barrier;
    u16 blocks; // that receive the multicast
    Block *block;
    u32 group; // of the thread's stores; 0 while it is open
};

// A cp.async that has not landed yet.
struct ThreadCopy {
    u64 from;
    u32 offset; // in shared memory
    u32 bytes, present;
    u32 group; // of the thread's copies; 0 while it is open
};

struct Thread {
    Place place;
    Block *block;
    u32 index; // in the block
    void *stack;
    u32 turn; // its position in the order of the scheduler
    bool done;
    const Site *site;        // of the asm that it executes
    const char *text;        // of the instruction
    const char *waits_for;   // a description, while the thread waits
    u64 wait_details[3];     // of the description
    List<u32> unfenced;      // words of shared memory written since its last proxy fence
    List<TmaCopy> stores;    // that have not read shared memory yet
    u32 store_groups;        // closed
    List<ThreadCopy> copies; // that have not landed yet
    u32 copy_groups;         // closed
    u32 cluster_phase;       // of the cluster's barrier, at its arrival
    u32 registers;           // by setmaxnreg
    bool loaded_since_fence; // a register, from shared memory, since wgmma.fence
    bool fenced;             // wgmma may use its accumulators
    bool work_before_ended;  // it has waited for preceding work and may access global memory
    u32 acquired;            // words, by ld.acquire
    u32 multiplications, multiplied; // issued, and complete, of its warpgroup's list
    List<u32> groups;                // of multiplications: how many were issued at each commit
};

// An mbarrier object; see mbarrier.cpp.
constexpr i32 fresh = -2; // the next phase of a thread that has not waited yet

struct Mbarrier {
    u32 offset;
    i32 expected, pending;
    i64 bytes; // announced and not arrived yet
    i32 phase; // number of phases that have ended
    bool fenced;
    u32 initialiser;
    i32 *next;        // by thread: the phase that its next wait is for
    i32 known[16];    // by named barrier: the latest `next` of the threads that have come there
    i32 released[16]; // the same, when the barrier last let its threads go on
    Condition *condition;
};

struct NamedBarrier {
    u32 expected, arrived, generation;
    Condition condition;
};

// The registers that lanes bring to one stmatrix, mma.sync or __syncwarp.
struct WarpMeeting {
    u32 arrived, generation;
    u64 value[2][warp_size][6]; // by generation: a lane may have reached the next meeting
    Condition condition;
};

struct Warpgroup; // wgmma.cpp

struct Block {
    Cluster *cluster;
    u32 rank, num_threads, running;
    u8 *shared;
    u32 shared_bytes;
    u8 *landing;  // for each 16 bytes: TMA loads that have not landed
    u8 *read;     // for each 16 bytes: asynchronous reads that are not complete
    u16 *written; // for each word: 1 + the thread that wrote it without a fence since
    List<Mbarrier> barriers;
    NamedBarrier named[16];
    WarpMeeting *warps;
    Warpgroup **warpgroups;
    i64 free_registers;
    Condition registers_freed;
};

struct Cluster {
    Block *blocks;
    u32 size;
    u32 arrived, phase; // of barrier.cluster
    Condition condition;
};

extern Cluster cluster;
extern Thread *running;
extern u64 seed;

// -- scheduler.cpp --------------------------------------------------------------------------------
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void wait_on(Condition &condition, const char *what, u64 x = 0, u64 y = 0, u64 z = 0);
void wake(Condition &condition);
u32 random_below(u32 limit);

// -- shared_memory.cpp ----------------------------------------------------------------------------
constexpr u32 window_base = 1024; // of a block's own shared memory
struct SharedPlace {
    Block *block;
    u32 offset;
};
SharedPlace place_of(u32 address, u32 bytes);
u32 mapped_address(u32 address, u32 rank);
u32 swizzled(u32 offset, u32 width = 128);
void load_ordinary(u32 address, void *to, u32 bytes);
void store_ordinary(u32 address, const void *from, u32 bytes);
void lock_for_landing(Block &block, u32 offset, u32 bytes);
void lock_part_for_landing(Block &block, u32 offset, u32 bytes);
void unlock_landed(Block &block, u32 offset, u32 bytes);
void lock_for_reading(Block &block, u32 offset, u32 bytes);
void unlock_read(Block &block, u32 offset, u32 bytes);
void proxy_fence();

// -- barriers.cpp ---------------------------------------------------------------------------------
void require_work_before_ended();

// -- mbarrier.cpp ---------------------------------------------------------------------------------
void mbarrier_arrive(u32 address); // in this block
void mbarrier_landed(Block &block, u32 offset, u32 bytes);
void mbarrier_require_fenced(Block &block, u32 offset);

// -- tma.cpp --------------------------------------------------------------------------------------
bool land_a_load(); // let one load land, if there is one
void finish_stores(Thread &thread, u32 younger);
void require_stores_read(const Thread &thread);
void forget_loads();

// -- cp_async.cpp ---------------------------------------------------------------------------------
void require_copies_landed(const Thread &thread);

// -- wgmma.cpp ------------------------------------------------------------------------------------
Warpgroup *make_warpgroup();
void free_warpgroup(Warpgroup *group);
bool is_being_multiplied(Thread &thread, const void *address);
void require_no_multiplications(Thread &thread);

// -- barriers.cpp ---------------------------------------------------------------------------------
void meet(); // the lanes of a warp wait for each other

// -- ptx.cpp --------------------------------------------------------------------------------------
struct Arguments; // of one instruction
using Handler = void (*)(Arguments &);
struct Opcode {
    const char *name; // or, ending in '*', how it begins
    Handler handler;
};
extern const Opcode mbarrier_opcodes[], barrier_opcodes[], tma_opcodes[], cp_async_opcodes[],
    wgmma_opcodes[], mma_sync_opcodes[], element_opcodes[], conversion_opcodes[];

} // namespace hopper_model
