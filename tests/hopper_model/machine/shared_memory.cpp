// Shared memory: its addresses, and which accesses are allowed when.
//
// A block's own memory begins at `window_base`. The memory of block r of its cluster begins (r + 1)
// << 24 higher, which is the address that mapa returns. No thread may access bytes that a TMA load
// is about to write. Bytes that wgmma or a TMA store has yet to read must not be written. What an
// ordinary store wrote may be read asynchronously only after a fence.proxy.async of the same
// thread.
// Source: PTX ISA 9.0, "State Spaces: Shared", "Data Movement and Conversion Instructions: mapa",
// "Memory Consistency Model: Proxies", and "Tensor: Swizzling Modes" for the swizzle.
#include "machine.hpp"

namespace hopper_model {

namespace {

constexpr u32 granule = 16, word = 4;

void require(const u8 *locks, u32 offset, u32 bytes, const char *touched, const char *by) {
    for (u32 i = offset / granule; i <= (offset + bytes - 1) / granule; ++i)
        if (locks[i])
            fail("race: %s bytes %u to %u of shared memory, %s", touched, offset, offset + bytes,
                 by);
}

void add(u8 *locks, u32 offset, u32 bytes, i32 count) {
    for (u32 i = offset / granule; i <= (offset + bytes - 1) / granule; ++i)
        locks[i] = static_cast<u8>(locks[i] + count);
}

constexpr const char *landing = "into which a copy has not landed";
constexpr const char *reading = "which wgmma or a TMA store still reads";

} // namespace

SharedPlace place_of(u32 address, u32 bytes) {
    const u32 rank = address >> 24;
    const u32 offset = (address & 0xffffff) - window_base;
    Block *block = running ? running->block : nullptr;
    if (rank) {
        if (rank > cluster.size)
            fail("shared address %#x is of no block of the cluster", address);
        block = &cluster.blocks[rank - 1];
        if (!block->running)
            fail("shared address %#x is of a block that has ended", address);
    }
    if (offset >= block->shared_bytes || bytes > block->shared_bytes - offset)
        fail("shared address %#x is outside the block's %u bytes", address, block->shared_bytes);
    return {block, offset};
}

u32 mapped_address(u32 address, u32 rank) {
    if (rank >= cluster.size)
        fail("the cluster has no block %u", rank);
    return (address & 0xffffff) | (rank + 1) << 24;
}

// The 128-byte swizzle is the exclusive or of bits 4 to 6 of an address with bits 7 to 9, and the
// 64-byte swizzle that of bits 4 and 5 with bits 7 and 8. Offsets give the same result as
// addresses, since the window begins at a multiple of 1024.
u32 swizzled(u32 offset, u32 width) { return offset ^ (offset >> 7 & (width / 16 - 1)) << 4; }

void load_ordinary(u32 address, void *to, u32 bytes) {
    if (address % bytes)
        fail("shared address %#x is no multiple of %u", address, bytes);
    const SharedPlace from = place_of(address, bytes);
    require(from.block->landing, from.offset, bytes, "loads", landing);
    memcpy(to, from.block->shared + from.offset, bytes);
}

void store_ordinary(u32 address, const void *from, u32 bytes) {
    if (address % bytes)
        fail("shared address %#x is no multiple of %u", address, bytes);
    const SharedPlace to = place_of(address, bytes);
    require(to.block->landing, to.offset, bytes, "writes", landing);
    require(to.block->read, to.offset, bytes, "writes", reading);
    memcpy(to.block->shared + to.offset, from, bytes);
    for (u32 i = to.offset / word; i <= (to.offset + bytes - 1) / word; ++i) {
        to.block->written[i] = static_cast<u16>(running->index + 1);
        running->unfenced.push(i);
    }
}

void lock_for_landing(Block &block, u32 offset, u32 bytes) {
    require(block.landing, offset, bytes, "loads into", landing);
    require(block.read, offset, bytes, "loads into", reading);
    add(block.landing, offset, bytes, 1);
}

// Copies of less than a granule may land in one granule together.
void lock_part_for_landing(Block &block, u32 offset, u32 bytes) {
    require(block.read, offset, bytes, "loads into", reading);
    add(block.landing, offset, bytes, 1);
}

void unlock_landed(Block &block, u32 offset, u32 bytes) {
    add(block.landing, offset, bytes, -1);
    memset(block.written + offset / word, 0, bytes / word * sizeof(*block.written));
}

void lock_for_reading(Block &block, u32 offset, u32 bytes) {
    require(block.landing, offset, bytes, "reads", landing);
    for (u32 i = offset / word; i < (offset + bytes) / word; ++i)
        if (block.written[i])
            fail("reads byte %u of shared memory by the async proxy: thread %u wrote it and has "
                 "not executed fence.proxy.async",
                 i * word, block.written[i] - 1u);
    add(block.read, offset, bytes, 1);
}

void unlock_read(Block &block, u32 offset, u32 bytes) { add(block.read, offset, bytes, -1); }

void proxy_fence() {
    u16 *written = running->block->written;
    for (const u32 i : running->unfenced)
        if (written[i] == running->index + 1)
            written[i] = 0;
    running->unfenced.clear();
}

extern "C" unsigned hopper_shared_address(const void *pointer) {
    const auto *byte = static_cast<const u8 *>(pointer);
    const Block &block = *running->block;
    if (byte < block.shared || byte >= block.shared + block.shared_bytes)
        fail("%p is no pointer to dynamic shared memory", pointer);
    return window_base + static_cast<u32>(byte - block.shared);
}

extern "C" void hopper_misaligned(const void *pointer, unsigned long multiple) {
    fail("%p is made a pointer to what begins at multiples of %lu", pointer, multiple);
}

extern "C" void *hopper_dynamic_shared() { return running->block->shared; }

} // namespace hopper_model
