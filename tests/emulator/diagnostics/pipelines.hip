// Pipelines as kernel authors write them by hand: waits, barriers and LDS traffic in asm.
//
// HipKittens' eight-wave ping-pong (two groups of waves, one conditional barrier apart) and
// direct-to-LDS loads: each is right as it stands, and takes a `Fault`, one mistake that people
// make. And producers and consumers that meet at flags in LDS. Nothing here relies on the
// compiler's own waits.
#include "../../hip/prelude.hpp"

enum class Fault {
    none,
    no_wait,          // a barrier or a flag without the wait before it, a flag that is tested once
    no_barrier,       // the phases of the two groups run into each other
    unpaired_barrier, // one group executes one barrier more than the other
    early_write,      // the next tile goes to the buffer that others still read
    early_signal,     // a flag is set before the access that it stands for
    few_signals,      // one of two waves is waited for
    small_lds,        // rows of LDS without the padding that the addresses count on
};

using half4 = vec<f16, 4>;
using half8 = vec<f16, 8>;
using float4 = vec<float, 4>;

template <int count> INLINE void wait_lgkm() {
    asm volatile("s_waitcnt lgkmcnt(%0)" ::"n"(count) : "memory");
}
template <int count> INLINE void wait_vm() {
    asm volatile("s_waitcnt vmcnt(%0)" ::"n"(count) : "memory");
}
INLINE void bare_barrier() { asm volatile("s_barrier" ::: "memory"); }
INLINE void lds_write(u32 address, half8 value) {
    asm volatile("ds_write_b128 %0, %1" ::"v"(address), "v"(value) : "memory");
}
INLINE half4 lds_read(u32 address) {
    half4 value;
    asm volatile("ds_read_b64 %0, %1" : "=v"(value) : "v"(address) : "memory");
    return value;
}
// The registers are ready here, whatever the compiler thinks: no use of them moves above the wait.
INLINE void ready(half4 &value) { asm volatile("" : "+v"(value)); }
INLINE u32 uniform(u32 value) { return static_cast<u32>(__builtin_amdgcn_readfirstlane(value)); }

// Double-buffered product of one 64x64 tile, C = A B^T, A (64, k) and B (64, k) row-major fp16.
//
//   half-step   0     1     2     3            L: read the fragments of tile i, write tile i + 1
//   waves 0-3   L0  | C0  | L1  | C1  |        C: multiply tile i at high priority
//   waves 4-7       | L0  | C0  | L1  | C1     |: s_barrier
//
// Wave w multiplies rows 16 (w%4) .. +15 by columns 32 (w/4) .. +31.
template <Fault fault> INLINE void ping_pong(const f16 *a, const f16 *b, float *c, int k) {
    constexpr u32 rows = 64, depth = 32, pitch = 2 * (depth + 8); // bytes; 16 of padding
    constexpr u32 matrix = rows * pitch, stage = 2 * matrix;
    constexpr u32 reserved = fault == Fault::small_lds ? 2 * 2 * rows * 2 * depth : 2 * stage;
    __shared__ char lds[reserved]; // (stage, A or B, row, k)
    const u32 base = static_cast<u32>(reinterpret_cast<u64>(&lds[0]));
    const u32 wave = uniform(thread_x() / 64), group = wave / 4;
    // Threads 0-255 bring A, the others B: 8 halves of row t / 4.
    const u32 t = thread_x() % 256;
    const f16 *source = (group ? b : a) + static_cast<u64>(t / 4) * static_cast<u32>(k) + t % 4 * 8;
    const u32 target = base + group * matrix + t / 4 * pitch + t % 4 * 16;
    const u32 read_a = base + (wave % 4 * 16 + lane() % 16) * pitch + lane() / 16 * 8;
    const u32 read_b = base + matrix + (group * 32 + lane() % 16) * pitch + lane() / 16 * 8;
    float4 sums[2] = {0, 0};

    lds_write(target, *reinterpret_cast<const half8 *>(source));
    wait_lgkm<0>();
    bare_barrier();
    if (group == 1 && fault != Fault::unpaired_barrier)
        bare_barrier();
    const int steps = k / static_cast<int>(depth);
    for (int step = 0; step < steps; ++step) {
        const u32 here = static_cast<u32>(step) % 2 * stage;
        const u32 next = fault == Fault::early_write ? here : stage - here;
        half4 fa[2], fb[2][2]; // (k), (column tile, k)
        for (u32 i = 0; i < 2; ++i) {
            fa[i] = lds_read(read_a + here + i * 32);
            for (u32 j = 0; j < 2; ++j)
                fb[j][i] = lds_read(read_b + here + j * 16 * pitch + i * 32);
        }
        if (step + 1 < steps)
            lds_write(target + next, *reinterpret_cast<const half8 *>(source + (step + 1) * depth));
        if (fault != Fault::no_wait || step == 0)
            wait_lgkm<0>(); // fragments have arrived, tile i + 1 is in LDS
        for (u32 i = 0; i < 2; ++i)
            ready(fa[i]), ready(fb[0][i]), ready(fb[1][i]);
        if (fault != Fault::no_barrier)
            bare_barrier();
        __builtin_amdgcn_s_setprio(1);
        for (u32 i = 0; i < 2; ++i)
            for (u32 j = 0; j < 2; ++j)
                sums[j] = __builtin_amdgcn_mfma_f32_16x16x16f16(fa[i], fb[j][i], sums[j], 0, 0, 0);
        __builtin_amdgcn_s_setprio(0);
        if (fault != Fault::no_barrier)
            bare_barrier();
    }
    if (group == 0)
        bare_barrier();
    for (u32 j = 0; j < 2; ++j)
        for (u32 g = 0; g < 4; ++g)
            c[(wave % 4 * 16 + 4 * (lane() / 16) + g) * 64 + group * 32 + j * 16 + lane() % 16] =
                sums[j][g];
}

