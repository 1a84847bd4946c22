// Two ways to keep the matrix units busy on a tile of 256 x 256 x 64 bf16, in the form of published
// ones (`GT` in figures.py, MI300X), as kernels to calibrate the timing model with:
// C = A B^T for A (m, k), B (n, k), C (m, n), extents multiples of the tile, k of at least two.
//
//   ping_pong    eight waves in two groups, two waves on a SIMD. A tile takes a wave four phases,
//                each ended by a barrier, and the second group is one phase behind:
//                    first group    R0(t)   C0(t)   R1(t)   C1(t)   R0(t+1)     R  moves memory
//                    second group   C1(t-1) R0(t)   C0(t)   R1(t)   C1(t)       C  multiplies
//                R0 reads B and the upper half of A of tile t from LDS, writes the lower half of A
//                and loads that of t+1; R1 reads the lower half, and does the rest for t+1 and t+2.
//   interleaved  four waves, one on a SIMD, each a quarter of the tile: LDS and global memory are
//                accessed between the MFMA of the same wave.
//
// LDS holds one tile, rows of 128 bytes whose 16-byte chunks are XORed with row % 8; the next tile
// waits in registers. The barriers order LDS alone, so that loads stay in flight across them.

using u16 = unsigned short;
using u32x2 = unsigned __attribute__((ext_vector_type(2)));
using u32x4 = unsigned __attribute__((ext_vector_type(4)));
using s16x4 = short __attribute__((ext_vector_type(4)));
using f32x4 = float __attribute__((ext_vector_type(4)));

#define DEVICE static inline __attribute__((device, always_inline))

constexpr int tile = 256, tile_k = 64, mma = 16, chunk = 8; // elements
constexpr int chunks = tile_k / chunk, steps = 2;           // a step is 32 deep: a chunk for a lane
constexpr int matrix = 0x008, global_read = 0x020, lds_read = 0x100, lds_write = 0x200;

DEVICE void barrier() { // orders the waves' accesses to LDS
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

DEVICE void end_phase() { __builtin_amdgcn_sched_barrier(0); }

// One instruction of a kind, then `ratio` MFMA, `count` times.
template <int kind, int count, int ratio> DEVICE void interleave() {
#pragma unroll
    for (int i = 0; i < count; i++) {
        __builtin_amdgcn_sched_group_barrier(kind, 1, 0);
        __builtin_amdgcn_sched_group_barrier(matrix, ratio, 0);
    }
}

DEVICE u32x4 *place(u16 *lds, int row, int column) {
    return reinterpret_cast<u32x4 *>(lds + row * tile_k + (column ^ row % chunks) * chunk);
}

// The share of a thread in rows of an operand: `count` vectors of 16 bytes, from vector `first` on.
template <int threads, int first, int count, int all>
DEVICE void load(u32x4 (&to)[all], const u16 *from, int ld, int thread) {
#pragma unroll
    for (int i = first; i < first + count; i++) {
        int vector = i * threads + thread;
        to[i] =
            *reinterpret_cast<const u32x4 *>(from + vector / chunks * ld + vector % chunks * chunk);
    }
}

template <int threads, int first, int count, int all>
DEVICE void store(u16 *lds, const u32x4 (&from)[all], int thread) {
#pragma unroll
    for (int i = first; i < first + count; i++) {
        int vector = i * threads + thread;
        *place(lds, vector / chunks, vector % chunks) = from[i];
    }
}

template <int fragments>
DEVICE void read(u32x4 (&to)[fragments], u16 *lds, int row, int step, int lane) {
#pragma unroll
    for (int i = 0; i < fragments; i++)
        to[i] = *place(lds, row + i * mma + lane % mma, step * chunks / steps + lane / mma);
}

template <int first, int rows, int columns, int all_rows, int of_a>
DEVICE void multiply(f32x4 (&acc)[all_rows][columns], const u32x4 (&a)[of_a],
                     const u32x4 (&b)[columns], int row) {
#pragma unroll
    for (int i = 0; i < rows; i++)
#pragma unroll
        for (int j = 0; j < columns; j++) {
            f32x4 &sum = acc[row + i][j];
            // (A bit cast of `.zw` itself would take `.xy`.)
            const u32x2 x[] = {a[first + i].xy, a[first + i].zw}, y[] = {b[j].xy, b[j].zw};
#pragma unroll
            for (int half = 0; half < 2; half++)
                sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(s16x4, x[half]),
                                                                __builtin_bit_cast(s16x4, y[half]),
                                                                sum, 0, 0, 0);
        }
}

