// wgmma: asynchronous multiplications of a warpgroup, complete when a thread waits for them.
//
// When a thread issues a multiplication, the machine takes its accumulators and poisons the
// registers. The thread gets them back when it has waited for all multiplications that use them. A
// multiplication is computed when the first thread waits for its group, and by then all 128 threads
// must have issued it. It reads shared memory and the registers of A as they are at that time, so
// its tiles must not be written before. A fence must precede the first use of registers as
// accumulators, and the use of registers of A that were loaded since the last fence.
// Source: PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions".
#include "numbers.hpp"
#include "ptx.hpp"

#include <stdio.h>

namespace hopper_model {

namespace {

constexpr u32 rows = 64, row_bytes = 128, step_bytes = 32; // of k
constexpr u32 poison = 0x7fbadbad;                         // a NaN

// An operand tile in shared memory, from its 64-bit descriptor.
struct Tile {
    u32 offset, leading, stride; // bytes
    bool k_major;

    // The offset of element (index of m or n, k).
    u32 at(u32 index, u32 k, u32 size) const {
        if (k_major)
            return swizzled(offset + index / 8 * stride + index % 8 * row_bytes + k * size);
        const u32 across = row_bytes / size;
        return swizzled(offset + index / across * leading + k / 8 * stride + k % 8 * row_bytes +
                        index % across * size);
    }
};

struct Shape {
    u32 n, k, element_bytes;
    Decoder a, b;
    bool integers;
};

struct Multiplication {
    Shape shape;
    Tile a, b;
    bool a_in_registers, add;
    const u32 *a_registers[warpgroup_size][4];
    u64 a_descriptor, b_descriptor;
    u32 issued, sums;
    Block *block;
};

// Accumulators that the machine has taken.
struct Sums {
    bool used;
    u32 n, holders;
    u8 *registers[warpgroup_size]; // of each thread; null after the thread got them back
    u32 last
        [warpgroup_size]; // multiplications that the thread had issued after its last use of these
    float real[rows][256];
    i32 integer[rows][256];
};

} // namespace

struct Warpgroup {
    List<Multiplication *> list; // those from index `done` on are not computed yet
    u32 done;
    List<Sums *> sums;
    Condition condition;
};

namespace {

Warpgroup &group_of(const Thread &thread) {
    return *thread.block->warpgroups[thread.index / warpgroup_size];
}

u32 lane_row(u32 thread, u32 i) {
    return thread / warp_size * 16 + thread % warp_size / 4 + (i >> 1 & 1) * 8;
}
u32 lane_column(u32 thread, u32 i) { return i / 4 * 8 + thread % 4 * 2 + (i & 1); }

Tile tile_of(u64 descriptor, bool k_major) {
    if (descriptor >> 62 != 1 || descriptor >> 49 & 7)
        fail("a descriptor of swizzle %llu and base offset %llu; the model takes 1 and 0",
             descriptor >> 62, descriptor >> 49 & 7);
    const u32 address = static_cast<u32>(descriptor & 0x3fff) << 4;
    return {place_of(address, 16).offset, static_cast<u32>(descriptor >> 16 & 0x3fff) << 4,
            static_cast<u32>(descriptor >> 32 & 0x3fff) << 4, k_major};
}

template <class Visit>
void for_runs(const Tile &tile, u32 extent, const Shape &shape, Visit &&visit) {
    const u32 size = shape.element_bytes;
    const u32 run = 16 / size;
    for (u32 index = 0; index < extent; index += tile.k_major ? 1 : run)
        for (u32 k = 0; k < shape.k; k += tile.k_major ? run : 1)
            visit(tile.at(index, k, size));
}

// Visit, in runs of 16 bytes, the shared memory that a multiplication reads.
template <class Visit> void for_tiles(const Multiplication &m, Visit &&visit) {
    if (!m.a_in_registers)
        for_runs(m.a, rows, m.shape, visit);
    for_runs(m.b, m.shape.n, m.shape, visit);
}

Shape shape_of(const Arguments &args) {
    char d[8], a[8], b[8];
    Shape shape = {};
    if (sscanf(args.instruction.name,
               "wgmma.mma_async.sync.aligned.m64n%uk%u.%7[a-z0-9].%7[a-z0-9].%7[a-z0-9]", &shape.n,
               &shape.k, d, a, b) != 5)
        fail("the model does not know this shape");
    shape.a = decoder_of(a), shape.b = decoder_of(b);
    shape.element_bytes = decoded_bytes(a);
    shape.integers = strcmp(d, "s32") == 0;
    if (shape.n % 8 || shape.n > 256 || shape.k * shape.element_bytes != step_bytes ||
        decoded_bytes(b) != shape.element_bytes || !(shape.integers || strcmp(d, "f32") == 0))
        fail("there is no such shape");
    return shape;
}

Sums &sums_of(Thread &thread, const Arguments &args, const Multiplication &m, bool first) {
    Warpgroup &group = group_of(thread);
    const u32 lane = thread.index % warpgroup_size, count = m.shape.n / 2;
    auto *registers = static_cast<u8 *>(args.operand(0).address);
    for (u32 i = 0; i < count; ++i)
        if (args.operand(0, i).address != registers + 4 * i ||
            args.operand(0, i).constraint[0] != '+')
            fail("accumulator %u of the asm is not that of the array, or not \"+\"", i);
    if (first) {
        for (u32 i = 0; i < group.sums.size; ++i)
            if (group.sums[i]->used && group.sums[i]->registers[lane] == registers)
                return *group.sums[i];
        for (u32 i = 0; i < group.sums.size; ++i)
            if (!group.sums[i]->used)
                return *group.sums[i];
        return *group.sums.push(static_cast<Sums *>(calloc(1, sizeof(Sums))));
    }
    return *group.sums[m.sums];
}

// Take the accumulators from the thread.
void take(Thread &thread, Sums &sums, u8 *registers, const Multiplication &m) {
    const u32 lane = thread.index % warpgroup_size;
    sums.used = true;
    if (!sums.registers[lane]) {
        if (!thread.fenced)
            fail("no wgmma.fence since the accumulators were last touched");
        sums.n = m.shape.n;
        sums.registers[lane] = registers;
        ++sums.holders;
        for (u32 i = 0; i < sums.n / 2; ++i) {
            u8 *value = registers + 4 * i;
            if (m.shape.integers)
                memcpy(&sums.integer[lane_row(lane, i)][lane_column(lane, i)], value, 4);
            else
                memcpy(&sums.real[lane_row(lane, i)][lane_column(lane, i)], value, 4);
            memcpy(value, &poison, 4);
        }
    } else if (sums.registers[lane] != registers || sums.n != m.shape.n) {
        fail("the threads of a warpgroup name different accumulators");
    }
}

void give_back(Thread &thread, Sums &sums, bool integers) {
    const u32 lane = thread.index % warpgroup_size;
    for (u32 i = 0; i < sums.n / 2; ++i) {
        const u32 row = lane_row(lane, i), column = lane_column(lane, i);
        const void *from = integers ? static_cast<const void *>(&sums.integer[row][column])
                                    : static_cast<const void *>(&sums.real[row][column]);
        memcpy(sums.registers[lane] + 4 * i, from, 4);
    }
    sums.registers[lane] = nullptr;
    sums.used = --sums.holders != 0;
    thread.fenced = false;
}

float a_of(const Multiplication &m, u32 row, u32 k) {
    u32 bits = 0;
    if (m.a_in_registers) { // 32-bit elements: register i holds row + 8 (i & 1), k + 4 (i >> 1)
        const u32 thread = row / 16 * warp_size + row % 8 * 4 + k % 4;
        bits = *m.a_registers[thread][(row >> 3 & 1) + (k / 4) * 2];
    } else {
        memcpy(&bits, m.block->shared + m.a.at(row, k, m.shape.element_bytes),
               m.shape.element_bytes);
    }
    return m.shape.a(bits);
}

void compute(Warpgroup &group, Multiplication &m) {
    static float a[rows][32], b[32][256];
    const Shape &shape = m.shape;
    for (u32 k = 0; k < shape.k; ++k) {
        for (u32 row = 0; row < rows; ++row)
            a[row][k] = a_of(m, row, k);
        for (u32 n = 0; n < shape.n; ++n) {
            u32 bits = 0;
            memcpy(&bits, m.block->shared + m.b.at(n, k, shape.element_bytes), shape.element_bytes);
            b[k][n] = shape.b(bits);
        }
    }
    Sums &sums = *group.sums[m.sums];
    for (u32 row = 0; row < rows; ++row) {
        float products[256] = {}; // exact for operands of 8 bits
        for (u32 k = 0; k < shape.k; ++k)
            for (u32 n = 0; n < shape.n; ++n)
                products[n] += a[row][k] * b[k][n];
        for (u32 n = 0; n < shape.n; ++n) {
            if (shape.integers) {
                const u32 before = m.add ? static_cast<u32>(sums.integer[row][n]) : 0;
                sums.integer[row][n] =
                    static_cast<i32>(before + static_cast<u32>(static_cast<i32>(products[n])));
            } else {
                sums.real[row][n] = (m.add ? sums.real[row][n] : 0) + products[n];
            }
        }
    }
    for_tiles(m, [&m](u32 offset) { unlock_read(*m.block, offset, 16); });
}

void multiply(Arguments &args) {
    Thread &thread = *running;
    Warpgroup &group = group_of(thread);
    const u32 lane = thread.index % warpgroup_size, index = thread.multiplications++;
    const bool first = index == group.list.size;
    if (first)
        group.list.push(static_cast<Multiplication *>(calloc(1, sizeof(Multiplication))));
    Multiplication &m = *group.list[index];
    const bool from_registers = args.list(1).size == 4;
    const u64 a = from_registers ? 0 : args.value(1), b = args.value(2);
    const bool add = args.value(3) != 0;
    if (first) {
        m.shape = shape_of(args);
        const bool halves = m.shape.element_bytes == 2;
        const u32 modifiers = m.shape.integers ? 0 : halves ? 4 : 2;
        if (args.instruction.arguments.size != 4 + modifiers || args.list(0).size != m.shape.n / 2)
            fail("%u arguments and %u accumulators", args.instruction.arguments.size,
                 args.list(0).size);
        if (modifiers && (args.value(4) != 1 || args.value(5) != 1))
            fail("the model negates no operand");
        m.block = thread.block;
        m.a_in_registers = from_registers;
        m.a_descriptor = a, m.b_descriptor = b, m.add = add;
        if (!from_registers)
            m.a = tile_of(a, !(halves && args.value(6)));
        else if (m.shape.element_bytes != 4)
            fail("the model takes A from registers for elements of 32 bits only");
        m.b = tile_of(b, !(halves && args.value(7)));
        for_tiles(m, [&m](u32 offset) {
            if (offset + 16 > m.block->shared_bytes)
                fail("a tile reaches byte %u of shared memory", offset);
            lock_for_reading(*m.block, offset, 16);
        });
    } else if (m.a_descriptor != a || m.b_descriptor != b || m.add != add) {
        fail("the threads of a warpgroup name different operands");
    }
    Sums &sums = sums_of(thread, args, m, first);
    if (first)
        for (m.sums = 0; group.sums[m.sums] != &sums;)
            ++m.sums;
    take(thread, sums, static_cast<u8 *>(args.operand(0).address), m);
    sums.last[lane] = index + 1;
    if (from_registers) {
        if (thread.loaded_since_fence)
            fail("no wgmma.fence since registers were loaded");
        for (u32 i = 0; i < 4; ++i)
            m.a_registers[lane][i] = static_cast<const u32 *>(args.operand(1, i).address);
    }
    if (++m.issued == warpgroup_size)
        wake(group.condition);
}

void fence(Arguments &) {
    running->fenced = true;
    running->loaded_since_fence = false;
}

void commit(Arguments &) { running->groups.push(running->multiplications); }

void wait(Arguments &args) {
    Thread &thread = *running;
    Warpgroup &group = group_of(thread);
    const u32 younger = static_cast<u32>(args.value(0));
    if (thread.groups.size <= younger)
        return;
    const u32 end = thread.groups[thread.groups.size - 1 - younger];
    while (group.done < end) {
        Multiplication &m = *group.list[group.done];
        if (m.issued < warpgroup_size) {
            wait_on(group.condition, "wgmma, multiplication %llu of its warpgroup", group.done);
            continue;
        }
        compute(group, m);
        ++group.done;
    }
    const u32 lane = thread.index % warpgroup_size;
    for (Sums *sums : group.sums)
        if (sums->used && sums->registers[lane] && sums->last[lane] <= end)
            give_back(thread, *sums, group.list[sums->last[lane] - 1]->shape.integers);
    thread.multiplied = end;
}

} // namespace

Warpgroup *make_warpgroup() { return static_cast<Warpgroup *>(calloc(1, sizeof(Warpgroup))); }

void free_warpgroup(Warpgroup *group) {
    for (Multiplication *m : group->list)
        free(m);
    for (Sums *sums : group->sums)
        free(sums);
    free(group->list.items);
    free(group->sums.items);
    free(group->condition.waiting.items);
    free(group);
}

bool is_being_multiplied(Thread &thread, const void *address) {
    const auto *byte = static_cast<const u8 *>(address);
    for (const Sums *sums : group_of(thread).sums) {
        const u8 *registers = sums->registers[thread.index % warpgroup_size];
        if (sums->used && registers && byte >= registers && byte < registers + sums->n * 2)
            return true;
    }
    return false;
}

void require_no_multiplications(Thread &thread) {
    if (thread.multiplied != thread.multiplications)
        fail("the thread ends before its wgmma do");
}

const Opcode wgmma_opcodes[] = {
    {"wgmma.mma_async*", multiply},
    {"wgmma.fence.sync.aligned", fence},
    {"wgmma.commit_group.sync.aligned", commit},
    {"wgmma.wait_group.sync.aligned", wait},
    {nullptr, nullptr},
};

} // namespace hopper_model