// Reverse the 4-byte words of a block of 256 through LDS, which the loads write without registers.
// Vector v of a wave's sixteen 16-byte vectors goes to place v ^ (wave % 4): a swizzle in the
// address.
template <Fault fault> INLINE void direct_to_lds(const u32 *in, u32 *out) {
    __shared__ u32 lds[fault == Fault::small_lds ? 192 : 256];
    const u32 wave = uniform(thread_x() / 64);
    const u32 place = (lane() / 4 ^ wave % 4) * 4 + lane() % 4;
    const u32 *source = in + block_x() * 256 + wave * 64 + place;
    const u32 base = uniform(static_cast<u32>(reinterpret_cast<u64>(&lds[0]))) + wave * 256;
    asm volatile("s_mov_b32 m0, %0\n s_nop 0\n global_load_lds_dword %1, off" ::"s"(base),
                 "v"(source)
                 : "memory");
    if (fault != Fault::no_wait)
        wait_vm<0>();
    if (fault != Fault::no_barrier)
        bare_barrier();
    const u32 wanted = 255 - thread_x(), from = wanted / 64;
    const u32 word = from * 64 + ((wanted % 64 / 4 ^ from % 4) * 4 + wanted % 4);
    u32 value;
    asm volatile("ds_read_b32 %0, %1\n s_waitcnt lgkmcnt(0)"
                 : "=v"(value)
                 : "v"(static_cast<u32>(reinterpret_cast<u64>(&lds[0])) + word * 4)
                 : "memory");
    out[block_x() * 256 + thread_x()] = value;
}

#if defined(__gfx950__)
// One 16x16 tile of C = A B on gfx950, A (16, 32) and B (32, 16) row-major fp16. B goes to LDS as
// it lies in memory, 16 bytes a lane, and is transposed on its way to registers: each 16 lanes read
// a block of 4 rows of k and 16 columns. The MFMA in asm brings its own wait states.
template <Fault fault> INLINE void transposed(const f16 *a, const f16 *b, float *c) {
    __shared__ f16 lds[32 * 16]; // (k, n)
    const u32 base = uniform(static_cast<u32>(reinterpret_cast<u64>(&lds[0])));
    const u64 address = reinterpret_cast<u64>(b);
    const vec<u32, 4> resource = {static_cast<u32>(address), static_cast<u32>(address >> 32),
                                  sizeof lds, 0x27000};
    asm volatile("s_mov_b32 m0, %0\n s_nop 0\n buffer_load_dwordx4 %1, %2, 0 offen lds" ::"s"(base),
                 "v"(lane() * 16), "s"(resource)
                 : "memory");
    const half8 fa = *reinterpret_cast<const half8 *>(a + lane() % 16 * 32 + lane() / 16 * 8);
    if (fault != Fault::no_wait)
        wait_vm<0>();
    const u32 rows = base + lane() / 16 * 8 * 32 + lane() % 16 / 4 * 32 + lane() % 4 * 8;
    half4 low, high; // k = 8 (lane / 16) + 0..3, + 4..7
    asm volatile("ds_read_b64_tr_b16 %0, %2\n ds_read_b64_tr_b16 %1, %2 offset:128\n"
                 "s_waitcnt lgkmcnt(0)"
                 : "=&v"(low), "=&v"(high)
                 : "v"(rows)
                 : "memory");
    const half8 fb = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
    float4 sums;
    asm volatile("s_nop 4\n v_mfma_f32_16x16x32_f16 %0, %1, %2, 0\n s_nop 15"
                 : "=v"(sums)
                 : "v"(fa), "v"(fb));
    for (u32 g = 0; g < 4; ++g)
        c[(4 * (lane() / 16) + g) * 16 + lane() % 16] = sums[g];
}

KERNEL void transposed_none(const f16 *a, const f16 *b, float *c) {
    transposed<Fault::none>(a, b, c);
}
KERNEL void transposed_no_wait(const f16 *a, const f16 *b, float *c) {
    transposed<Fault::no_wait>(a, b, c);
}
#endif

