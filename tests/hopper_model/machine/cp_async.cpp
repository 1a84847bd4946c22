// cp.async: a thread's copies to shared memory, which land when it waits for their group, or when
// it arrives at an mbarrier on their behalf.
//
// Until then their bytes are locked. Source: PTX ISA 9.0, "cp.async", "cp.async.wait_group",
// "cp.async.mbarrier.arrive".
#include "ptx.hpp"

namespace hopper_model {

namespace {

constexpr u32 granule = 16;

void copy(Arguments &args) {
    require_work_before_ended();
    ThreadCopy made = {};
    made.from = args.value(1);
    made.bytes = static_cast<u32>(args.value(2));
    made.present = static_cast<u32>(args.value(3));
    const u32 to = static_cast<u32>(args.value(0));
    if (made.bytes != 4 && made.bytes != 8 && made.bytes != 16)
        fail("cp.async of %u bytes", made.bytes);
    if (made.bytes != granule && args.has(".cg"))
        fail("cp.async.cg of %u bytes", made.bytes);
    if (made.present > made.bytes)
        fail("%u bytes present of %u", made.present, made.bytes);
    if (made.from % made.bytes || to % made.bytes)
        fail("cp.async of %u bytes from %#llx to %#x", made.bytes, made.from, to);
    const SharedPlace place = place_of(to, made.bytes);
    made.offset = place.offset;
    if (made.bytes == granule)
        lock_for_landing(*place.block, made.offset, made.bytes);
    else
        lock_part_for_landing(*place.block, made.offset, made.bytes);
    running->copies.push(made);
}

void commit(Arguments &) {
    ++running->copy_groups;
    for (ThreadCopy &each : running->copies)
        if (!each.group)
            each.group = running->copy_groups;
}

void land(const ThreadCopy &copy) {
    Block &block = *running->block;
    u8 *to = block.shared + copy.offset;
    memset(to, 0, copy.bytes);
    if (copy.present)
        memcpy(to, reinterpret_cast<const u8 *>(copy.from), copy.present);
    unlock_landed(block, copy.offset, copy.bytes);
}

void wait(Arguments &args) {
    const u32 younger = static_cast<u32>(args.value(0));
    u32 kept = 0;
    for (const ThreadCopy each : running->copies) {
        if (!each.group || each.group + younger > running->copy_groups)
            running->copies[kept++] = each;
        else
            land(each);
    }
    running->copies.size = kept;
}

void arrive(Arguments &args) {
    for (const ThreadCopy &each : running->copies)
        land(each);
    running->copies.size = 0;
    mbarrier_arrive(static_cast<u32>(args.value(0)));
}

} // namespace

void require_copies_landed(const Thread &thread) {
    if (thread.copies.size)
        fail("the thread ends, and its copies to shared memory have not landed");
}

const Opcode cp_async_opcodes[] = {
    {"cp.async.cg.shared.global", copy},
    {"cp.async.ca.shared.global", copy},
    {"cp.async.commit_group", commit},
    {"cp.async.wait_group", wait},
    {"cp.async.mbarrier.arrive.noinc.shared::cta.b64", arrive},
    {nullptr, nullptr},
};

} // namespace hopper_model
