// The steps from a naive matrix product to the library's kernels, each as short as it can be.
//
// C = A B^T for bf16 A (m, k) and B (n, k) and fp32 C (m, n), all contiguous; m, n and k are whole
// tiles. The instruction is 16x16x16: lane l holds k 4 (l / 16) .. + 3 of row l % 16 of either
// operand, and rows 4 (l / 16) .. + 3 of column l % 16 of the result.
//
// docs/explanation/naive_to_ping_pong.rst walks through them; tests/kernels/test_steps.py runs them
// and holds the page's figures against the count of these kernels.

#define KERNEL(threads)                                                                            \
    extern "C" __attribute__((global)) void                                                        \
        __attribute__((amdgpu_flat_work_group_size(threads, threads)))
#define DEVICE static inline __attribute__((device, always_inline))

using bf16x4 = short __attribute__((ext_vector_type(4)));
using bf16x8 = short __attribute__((ext_vector_type(8)));
using f32x4 = float __attribute__((ext_vector_type(4)));

DEVICE int thread_id() { return __builtin_amdgcn_workitem_id_x(); }

DEVICE f32x4 mfma(bf16x4 a, bf16x4 b, f32x4 acc) {
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, acc, 0, 0, 0);
}

// -- 1. Every wave for itself: a 16x16 tile of C, operands straight from memory -------------------

KERNEL(64) naive(const short *a, const short *b, float *c, int n, int k) {
    const int lane = thread_id(), row = lane % 16, part = lane / 16 * 4;
    const int m0 = __builtin_amdgcn_workgroup_id_y() * 16;
    const int n0 = __builtin_amdgcn_workgroup_id_x() * 16;
    f32x4 acc = {};
    for (int k0 = 0; k0 < k; k0 += 16) {
        const bf16x4 from_a = *(const bf16x4 *)(a + (m0 + row) * k + k0 + part);
        const bf16x4 from_b = *(const bf16x4 *)(b + (n0 + row) * k + k0 + part);
        acc = mfma(from_a, from_b, acc);
    }
    for (int i = 0; i < 4; ++i)
        c[(m0 + part + i) * n + n0 + row] = acc[i];
}

// -- 2 to 4. A workgroup of four waves and a 128x128x64 tile in LDS -------------------------------

constexpr int tile = 128, tile_k = 64, vectors = tile * tile_k / 8 / 256; // 16 bytes, of a thread

// 16-byte chunk `chunk` of a row of LDS: in its place, or rotated so that the 8 rows that a phase
// of LDS reads lie in 8 different groups of banks.
template <bool rotated> DEVICE int place(int row, int chunk) {
    return row * tile_k + (rotated ? chunk ^ row % 8 : chunk) * 8;
}

// Each thread's part of a tile of A or B: 8 lanes read 128 bytes of a row.
struct Staged {
    bf16x8 data[vectors];

    static __attribute__((device, always_inline)) Staged load(const short *matrix, int row0, int k0,
                                                              int k) {
        Staged staged;
        for (int i = 0; i < vectors; ++i)
            staged.data[i] = *(const bf16x8 *)(matrix + (row0 + i * 32 + thread_id() / 8) * k + k0 +
                                               thread_id() % 8 * 8);
        return staged;
    }
    template <bool rotated> __attribute__((device, always_inline)) void store(short *lds) const {
        for (int i = 0; i < vectors; ++i)
            *(bf16x8 *)(lds + place<rotated>(i * 32 + thread_id() / 8, thread_id() % 8)) = data[i];
    }
};

// A wave's 64x64 of the tile: chunks of 8 k feed two instructions.
template <bool rotated>
DEVICE void multiply(const short *lds_a, const short *lds_b, f32x4 (&acc)[4][4]) {
    const int wave = thread_id() / 64, row = thread_id() % 16, part = thread_id() % 64 / 16;
    for (int step = 0; step < tile_k / 32; ++step) {
        bf16x8 a[4], b[4];
        for (int i = 0; i < 4; ++i) {
            const int chunk = step * 4 + part;
            a[i] = *(const bf16x8 *)(lds_a + place<rotated>(wave / 2 * 64 + i * 16 + row, chunk));
            b[i] = *(const bf16x8 *)(lds_b + place<rotated>(wave % 2 * 64 + i * 16 + row, chunk));
        }
        for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 4; ++j)
                acc[i][j] = mfma(a[i].lo, b[j].lo, acc[i][j]);
        for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 4; ++j)
                acc[i][j] = mfma(a[i].hi, b[j].hi, acc[i][j]);
    }
}

DEVICE void store(float *c, int n, int m0, int n0, const f32x4 (&acc)[4][4]) {
    const int wave = thread_id() / 64, column = thread_id() % 16, part = thread_id() % 64 / 16 * 4;
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
            for (int e = 0; e < 4; ++e)
                c[(m0 + wave / 2 * 64 + i * 16 + part + e) * n + n0 + wave % 2 * 64 + j * 16 +
                  column] = acc[i][j][e];
}

// Every wave's LDS accesses before it come before every wave's after it; loads stay in flight.
DEVICE void lds_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

template <bool rotated, bool ahead>
DEVICE void tiled(const short *a, const short *b, float *c, int n, int k) {
    static __attribute__((shared)) short lds[2 * tile * tile_k];
    short *const lds_a = lds, *const lds_b = lds + tile * tile_k;
    const int m0 = __builtin_amdgcn_workgroup_id_y() * tile;
    const int n0 = __builtin_amdgcn_workgroup_id_x() * tile;
    f32x4 acc[4][4] = {};
    Staged next_a = Staged::load(a, m0, 0, k), next_b = Staged::load(b, n0, 0, k);
    for (int k0 = 0; k0 < k; k0 += tile_k) {
        if (!ahead && k0 > 0) {
            next_a = Staged::load(a, m0, k0, k);
            next_b = Staged::load(b, n0, k0, k);
        }
        next_a.store<rotated>(lds_a);
        next_b.store<rotated>(lds_b);
        if (ahead) { // past the end, the first tile once more
            const int k1 = k0 + tile_k < k ? k0 + tile_k : 0;
            next_a = Staged::load(a, m0, k1, k);
            next_b = Staged::load(b, n0, k1, k);
        }
        lds_barrier(); // the tile is in LDS
        multiply<rotated>(lds_a, lds_b, acc);
        lds_barrier(); // every wave has read it
    }
    store(c, n, m0, n0, acc);
}

KERNEL(256) lds_tile(const short *a, const short *b, float *c, int n, int k) {
    tiled<false, false>(a, b, c, n, k);
}
KERNEL(256) rotated_rows(const short *a, const short *b, float *c, int n, int k) {
    tiled<true, false>(a, b, c, n, k);
}
KERNEL(256) registers_ahead(const short *a, const short *b, float *c, int n, int k) {
    tiled<true, true>(a, b, c, n, k);
}