// Waves 0 and 1 fill a ring of two slots, waves 2 and 3 empty it; flags in LDS count the turns.
template <Fault fault> INLINE void ring(const u32 *in, u32 *out, int turns) {
    __shared__ u32 data[2][128];
    __shared__ u32 full[2], empty[2];
    if (thread_x() < 2)
        full[thread_x()] = empty[thread_x()] = 0;
    barrier();
    const bool producer = uniform(thread_x() / 64) < 2;
    const u32 t = thread_x() % 128;
    for (int turn = 0; turn < turns; ++turn) {
        const int slot = turn % 2;
        const u32 round = static_cast<u32>(turn) / 2;
        u32 *mine = producer ? &full[slot] : &empty[slot];
        u32 *theirs = producer ? &empty[slot] : &full[slot];
        // Both waves of the other side have passed this slot in this round (a producer: in the
        // round before).
        u32 enough = 2 * (producer ? round : round + 1);
        if (fault == Fault::few_signals && enough)
            --enough;
        while (__hip_atomic_load(theirs, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP) < enough) {
            if (fault == Fault::no_wait)
                break;
            __builtin_amdgcn_s_sleep(1);
        }
        if (fault == Fault::early_signal && lane() == 0)
            __hip_atomic_fetch_add(mine, 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
        asm volatile("" ::: "memory");
        if (producer)
            data[slot][t] = in[turn * 128 + static_cast<int>(t)];
        else
            out[turn * 128 + static_cast<int>(t)] = data[slot][127 - t] + 1;
        if (fault != Fault::early_signal && lane() == 0)
            __hip_atomic_fetch_add(mine, 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
}

// A function that waits for a flag does not know that it lies in LDS: FLAT instructions read and
// write it.
__device__ __attribute__((noinline)) void wait_for(const volatile u32 *flag, u32 value) {
    while (*flag < value)
        __builtin_amdgcn_s_sleep(1);
}

// Wave 0 hands `turns` blocks to wave 1, whose loop waits in a function and in the kernel by turns.
template <Fault fault> INLINE void mailbox(const u32 *in, u32 *out, int turns) {
    __shared__ u32 data[64];
    __shared__ u32 sent, taken;
    if (thread_x() == 0)
        sent = taken = 0;
    barrier();
    // The compiler cannot tell where they point.
    volatile u32 *flag_sent = turns > 1000 ? out : &sent, *flag_taken = turns > 1000 ? out : &taken;
    const bool sends = uniform(thread_x() / 64) == 0;
    for (int turn = 0; turn < turns; ++turn) {
        const u32 number = static_cast<u32>(turn);
        volatile u32 *theirs = sends ? flag_taken : flag_sent;
        volatile u32 *mine = sends ? flag_sent : flag_taken;
        if (fault == Fault::early_signal)
            *mine = number + 1;
        if (turn % 2)
            wait_for(theirs, number + !sends);
        else
            while (*theirs < number + !sends)
                ;
        asm volatile("" ::: "memory");
        if (sends)
            data[lane()] = in[turn * 64 + static_cast<int>(lane())];
        else
            out[turn * 64 + static_cast<int>(lane())] = data[63 - lane()] + 1;
        if (fault != Fault::no_wait)
            wait_lgkm<0>();
        asm volatile("" ::: "memory");
        if (fault != Fault::early_signal)
            *mine = number + 1;
    }
}

// Four waves add to a sum in LDS, one at a time, `turns` times each.
KERNEL void lock(const u32 *in, u32 *out, int turns) {
    __shared__ u32 held, sum;
    if (thread_x() == 0)
        held = sum = 0;
    barrier();
    for (int turn = 0; lane() == 0 && turn < turns; ++turn) {
        u32 expected;
        do
            expected = 0;
        while (!__hip_atomic_compare_exchange_strong(&held, &expected, 1u, __ATOMIC_ACQUIRE,
                                                     __ATOMIC_RELAXED,
                                                     __HIP_MEMORY_SCOPE_WORKGROUP));
        sum += in[turn];
        __hip_atomic_store(&held, 0u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
    barrier();
    out[thread_x()] = sum;
}

#define PING_PONG(fault)                                                                           \
    KERNEL void ping_pong_##fault(const f16 *a, const f16 *b, float *c, int k) {                   \
        ping_pong<Fault::fault>(a, b, c, k);                                                       \
    }
#define DIRECT(fault)                                                                              \
    KERNEL void direct_to_lds_##fault(const u32 *in, u32 *out) {                                   \
        direct_to_lds<Fault::fault>(in, out);                                                      \
    }

PING_PONG(none)
PING_PONG(no_wait)
PING_PONG(no_barrier)
PING_PONG(unpaired_barrier)
PING_PONG(early_write)
PING_PONG(small_lds)
DIRECT(none)
DIRECT(no_wait)
DIRECT(no_barrier)
DIRECT(small_lds)

#define RING(fault)                                                                                \
    KERNEL void ring_##fault(const u32 *in, u32 *out, int turns) {                                 \
        ring<Fault::fault>(in, out, turns);                                                        \
    }
RING(none)
RING(no_wait)
RING(early_signal)
RING(few_signals)

#define MAILBOX(fault)                                                                             \
    KERNEL void mailbox_##fault(const u32 *in, u32 *out, int turns) {                              \
        mailbox<Fault::fault>(in, out, turns);                                                     \
    }
MAILBOX(none)
MAILBOX(no_wait)
MAILBOX(early_signal)
