// Barriers of a block, a warp, a cluster and a stream, and the transfer of registers.
//
// All threads that use a named barrier must state the same number of participants. A thread that
// syncs there knows which phases of mbarriers the others have waited for, so it may skip these.
// setmaxnreg.inc waits until other warps have released enough registers. The requirement of
// `.aligned` that a warp has converged is not checked. A thread that accesses global memory must
// have waited for the preceding work in its stream. Source: PTX ISA 9.0, "bar", "barrier.cluster",
// "griddepcontrol", "setmaxnreg".
#include "ptx.hpp"
#include "scheduler.hpp"

namespace hopper_model {

namespace {

NamedBarrier &enter(u32 id, u32 count) {
    if (id >= 16 || count % warp_size || count > running->block->num_threads)
        fail("barrier %u of %u threads", id, count);
    NamedBarrier &barrier = running->block->named[id];
    if (barrier.arrived && barrier.expected != count)
        fail("barrier %u is one of %u threads, and this comes as one of %u", id, barrier.expected,
             count);
    barrier.expected = count;
    for (Mbarrier &phased : running->block->barriers) {
        i32 &known = phased.known[id];
        known = phased.next[running->index] > known ? phased.next[running->index] : known;
    }
    if (++barrier.arrived == count) {
        for (Mbarrier &phased : running->block->barriers) {
            phased.released[id] = phased.known[id];
            phased.known[id] = fresh;
        }
        barrier.arrived = 0;
        ++barrier.generation;
        wake(barrier.condition);
    }
    return barrier;
}

void sync(u32 id, u32 count) {
    const u32 generation = running->block->named[id & 15].generation;
    NamedBarrier &barrier = enter(id, count);
    while (barrier.generation == generation)
        wait_on(barrier.condition, "barrier %llu of %llu threads", id, count);
    for (Mbarrier &phased : running->block->barriers) {
        i32 &next = phased.next[running->index];
        next = phased.released[id] > next ? phased.released[id] : next;
    }
}

void bar_sync(Arguments &args) {
    sync(static_cast<u32>(args.value(0)), static_cast<u32>(args.value(1)));
}

void bar_arrive(Arguments &args) {
    enter(static_cast<u32>(args.value(0)), static_cast<u32>(args.value(1)));
}

void cluster_arrive(Arguments &) {
    u32 alive = 0;
    for (u32 rank = 0; rank < cluster.size; ++rank)
        alive += cluster.blocks[rank].running;
    running->cluster_phase = cluster.phase;
    if (++cluster.arrived == alive) {
        cluster.arrived = 0;
        ++cluster.phase;
        wake(cluster.condition);
    }
}

void cluster_wait(Arguments &) {
    while (cluster.phase == running->cluster_phase)
        wait_on(cluster.condition, "the cluster's barrier");
}

void wait_for_work_before(Arguments &) { running->work_before_ended = true; }

void launch_dependents(Arguments &) {}

void give_registers(Arguments &args) {
    const u32 count = static_cast<u32>(args.value(0));
    if (count > running->registers)
        fail("setmaxnreg.dec to %u, from %u", count, running->registers);
    running->block->free_registers += running->registers - count;
    running->registers = count;
    wake(running->block->registers_freed);
}

void take_registers(Arguments &args) {
    const u32 count = static_cast<u32>(args.value(0));
    if (count < running->registers)
        fail("setmaxnreg.inc to %u, from %u", count, running->registers);
    Block &block = *running->block;
    while (block.free_registers < count - running->registers)
        wait_on(block.registers_freed, "%llu registers a thread", count);
    block.free_registers -= count - running->registers;
    running->registers = count;
}

// Any lane may be elected: here the first or the last.
void elect(Arguments &args) {
    if (static_cast<u32>(args.value(1)) != ~0u)
        fail("elect.sync of some lanes only");
    meet();
    args.set(0, running->index % warp_size == (seed % 2 ? warp_size - 1 : 0), 1);
}

} // namespace

void meet() {
    WarpMeeting &warp = running->block->warps[running->index / warp_size];
    const u32 generation = warp.generation;
    if (++warp.arrived == warp_size) {
        warp.arrived = 0;
        ++warp.generation;
        wake(warp.condition);
    }
    while (warp.generation == generation)
        wait_on(warp.condition, "the other lanes of its warp");
}

void require_work_before_ended() {
    if (!running->work_before_ended)
        fail("global memory is used, and the thread has not executed griddepcontrol.wait");
}

extern "C" void hopper_syncthreads() {
    running->text = "bar.sync 0";
    sync(0, running->block->num_threads);
    go_on();
}

extern "C" void hopper_syncwarp() {
    running->text = "bar.warp.sync";
    meet();
    go_on();
}

// Pass a word of each lane to all lanes of the warp, and return what `read` makes of them.
template <class Read> unsigned exchange(const char *text, unsigned value, const Read &read) {
    running->text = text;
    WarpMeeting &warp = running->block->warps[running->index / warp_size];
    auto &values = warp.value[warp.generation & 1];
    values[running->index % warp_size][0] = value;
    meet();
    const unsigned result = read(values);
    go_on();
    return result;
}

extern "C" unsigned hopper_shuffle(unsigned value, unsigned lane) {
    return exchange("shfl.sync.idx", value,
                    [lane](const auto &values) -> unsigned { return values[lane % warp_size][0]; });
}

extern "C" unsigned hopper_ballot(unsigned condition) {
    return exchange("vote.sync.ballot", condition, [](const auto &values) {
        unsigned lanes = 0;
        for (u32 lane = 0; lane < warp_size; ++lane)
            lanes |= static_cast<unsigned>(values[lane][0] != 0) << lane;
        return lanes;
    });
}

const Opcode barrier_opcodes[] = {
    {"bar.sync", bar_sync},
    {"bar.arrive", bar_arrive},
    {"barrier.cluster.arrive.relaxed.aligned", cluster_arrive},
    {"barrier.cluster.wait.aligned", cluster_wait},
    {"barrier.cluster.arrive.release.aligned", cluster_arrive},
    {"barrier.cluster.wait.acquire.aligned", cluster_wait},
    {"elect.sync", elect},
    {"griddepcontrol.wait", wait_for_work_before},
    {"griddepcontrol.launch_dependents", launch_dependents},
    {"setmaxnreg.dec.sync.aligned.u32", give_registers},
    {"setmaxnreg.inc.sync.aligned.u32", take_registers},
    {nullptr, nullptr},
};

} // namespace hopper_model
