// Control flow: divergent loops, early returns, switches, calls, barriers in loops.
#include "prelude.hpp"

KERNEL void collatz(const u32 *start, u32 *steps) {
    u64 value = start[global_x()];
    u32 count = 0;
    while (value != 1) {
        value = value % 2 ? 3 * value + 1 : value / 2;
        ++count;
    }
    steps[global_x()] = count;
}

KERNEL void early_return(const int *x, int *out, int n) {
    const int i = static_cast<int>(global_x());
    if (i >= n)
        return;
    if (x[i] < 0) {
        out[i] = -1;
        return;
    }
    int sum = 0;
    for (int j = 0; j < x[i]; ++j) {
        if (j == 13)
            break;
        if (j % 3 == 1)
            continue;
        sum += j;
    }
    out[i] = sum;
}

KERNEL void switches(const u32 *x, int *out) {
    const u32 v = x[global_x()];
    int result;
    switch (v % 12) {
    case 0: result = 7; break;
    case 1: result = static_cast<int>(v) * 3; break;
    case 2: result = -static_cast<int>(v); break;
    case 3: result = static_cast<int>(v ^ 0x55); break;
    case 4:
    case 5: result = static_cast<int>(v >> 2); break;
    case 7: result = 100; [[fallthrough]];
    case 8: result = 1000 + static_cast<int>(v); break;
    case 11: result = static_cast<int>(v * v); break;
    default: result = 1;
    }
    out[global_x()] = result;
}

// A table of constants, indexed by a value that only the lane knows.
static __constant__ const int table[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
KERNEL void look_up(const u32 *x, int *out) { out[global_x()] = table[x[global_x()] & 15] * 2; }

NOINLINE int polynomial(int x, int degree) {
    int result = 1;
    for (int i = 0; i < degree; ++i)
        result = result * x + i;
    return result;
}
NOINLINE float mixed(float a, double b, vec<float, 4> c, u64 d) {
    return static_cast<float>(b) * a + c.x - c.w + static_cast<float>(d & 255);
}
NOINLINE void many(int *out, int a, int b, int c, int d, int e, int f, int g, int h, const int *p) {
    *out = a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + *p;
}

KERNEL void calls(const int *x, int *out, float *f) {
    const u32 i = global_x();
    const int v = x[i];
    int local = v * 2, result = 0;
    if (v % 2)
        local += polynomial(v & 7, 3);
    many(&result, v, 1, 2, 3, v, 5, 6, v + 1, &local);
    out[i] = result;
    f[i] = mixed(0.5f, v, vec<float, 4>{1, 2, 3, static_cast<float>(v)}, static_cast<u64>(v));
}

// A call, and no stack.
KERNEL void call_of_a_leaf(const int *x, int *out) {
    out[global_x()] = polynomial(x[global_x()], 3);
}

NOINLINE int twice(int x) { return x * 2; }
NOINLINE int square(int x) { return x * x; }
NOINLINE int negated(int x) { return -x; }
using Function = int (*)(int);

// Calls through pointers that differ between lanes: the compiler loops over the distinct ones.
KERNEL void indirect_calls(const int *x, int *out) {
    const Function functions[3] = {twice, square, negated};
    const int v = x[global_x()];
    out[global_x()] = functions[static_cast<u32>(v) % 3](v);
}

// Barriers in a loop whose trip count all threads agree on, with work that they do not share.
KERNEL void rounds(const int *x, int *out, int count) {
    __shared__ int ring[192];
    const u32 t = thread_x(), n = block_dim_x();
    ring[t] = x[global_x()];
    for (int i = 0; i < count; ++i) {
        barrier();
        const int neighbour = ring[t + 1 == n ? 0 : t + 1];
        barrier();
        if ((t + static_cast<u32>(i)) % 3)
            ring[t] += neighbour;
    }
    out[global_x()] = ring[t];
}

// Waves take different paths to the barriers: both sides have one, and the hardware counts
// arrivals.
KERNEL void barrier_on_both_sides(const int *x, int *out) {
    __shared__ int first[64], second[64];
    const u32 wave = thread_x() / 64, l = thread_x() % 64;
    if (wave == 0) {
        first[l] = x[l] + 1;
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
        __builtin_amdgcn_s_barrier();
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
        out[l] = second[63 - l];
    } else {
        second[l] = x[64 + l] * 2;
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
        __builtin_amdgcn_s_barrier();
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
        out[64 + l] = first[63 - l];
    }
}

// Nested divergence: a Mandelbrot count, rows by y.
KERNEL void mandelbrot(int *out, int width, float scale) {
    const u32 i = global_x();
    const float cx = static_cast<float>(static_cast<int>(i) % width) * scale - 2.0f;
    const float cy = static_cast<float>(static_cast<int>(i) / width) * scale - 1.0f;
    float x = 0, y = 0;
    int count = 0;
    while (count < 40) {
        const float xx = x * x, yy = y * y;
        if (xx + yy > 4.0f)
            break;
        y = 2.0f * x * y + cy;
        x = xx - yy + cx;
        ++count;
    }
    out[i] = count;
}

// A bit-field of 40 bits, whose unit has 24 that nothing writes, is added to with carries.
struct Wide {
    u64 kept : 5, counted : 40;
};
NOINLINE Wide counted(Wide w, u64 x) {
    w.counted += x;
    return w;
}
KERNEL void wide_fields(const int *x, u64 *out) {
    Wide w;
    w.kept = 3;
    w.counted = static_cast<u64>(x[global_x()]);
    w = counted(w, 1ull << 33);
    out[global_x()] = w.counted;
}
