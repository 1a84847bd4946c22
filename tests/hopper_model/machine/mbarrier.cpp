// mbarrier objects: arrivals, announced bytes, phases.
//
// The model is stricter than the hardware, which does not report these errors: more arrivals than
// expected; a wait for a phase that the thread has not reached yet or has missed; and a use by the
// copy engine or by another block before the fence of the thread that initialised the object.
// Source: PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: mbarrier".
#include "ptx.hpp"

namespace hopper_model {

namespace {

Mbarrier *found(Block &block, u32 offset) {
    for (Mbarrier &barrier : block.barriers)
        if (barrier.offset == offset)
            return &barrier;
    return nullptr;
}

Mbarrier &at(Block &block, u32 offset) {
    Mbarrier *barrier = found(block, offset);
    if (!barrier)
        fail("there is no mbarrier at byte %u of shared memory: it is not initialised", offset);
    return *barrier;
}

Mbarrier &named(const Arguments &args, u32 argument) {
    const SharedPlace place = place_of(static_cast<u32>(args.value(argument)), 8);
    return at(*place.block, place.offset);
}

void end_phase_if_complete(Mbarrier &barrier) {
    if (barrier.pending == 0 && barrier.bytes == 0) {
        ++barrier.phase;
        barrier.pending = barrier.expected;
        wake(*barrier.condition);
    }
}

void arrive(Mbarrier &barrier) {
    if (barrier.pending == 0)
        fail("one more arrival than the mbarrier at byte %u expects in a phase, %d", barrier.offset,
             barrier.expected);
    --barrier.pending;
    end_phase_if_complete(barrier);
}

void init(Arguments &args) {
    const SharedPlace place = place_of(static_cast<u32>(args.value(0)), 8);
    if (place.offset % 8)
        fail("an mbarrier at byte %u: not a multiple of 8", place.offset);
    if (found(*place.block, place.offset))
        fail("the mbarrier at byte %u is initialised again", place.offset);
    Mbarrier barrier = {};
    barrier.offset = place.offset;
    barrier.expected = barrier.pending = static_cast<i32>(args.value(1));
    barrier.initialiser = running->index;
    barrier.next = static_cast<i32 *>(malloc(place.block->num_threads * sizeof(i32)));
    for (u32 i = 0; i < place.block->num_threads; ++i)
        barrier.next[i] = fresh;
    barrier.condition = static_cast<Condition *>(calloc(1, sizeof(Condition)));
    for (u32 id = 0; id < 16; ++id)
        barrier.known[id] = barrier.released[id] = fresh;
    place.block->barriers.push(barrier);
}

void fence_init(Arguments &) {
    for (Mbarrier &barrier : running->block->barriers)
        if (barrier.initialiser == running->index)
            barrier.fenced = true;
}

void expect(Arguments &args) {
    Mbarrier &barrier = named(args, 1);
    barrier.bytes += static_cast<i64>(args.value(2));
    arrive(barrier);
}

void arrive_here(Arguments &args) {
    const u64 arrivals = args.instruction.arguments.size > 2 ? args.value(2) : 1;
    for (u64 i = 0; i < arrivals; ++i)
        arrive(named(args, 1));
}

void arrive_in_cluster(Arguments &args) {
    const SharedPlace place = place_of(static_cast<u32>(args.value(1)), 8);
    mbarrier_require_fenced(*place.block, place.offset);
    arrive(at(*place.block, place.offset));
}

void map_address(Arguments &args) {
    args.set(0, mapped_address(static_cast<u32>(args.value(1)), static_cast<u32>(args.value(2))));
}

// A barrier that expects the most arrivals that there can be stays in its first phase: waits for
// the phase before it pass.
constexpr i32 most_arrivals = (1 << 20) - 1;

void wait(Arguments &args) {
    Mbarrier *barrier = &named(args, 1);
    const u32 offset = barrier->offset, parity = static_cast<u32>(args.value(2));
    if (barrier->expected == most_arrivals && parity == 1) {
        args.set(0, 1);
        return;
    }
    Block &block = *running->block;
    i32 &next = barrier->next[running->index];
    if (next == fresh)
        next = parity ? -1 : 0;
    if (static_cast<u32>(next & 1) != parity)
        fail("waits for parity %u of the mbarrier at byte %u, where phase %d is its next", parity,
             offset, next);
    const i32 phase = next++;
    while (barrier->phase <= phase) {
        wait_on(*barrier->condition, "phase %llu of the mbarrier at byte %llu of shared memory",
                static_cast<u64>(phase), offset);
        barrier = &at(block, offset);
    }
    if (barrier->phase > phase + 1)
        fail("phase %d of the mbarrier at byte %u ended unseen: it is in phase %d", phase, offset,
             barrier->phase);
    args.set(0, 1);
}

} // namespace

void mbarrier_arrive(u32 address) {
    const SharedPlace place = place_of(address, 8);
    arrive(at(*place.block, place.offset));
}

void mbarrier_landed(Block &block, u32 offset, u32 bytes) {
    Mbarrier &barrier = at(block, offset);
    barrier.bytes -= bytes;
    end_phase_if_complete(barrier);
}

void mbarrier_require_fenced(Block &block, u32 offset) {
    const Mbarrier &barrier = at(block, offset);
    if (!barrier.fenced)
        fail("thread %u initialised the mbarrier at byte %u and has not executed "
             "fence.mbarrier_init",
             barrier.initialiser, offset);
}

const Opcode mbarrier_opcodes[] = {
    {"mbarrier.init.shared::cta.b64", init},
    {"fence.mbarrier_init.release.cluster", fence_init},
    {"mbarrier.arrive.expect_tx.shared::cta.b64", expect},
    {"mbarrier.arrive.shared::cta.b64", arrive_here},
    {"mbarrier.arrive.shared::cluster.b64", arrive_in_cluster},
    {"mbarrier.try_wait.parity.shared::cta.b64", wait},
    {"mapa.shared::cluster.u32", map_address},
    {nullptr, nullptr},
};

} // namespace hopper_model
