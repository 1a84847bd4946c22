// Address spaces and data layout: structs, constants, scratch arrays, generic pointers, buffers.
#include "prelude.hpp"

struct Pair {
    float scale;
    i16 shift;
    u8 flags[3];
};
struct Arguments {
    const float *x;
    Pair pairs[2];
    i64 offset;
    float *out;
    double bias;
};

KERNEL void struct_by_value(Arguments args, u8 last) {
    const u32 i = global_x();
    const Pair &p = args.pairs[i & 1];
    float v = args.x[i] * p.scale + static_cast<float>(p.shift) + static_cast<float>(args.bias);
    v += static_cast<float>(p.flags[0] + p.flags[1] * 2 + p.flags[2] * 4 + last);
    args.out[static_cast<i64>(i) + args.offset] = v;
}

struct __attribute__((packed)) Record {
    u8 tag;
    u32 count;
    u16 rest;
    double value;
};
KERNEL void packed_records(const Record *in, Record *out) {
    Record r = in[global_x()];
    r.count += r.tag;
    r.value = r.value * 2 + r.rest;
    r.rest = static_cast<u16>(~r.rest);
    out[global_x()] = r;
}

// Globals that another global points at: relocations in the data.
__device__ int counters[4] = {10, 20, 30, 40};
__device__ float weights[2][3] = {{1, 2, 3}, {4, 5, 6}};
__device__ int *const pointers[3] = {&counters[2], &counters[0], &counters[3]};
__constant__ double factor = 2.5;

KERNEL void globals(int *out, double *d) {
    const u32 i = thread_x();
    out[i] = *pointers[i % 3] + static_cast<int>(weights[i % 2][i % 3]);
    d[i] = factor * static_cast<double>(i);
    if (i == 0)
        counters[1] += 5;
}

// A private array indexed by values: scratch.
KERNEL void sort_private(const int *x, int *out) {
    int values[16];
    const int *from = x + global_x() * 16;
    for (int i = 0; i < 16; ++i)
        values[i] = from[i];
    for (int i = 1; i < 16; ++i) {
        const int key = values[i];
        int j = i;
        for (; j > 0 && values[j - 1] > key; --j)
            values[j] = values[j - 1];
        values[j] = key;
    }
    for (int i = 0; i < 16; ++i)
        out[global_x() * 16 + i] = values[i];
}

KERNEL void scratch_bytes(const u8 *text, u32 *out, int length) {
    u8 count[64];
    u16 wide[8];
#pragma clang loop unroll(disable)
    for (int i = 0; i < 64; ++i)
        count[i] = 0;
    for (int i = 0; i < 8; ++i)
        wide[i] = static_cast<u16>(i * 1000);
    for (int i = 0; i < length; ++i) {
        const u8 c = text[static_cast<int>(global_x()) * length + i] & 63;
        ++count[c];
        wide[c & 7] = static_cast<u16>(wide[c & 7] + c);
    }
    u32 best = 0, sum = 0;
#pragma clang loop unroll(disable)
    for (u32 i = 0; i < 64; ++i)
        if (count[i] > count[best])
            best = i;
    for (int i = 0; i < 8; ++i)
        sum = sum * 31 + wide[i];
    out[2 * global_x()] = best;
    out[2 * global_x() + 1] = sum;
}

// A vector indexed by a value, in registers if the compiler can.
KERNEL void indexed_vector(const float *x, const u32 *which, float *out) {
    vec<float, 8> v;
    for (int i = 0; i < 8; ++i)
        v[i] = x[i] * static_cast<float>(i + 1);
    v[which[0] & 7] += 100.0f;
    out[global_x()] = v[which[1] & 7] + v[which[global_x() + 2] & 7];
}

NOINLINE int through_pointer(const int *p, int n) {
    int sum = 0;
    for (int i = 0; i < n; ++i)
        sum += p[i];
    return sum;
}
// One function reads LDS, private and global memory by generic pointers.
KERNEL void generic_pointers(const int *x, int *out) {
    __shared__ int shared[64];
    int mine[4];
    const u32 t = thread_x();
    shared[t] = x[t] * 3;
    for (int i = 0; i < 4; ++i)
        mine[i] = x[t] + i;
    barrier();
    const int *choices[3] = {&shared[t & 60], mine, x + (t & 60)};
    out[t] = through_pointer(choices[t % 3], 4);
}

extern "C" __shared__ u8 dynamic[];
KERNEL void dynamic_lds(const u32 *x, u32 *out) {
    u32 *words = reinterpret_cast<u32 *>(dynamic);
    u8 *bytes = dynamic + 4 * block_dim_x();
    words[thread_x()] = x[global_x()];
    bytes[thread_x()] = static_cast<u8>(x[global_x()] >> 8);
    barrier();
    const u32 other = block_dim_x() - 1 - thread_x();
    out[global_x()] = words[other] + bytes[thread_x() ^ 1];
}