DEVICE void write_result(u16 *c, const f32x4 &sum, int row, int column, int n, int lane) {
    for (int g = 0; g < 4; g++) {
        const float value = sum[g]; // a bit cast of `sum[g]` itself would take `sum[0]`
        const unsigned bits = __builtin_bit_cast(unsigned, value) + 0x8000; // ties away from zero
        c[(row + lane / mma * 4 + g) * n + column + lane % mma] = static_cast<u16>(bits >> 16);
    }
}

struct Position {
    const u16 *a, *b;
    u16 *c;
};

DEVICE Position position(const u16 *a, const u16 *b, u16 *c, int n, int k) {
    const int group = __builtin_amdgcn_workgroup_id_x();
    const int row = group / (n / tile) * tile, column = group % (n / tile) * tile;
    return {a + row * k, b + column * k, c + row * n + column};
}

extern "C"
    __attribute__((global, amdgpu_flat_work_group_size(512, 512), amdgpu_waves_per_eu(2, 2))) void
    ping_pong(const u16 *a_matrix, const u16 *b_matrix, u16 *c_matrix, int m, int n, int k) {
    constexpr int threads = 512, part = 64, fragments = part / mma, vectors = 4;
    static __attribute__((shared)) u16 lds_a[tile * tile_k], lds_b[tile * tile_k];
    const Position at = position(a_matrix, b_matrix, c_matrix, n, k);
    const int thread = __builtin_amdgcn_workitem_id_x(), lane = thread % 64;
    const int wave = __builtin_amdgcn_readfirstlane(thread / 64);
    const int group = wave / 4, column = wave % 4 * part;
    f32x4 acc[2 * fragments][fragments] = {};
    u32x4 next_a[vectors], next_b[vectors], a[steps][fragments], b[steps][fragments];

    auto read_half = [&](int half) {
        for (int step = 0; step < steps; step++)
            read(a[step], lds_a, half * tile / 2 + group * part, step, lane);
    };
    auto read_b = [&] {
        for (int step = 0; step < steps; step++)
            read(b[step], lds_b, column, step, lane);
    };
    auto compute = [&](int half) { // C
        end_phase();
        barrier();
        end_phase();
        __builtin_amdgcn_s_setprio(1);
        for (int step = 0; step < steps; step++)
            multiply<0, fragments>(acc, a[step], b[step], half * fragments);
        __builtin_amdgcn_s_setprio(0);
        end_phase();
        barrier();
        end_phase();
    };

    load<threads, 0, vectors>(next_a, at.a, k, thread);
    load<threads, 0, vectors>(next_b, at.b, k, thread);
    store<threads, 0, vectors>(lds_a, next_a, thread);
    store<threads, 0, vectors>(lds_b, next_b, thread);
    load<threads, 0, vectors>(next_b, at.b + tile_k, k, thread);
    load<threads, 0, vectors>(next_a, at.a + tile_k, k, thread);
    barrier();
    if (group == 1)
        barrier(); // a phase behind
    read_b();
    read_half(0);
    compute(0);
    for (int done = tile_k; done < k; done += tile_k) {
        const int ahead = done + tile_k < k ? done + tile_k : 0; // the last load is unused
        read_half(1);
        store<threads, 0, vectors>(lds_b, next_b, thread);
        store<threads, 0, vectors / 2>(lds_a, next_a, thread);
        load<threads, 0, vectors>(next_b, at.b + ahead, k, thread);
        load<threads, 0, vectors / 2>(next_a, at.a + ahead, k, thread);
        compute(1);
        read_b();
        read_half(0);
        store<threads, vectors / 2, vectors / 2>(lds_a, next_a, thread);
        load<threads, vectors / 2, vectors / 2>(next_a, at.a + ahead, k, thread);
        compute(0);
    }
    read_half(1);
    compute(1);
    if (group == 0)
        barrier();
#pragma unroll
    for (int i = 0; i < 2 * fragments; i++)
#pragma unroll
        for (int j = 0; j < fragments; j++) {
            int row = i / fragments * tile / 2 + group * part + i % fragments * mma;
            write_result(at.c, acc[i][j], row, column + j * mma, n, lane);
        }
}

