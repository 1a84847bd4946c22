// Ordinary loads and stores in shared and global memory, ldmatrix, and stmatrix.
//
// An address must be a multiple of the size of the access. Source: PTX ISA 9.0, "ld", "st",
// "ldmatrix", "stmatrix".
#include "ptx.hpp"

namespace hopper_model {

namespace {

u8 *global(const Arguments &args, u32 argument, u32 bytes) {
    const u64 address = args.value(argument);
    require_work_before_ended();
    if (address % bytes)
        fail("global address %#llx is no multiple of %u", address, bytes);
    return reinterpret_cast<u8 *>(address);
}

template <class Value, u32 count = 1> void load_shared(Arguments &args) {
    Value values[count];
    load_ordinary(static_cast<u32>(args.value(1)), values, sizeof(values));
    running->loaded_since_fence = true;
    for (u32 i = 0; i < count; ++i)
        args.set(0, values[i], i);
}

template <class Value, u32 count> void store_shared(Arguments &args) {
    Value values[count];
    for (u32 i = 0; i < count; ++i) {
        if (is_being_multiplied(*running, args.operand(1, i).address))
            fail("an accumulator is read before wgmma.wait_group");
        values[i] = static_cast<Value>(args.value(1, i));
    }
    store_ordinary(static_cast<u32>(args.value(0)), values, sizeof(values));
}

template <class Value, u32 count> void load_global(Arguments &args) {
    Value values[count];
    memcpy(values, global(args, 1, sizeof(values)), sizeof(values));
    for (u32 i = 0; i < count; ++i)
        args.set(0, values[i], i);
}

// A hint. Its address may be any within an allocation.
void prefetch(Arguments &args) { global(args, 0, 1); }

template <class Value, u32 count> void store_global(Arguments &args) {
    Value values[count];
    for (u32 i = 0; i < count; ++i)
        values[i] = static_cast<Value>(args.value(1, i));
    memcpy(global(args, 0, sizeof(values)), values, sizeof(values));
}

void store_sums(Arguments &args) {
    for (u32 i = 0; i < 4; ++i)
        if (is_being_multiplied(*running, args.operand(1, i).address))
            fail("an accumulator is read before wgmma.wait_group");
    store_global<u32, 4>(args);
}

// Clusters run one after the other, so a thread that waits for a word waits for earlier work.
void load_acquire(Arguments &args) {
    load_global<u64, 1>(args);
    if (++running->acquired > 1000)
        fail("a word that no cluster before this one writes is waited for");
}

void add_global(Arguments &args) {
    u64 *const word = reinterpret_cast<u64 *>(global(args, 1, sizeof(u64)));
    args.set(0, *word);
    *word += args.value(2);
}

// Marks of SMs: the words that a kernel may access before preceding work has ended.
u32 *mark(Arguments &args) {
    u32 *const word = reinterpret_cast<u32 *>(args.value(1));
    args.set(0, *word);
    return word;
}
void or_mark(Arguments &args) {
    const u32 bits = static_cast<u32>(args.value(2));
    *mark(args) |= bits;
}
void exchange_mark(Arguments &args) {
    const u32 value = static_cast<u32>(args.value(2));
    *mark(args) = value;
}
void add_mark(Arguments &args) {
    const u32 value = static_cast<u32>(args.value(2));
    *mark(args) += value;
}

// Lane l has the address of row l % 8 of matrix l / 8. Register i of lane l has two elements of row
// l / 4 of matrix i, from column 2 (l % 4) on. With .trans, the addresses are those of columns. The
// addresses of lanes beyond the matrices are not used.
template <u32 count, bool transposed> void store_matrices(Arguments &args) {
    WarpMeeting &warp = running->block->warps[running->index / warp_size];
    const u32 lane = running->index % warp_size;
    auto &value = warp.value[warp.generation & 1];
    for (u32 i = 0; i < count; ++i)
        value[lane][i] = args.value(1, i);
    meet();
    const u32 matrix = lane / 8, line = lane % 8;
    if (matrix >= count)
        return;
    u16 row[8]; // at the lane's address
    for (u32 i = 0; i < 8; ++i) {
        const u32 of_row = transposed ? i : line, of_column = transposed ? line : i;
        row[i] =
            static_cast<u16>(value[of_row * 4 + of_column / 2][matrix] >> (of_column % 2 * 16));
    }
    store_ordinary(static_cast<u32>(args.value(0)), row, sizeof(row));
}

// The same for loads, of four matrices.
template <bool transposed> void load_matrices(Arguments &args) {
    WarpMeeting &warp = running->block->warps[running->index / warp_size];
    const u32 lane = running->index % warp_size;
    auto &address = warp.value[warp.generation & 1];
    address[lane][0] = args.value(1);
    meet();
    const u32 line = lane / 4, pair = lane % 4 * 2;
    for (u32 matrix = 0; matrix < 4; ++matrix) {
        u32 both = 0;
        for (u32 i = 0; i < 2; ++i) {
            const u32 of_row = transposed ? pair + i : line,
                      of_column = transposed ? line : pair + i;
            const u32 row = static_cast<u32>(address[matrix * 8 + of_row][0]);
            u16 elements[8];
            if (row % sizeof(elements))
                fail("a row of ldmatrix at %#x, no multiple of 16", row);
            load_ordinary(row, elements, sizeof(elements));
            both |= static_cast<u32>(elements[of_column]) << 16 * i;
        }
        args.set(0, both, matrix);
    }
    meet(); // no lane leaves, and perhaps overwrites a row, before all have read
}

} // namespace

const Opcode element_opcodes[] = {
    {"ld.shared.u8", load_shared<u8>},
    {"ld.shared.u16", load_shared<u16>},
    {"ld.shared.u32", load_shared<u32>},
    {"ld.shared.u64", load_shared<u64>},
    {"ld.shared.f32", load_shared<u32>},
    {"ld.shared.f64", load_shared<u64>},
    {"ld.shared.v4.u32", load_shared<u32, 4>},
    {"ld.shared::cluster.v4.f32", load_shared<u32, 4>},
    {"st.shared.v4.f32", store_shared<u32, 4>},
    {"st.shared.u16", store_shared<u16, 1>},
    {"st.shared.u32", store_shared<u32, 1>},
    {"st.shared.v2.f32", store_shared<u32, 2>},
    {"st.shared.v2.b32", store_shared<u32, 2>},
    {"st.shared.v2.b64", store_shared<u64, 2>},
    {"st.shared.v2.f64", store_shared<u64, 2>},
    {"st.shared.f32", store_shared<u32, 1>},
    {"ld.global.u8", load_global<u8, 1>},
    {"ld.global.u16", load_global<u16, 1>},
    {"ld.global.u32", load_global<u32, 1>},
    {"ld.global.v2.u32", load_global<u32, 2>},
    {"ld.global.v4.u32", load_global<u32, 4>},
    {"ld.global.v4.b32", load_global<u32, 4>},
    {"ld.global.v4.f32", load_global<u32, 4>},
    {"ld.global.v2.f64", load_global<u64, 2>},
    {"ld.acquire.gpu.global.u64", load_acquire},
    {"atom.relaxed.gpu.global.add.u64", add_global},
    {"atom.relaxed.gpu.global.or.b32", or_mark},
    {"atom.relaxed.gpu.global.exch.b32", exchange_mark},
    {"atom.acq_rel.gpu.global.add.u32", add_mark},
    {"prefetch.global.L2", prefetch},
    {"st.global.u64", store_global<u64, 1>},
    {"st.global.u8", store_global<u8, 1>},
    {"st.global.u16", store_global<u16, 1>},
    {"st.global.u32", store_global<u32, 1>},
    {"st.global.v4.b32", store_sums},
    {"st.global.v4.f32", store_sums},
    {"st.global.v4.u32", store_global<u32, 4>},
    {"st.release.gpu.global.u64", store_global<u64, 1>},
    {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", load_matrices<false>},
    {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", load_matrices<true>},
    {"stmatrix.sync.aligned.m8n8.x4.shared.b16", store_matrices<4, false>},
    {"stmatrix.sync.aligned.m8n8.x2.shared.b16", store_matrices<2, false>},
    {"stmatrix.sync.aligned.m8n8.x4.trans.shared.b16", store_matrices<4, true>},
    {"stmatrix.sync.aligned.m8n8.x2.trans.shared.b16", store_matrices<2, true>},
    {nullptr, nullptr},
};

} // namespace hopper_model