// Every access width, aligned and not.
KERNEL void widths(const u8 *in, u8 *out) {
    const u32 i = thread_x();
    *reinterpret_cast<vec<u32, 4> *>(out + i * 48) =
        *reinterpret_cast<const vec<u32, 4> *>(in + i * 48);
    const auto three = *reinterpret_cast<const vec<u32, 2> *>(in + i * 48 + 16);
    *reinterpret_cast<vec<u32, 2> *>(out + i * 48 + 16) = three;
    *reinterpret_cast<u32 *>(out + i * 48 + 24) = *reinterpret_cast<const u32 *>(in + i * 48 + 24);
    *reinterpret_cast<u16 *>(out + i * 48 + 28) = *reinterpret_cast<const u16 *>(in + i * 48 + 28);
    out[i * 48 + 30] = in[i * 48 + 30];
    out[i * 48 + 31] =
        static_cast<u8>(static_cast<const i8 *>(static_cast<const void *>(in))[i * 48 + 31] / 2);
    __builtin_memcpy(out + i * 48 + 33, in + i * 48 + 33, 13);
    out[i * 48 + 32] = 1;
    out[i * 48 + 46] = 2;
    out[i * 48 + 47] = 3;
}

KERNEL void text(const u8 *in, u8 *out, u32 n) {
    for (u32 i = global_x(); i < n; i += grid_size_x()) {
        u8 c = in[i];
        if (c >= 'a' && c <= 'z')
            c = static_cast<u8>(c - 32);
        out[n - 1 - i] = c;
    }
}

// Buffer resources: loads past num_records give 0, stores there do nothing.
KERNEL void buffers(float *in, float *out, int n) {
    const auto source = __builtin_amdgcn_make_buffer_rsrc(in, 0, n * 4, 0x00020000);
    const auto target = __builtin_amdgcn_make_buffer_rsrc(out, 0, n * 4, 0x00020000);
    const int at = static_cast<int>(global_x()) * 4;
    const u32 word = __builtin_amdgcn_raw_buffer_load_b32(source, at, 0, 0);
    const u32 next = __builtin_amdgcn_raw_buffer_load_b32(source, at, 4, 0);
    const float sum = __builtin_bit_cast(float, word) + __builtin_bit_cast(float, next);
    __builtin_amdgcn_raw_buffer_store_b32(__builtin_bit_cast(u32, sum), target, at, 0, 0);
}

KERNEL void buffer_widths(u8 *in, u8 *out, int bytes) {
    const auto source = __builtin_amdgcn_make_buffer_rsrc(in, 0, bytes, 0x00020000);
    const auto target = __builtin_amdgcn_make_buffer_rsrc(out, 0, bytes, 0x00020000);
    const int at = static_cast<int>(global_x()) * 32;
    const auto four = __builtin_amdgcn_raw_buffer_load_b128(source, at, 0, 0);
    __builtin_amdgcn_raw_buffer_store_b128(four, target, at, 0, 0);
    const auto two = __builtin_amdgcn_raw_buffer_load_b64(source, at + 16, 0, 0);
    __builtin_amdgcn_raw_buffer_store_b64(two, target, at + 16, 0, 0);
    const auto half = __builtin_amdgcn_raw_buffer_load_b16(source, at + 24, 0, 0);
    __builtin_amdgcn_raw_buffer_store_b16(half, target, at + 24, 0, 0);
    const auto byte = __builtin_amdgcn_raw_buffer_load_b8(source, at + 26, 0, 0);
    __builtin_amdgcn_raw_buffer_store_b8(byte, target, at + 26, 0, 0);
    const auto three = __builtin_amdgcn_raw_buffer_load_b96(source, at + 20, 0, 0);
    out[at + 28] = static_cast<u8>(three[2] >> 16);
}

// Loads that go straight to LDS: lanes land one after another from the wave's base.
KERNEL void straight_to_lds(u32 *in, u32 *out) {
    __shared__ u32 tile[256];
    const u32 wave = thread_x() / 64;
    __builtin_amdgcn_global_load_lds(
        (__attribute__((address_space(1))) void *)(in + (thread_x() ^ 1)),
        (__attribute__((address_space(3))) void *)(tile + wave * 64), 4, 0, 0);
    __builtin_amdgcn_s_waitcnt(0);
    barrier();
    out[thread_x()] = tile[255 - thread_x()];
}

// Arguments that the command processor puts in registers (compiled with preloading on).
KERNEL void preloaded(const int *x, int *out, int scale, i64 bias) {
    out[global_x()] = x[global_x()] * scale + static_cast<int>(bias >> 4);
}