extern "C"
    __attribute__((global, amdgpu_flat_work_group_size(256, 256), amdgpu_waves_per_eu(1, 1))) void
    interleaved(const u16 *a_matrix, const u16 *b_matrix, u16 *c_matrix, int m, int n, int k) {
    constexpr int threads = 256, part = 128, fragments = part / mma, vectors = 8;
    static __attribute__((shared)) u16 lds_a[tile * tile_k], lds_b[tile * tile_k];
    const Position at = position(a_matrix, b_matrix, c_matrix, n, k);
    const int thread = __builtin_amdgcn_workitem_id_x(), lane = thread % 64;
    const int wave = __builtin_amdgcn_readfirstlane(thread / 64);
    const int row = wave / 2 * part, column = wave % 2 * part;
    f32x4 acc[fragments][fragments] = {};
    u32x4 next_a[vectors], next_b[vectors], a[steps][fragments], b[steps][fragments];

    auto read_step = [&](int step) {
        read(a[step], lds_a, row, step, lane);
        read(b[step], lds_b, column, step, lane);
    };

    load<threads, 0, vectors>(next_a, at.a, k, thread);
    load<threads, 0, vectors>(next_b, at.b, k, thread);
    store<threads, 0, vectors>(lds_a, next_a, thread);
    store<threads, 0, vectors>(lds_b, next_b, thread);
    load<threads, 0, vectors>(next_a, at.a + tile_k, k, thread);
    load<threads, 0, vectors>(next_b, at.b + tile_k, k, thread);
    barrier();
    read_step(0);
    for (int done = tile_k; done < k; done += tile_k) {
        const int ahead = done + tile_k < k ? done + tile_k : 0;
        end_phase();
        read_step(1);
        multiply<0, fragments>(acc, a[0], b[0], 0);
        interleave<lds_read, 2 * fragments, 4>();
        end_phase();
        barrier(); // all waves have read the tile
        end_phase();
        store<threads, 0, vectors>(lds_a, next_a, thread);
        store<threads, 0, vectors>(lds_b, next_b, thread);
        load<threads, 0, vectors>(next_a, at.a + ahead, k, thread);
        load<threads, 0, vectors>(next_b, at.b + ahead, k, thread);
        multiply<0, 3 * fragments / 4>(acc, a[1], b[1], 0);
        interleave<lds_write, 2 * vectors, 2>();
        interleave<global_read, 2 * vectors, 4>();
        end_phase();
        barrier(); // the next tile is in LDS
        end_phase();
        read_step(0);
        multiply<3 * fragments / 4, fragments / 4>(acc, a[1], b[1], 3 * fragments / 4);
        interleave<lds_read, 2 * fragments, 2>();
    }
    end_phase();
    read_step(1);
    multiply<0, fragments>(acc, a[0], b[0], 0);
    multiply<0, fragments>(acc, a[1], b[1], 0);
#pragma unroll
    for (int i = 0; i < fragments; i++)
#pragma unroll
        for (int j = 0; j < fragments; j++)
            write_result(at.c, acc[i][j], row + i * mma, column + j * mma, n, lane);
}
