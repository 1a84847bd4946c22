// TMA: copies of boxes of tensors between global and shared memory.
//
// A load locks its bytes when it is issued. It lands as a whole, at a time that the scheduler
// chooses, and elements outside the tensor are zeros. A store reads shared memory only when its
// thread waits for its group, and writes rows in units of 16 bytes, as an H200 does. The rows of a
// box have up to 128 or 64 bytes; they are swizzled by that size, which is also their distance.
// device.py makes the record of a tensor map from the arguments of the driver's function that
// encodes it.
// Source: PTX ISA 9.0, "cp.async.bulk.tensor", "cp.async.bulk.commit_group", "Tensor".
#include "ptx.hpp"

namespace hopper_model {

namespace {

// The same record as MAP in device.py.
struct Map {
    u32 magic, rank, element_bytes, rounds_to_tf32;
    u64 address;
    u64 extents[5];
    u64 pitches[4]; // bytes
    u32 box[5];
    u32 swizzle; // bytes from a row to the next
    u32 unused[2];
};
static_assert(sizeof(Map) == 128, "a tensor map has 128 bytes");

List<TmaCopy> loads;

const Map &map_at(const void *address) {
    const auto &map = *static_cast<const Map *>(address);
    if (reinterpret_cast<u64>(address) % 64 || map.magic != 0x7ea5)
        fail("%p is no tensor map, or not at a multiple of 64", address);
    return map;
}

u32 box_rows(const Map &map) {
    u32 rows = 1;
    for (u32 axis = 1; axis < map.rank; ++axis)
        rows *= map.box[axis];
    return rows;
}
u32 box_bytes(const Map &map) { return box_rows(map) * map.swizzle; }
u32 moved_bytes(const Map &map) { return box_rows(map) * map.box[0] * map.element_bytes; }

// Call `move(global, offset, bytes)` for each element of a box; `global` is null for elements
// outside the tensor. A row ends at a multiple of `unit` bytes.
template <class Move>
void for_elements(const Map &map, const i32 (&corner)[5], u32 unit, Move &&move) {
    const u32 size = map.element_bytes, rows = box_rows(map);
    const u64 row_end = (map.extents[0] * size + unit - 1) / unit * unit;
    for (u32 row = 0; row < rows; ++row) {
        u64 address = map.address;
        bool inside = true;
        u32 rest = row;
        for (u32 axis = 1; axis < map.rank; ++axis) {
            const i64 index = static_cast<i64>(corner[axis]) + rest % map.box[axis];
            rest /= map.box[axis];
            inside = inside && index >= 0 && static_cast<u64>(index) < map.extents[axis];
            address += static_cast<u64>(index) * map.pitches[axis - 1];
        }
        for (u32 at = 0; at < map.box[0]; ++at) {
            const i64 index = static_cast<i64>(corner[0]) + at;
            const bool here = inside && index >= 0 && static_cast<u64>(index) * size < row_end;
            auto *global = reinterpret_cast<u8 *>(address + static_cast<u64>(index) * size);
            move(here ? global : nullptr, row * map.swizzle + at * size, size);
        }
    }
}

u32 rounded_to_tf32(u32 bits) {
    return (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0x1000) & ~0x1fffu;
}

TmaCopy parsed(const Arguments &args, u32 map_argument, u32 shared_argument) {
    require_work_before_ended();
    TmaCopy copy = {};
    copy.map = reinterpret_cast<const void *>(args.value(map_argument));
    const Map &map = map_at(copy.map);
    const char *dimensions = strstr(args.instruction.name, "tensor.") + 7;
    const u32 coordinates = args.list(map_argument).size - 1;
    if (map.rank != static_cast<u32>(*dimensions - '0') || coordinates != map.rank)
        fail("a map of %u axes, and %u coordinates", map.rank, coordinates);
    for (u32 axis = 0; axis < coordinates; ++axis)
        copy.box[axis] = static_cast<i32>(args.value(map_argument, axis + 1));
    const SharedPlace place =
        place_of(static_cast<u32>(args.value(shared_argument)), box_bytes(map));
    if (place.offset % 128)
        fail("a box at byte %u of shared memory: not a multiple of 128", place.offset);
    copy.block = place.block;
    copy.offset = place.offset;
    return copy;
}

void load(Arguments &args) {
    TmaCopy copy = parsed(args, 1, 0);
    const bool multicast = args.has("multicast::cluster");
    copy.barrier = place_of(static_cast<u32>(args.value(2)), 8).offset;
    copy.blocks = multicast ? static_cast<u16>(args.value(3)) : u16(1u << copy.block->rank);
    if (!copy.blocks || copy.blocks >> cluster.size)
        fail("a multicast to blocks %#x of a cluster of %u", copy.blocks, cluster.size);
    for (u32 rank = 0; rank < cluster.size; ++rank)
        if (copy.blocks >> rank & 1) {
            Block &block = cluster.blocks[rank];
            mbarrier_require_fenced(block, copy.barrier);
            lock_for_landing(block, copy.offset, box_bytes(map_at(copy.map)));
        }
    // Here each thread has its own copy of the kernel's parameter, and so of the map.
    auto *map = static_cast<Map *>(malloc(sizeof(Map)));
    *map = map_at(copy.map);
    copy.map = map;
    loads.push(copy);
}

void load_bytes(Arguments &args) {
    require_work_before_ended();
    TmaCopy copy = {};
    copy.from = args.value(1);
    copy.bytes = static_cast<u32>(args.value(2));
    const SharedPlace place = place_of(static_cast<u32>(args.value(0)), copy.bytes);
    if (!copy.bytes || (copy.bytes | copy.from | place.offset) % 16)
        fail("a copy of %u bytes from %#llx to byte %u of shared memory: no multiples of 16",
             copy.bytes, copy.from, place.offset);
    copy.block = place.block;
    copy.offset = place.offset;
    copy.barrier = place_of(static_cast<u32>(args.value(3)), 8).offset;
    copy.blocks = u16(1u << place.block->rank);
    mbarrier_require_fenced(*place.block, copy.barrier);
    lock_for_landing(*place.block, copy.offset, copy.bytes);
    loads.push(copy);
}

void land_bytes(const TmaCopy &copy) {
    memcpy(copy.block->shared + copy.offset, reinterpret_cast<const u8 *>(copy.from), copy.bytes);
    unlock_landed(*copy.block, copy.offset, copy.bytes);
    mbarrier_landed(*copy.block, copy.barrier, copy.bytes);
}

void store(Arguments &args) {
    TmaCopy copy = parsed(args, 0, 1);
    lock_for_reading(*copy.block, copy.offset, box_bytes(map_at(copy.map)));
    running->stores.push(copy);
}

void commit(Arguments &) {
    ++running->store_groups;
    for (TmaCopy &copy : running->stores)
        if (!copy.group)
            copy.group = running->store_groups;
}

void wait_read(Arguments &args) { finish_stores(*running, static_cast<u32>(args.value(0))); }

void fence(Arguments &) { proxy_fence(); }

void prefetch(Arguments &args) { map_at(reinterpret_cast<const void *>(args.value(0))); }

} // namespace

bool land_a_load() {
    if (!loads.size)
        return false;
    const u32 which = seed == 0 ? 0 : seed == 1 ? loads.size - 1 : random_below(loads.size);
    const TmaCopy copy = loads[which];
    loads.remove(which);
    if (!copy.map) {
        if (!copy.block->running)
            fail("a copy lands in block %u of the cluster, which has ended", copy.block->rank);
        land_bytes(copy);
        return true;
    }
    auto *map = static_cast<Map *>(const_cast<void *>(copy.map));
    const u32 bytes = box_bytes(*map);
    for (u32 rank = 0; rank < cluster.size; ++rank) {
        if (!(copy.blocks >> rank & 1))
            continue;
        Block &block = cluster.blocks[rank];
        if (!block.running)
            fail("a TMA load lands in block %u of the cluster, which has ended", rank);
        for_elements(*map, copy.box, map->element_bytes, [&](const u8 *global, u32 at, u32 size) {
            u8 *to = block.shared + swizzled(copy.offset + at, map->swizzle);
            memset(to, 0, size);
            if (global)
                memcpy(to, global, size);
            if (map->rounds_to_tf32) {
                u32 bits;
                memcpy(&bits, to, sizeof(bits));
                bits = rounded_to_tf32(bits);
                memcpy(to, &bits, sizeof(bits));
            }
        });
        unlock_landed(block, copy.offset, bytes);
        mbarrier_landed(block, copy.barrier, moved_bytes(*map));
    }
    free(map);
    return true;
}

void finish_stores(Thread &thread, u32 younger) {
    for (u32 i = 0; i < thread.stores.size;) {
        const TmaCopy copy = thread.stores[i];
        if (!copy.group || copy.group + younger > thread.store_groups) {
            ++i;
            continue;
        }
        const Map &map = map_at(copy.map);
        for_elements(map, copy.box, 16, [&](u8 *global, u32 at, u32 size) {
            if (global)
                memcpy(global, copy.block->shared + swizzled(copy.offset + at, map.swizzle), size);
        });
        unlock_read(*copy.block, copy.offset, box_bytes(map));
        thread.stores.remove(i);
    }
}

void require_stores_read(const Thread &thread) {
    if (thread.stores.size)
        fail("the thread ends, and its TMA stores may still read shared memory");
}

void forget_loads() {
    for (TmaCopy &copy : loads)
        free(const_cast<void *>(copy.map));
    loads.clear();
}

const Opcode tma_opcodes[] = {
    {"cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes*", load},
    {"cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes*", load},
    {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", load_bytes},
    {"cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group", store},
    {"cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group", store},
    {"cp.async.bulk.commit_group", commit},
    {"cp.async.bulk.wait_group.read", wait_read},
    {"fence.proxy.async.shared::cta", fence},
    {"prefetch.tensormap", prefetch},
    {nullptr, nullptr},
};

} // namespace hopper_model
