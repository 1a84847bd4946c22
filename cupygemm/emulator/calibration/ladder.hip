// The steps of a published ladder of bf16 products on MI300X, as kernels to calibrate the timing
// model with: C = A B^T for A (m, k), B (n, k), C (m, n), all of their extents multiples of the
// tile. Written after the description of gau-nernst's learn-cuda, 02d_matmul_cdna3, which gives the
// speed of each; they are here to be modelled, not to be fast.
//
//   tile           global -> registers -> LDS, barrier, LDS -> registers, multiply, barrier
//   padded         rows of LDS are 16 bytes longer, so that a column spreads over the banks
//   swizzled       16-byte chunks of a row are XORed with row % 8 instead
//   buffered       the next tile is loaded into registers while this one is multiplied
//   wide           LDS is read 16 bytes at a time; A and B take k in the same, permuted, order
//   shallow        as wide with tiles half as deep, two of them in LDS, and one barrier for each:
//                  another source (`GT` in figures.py) found this form the slower one
//
// Tile 128 x 128 x 64, four waves of 64 x 64, v_mfma_f32_16x16x16_bf16.

using u16 = unsigned short;
using u32x2 = unsigned __attribute__((ext_vector_type(2)));
using u32x4 = unsigned __attribute__((ext_vector_type(4)));
using s16x4 = short __attribute__((ext_vector_type(4)));
using f32x4 = float __attribute__((ext_vector_type(4)));

#define DEVICE static inline __attribute__((device, always_inline))

constexpr int tile = 128, warp_tile = 64, mma = 16, num_threads = 256;
constexpr int vector = 8; // elements of a 16-byte load
constexpr int fragments = warp_tile / mma;

struct Step {
    int pad; // elements after each row of LDS
    bool swizzled, buffered, wide;
    int tile_k = 64, stages = 1;
};

constexpr Step steps_of_ladder[] = {
    {0, false, false, false}, {8, false, false, false}, {0, true, false, false},
    {0, true, true, false},   {0, true, true, true},    {0, true, true, true, 32, 2},
};

// After it, LDS that the workgroup has written can be read, and LDS that it has read overwritten.
DEVICE void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

DEVICE u16 to_bf16(float x) { // rounds to nearest even; the calibration has no NaN
    unsigned bits = __builtin_bit_cast(unsigned, x);
    return static_cast<u16>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

template <int number> struct Ladder {
    static constexpr Step step = steps_of_ladder[number];
    static constexpr int tile_k = step.tile_k, pitch = tile_k + step.pad, steps = tile_k / mma;
    static constexpr int num_vectors = tile * tile_k / vector / num_threads; // of one operand
    static constexpr int stage = tile * pitch;                               // elements of LDS
    static constexpr int rows_of_banks = 64 / tile_k; // rows that fill the banks once

    // Place of an element in LDS.
    DEVICE int place(int row, int column) {
        const int mask = row / rows_of_banks % (tile_k / vector) * vector;
        return row * pitch + (step.swizzled ? column ^ mask : column);
    }

    DEVICE void load(u32x4 (&to)[num_vectors], const u16 *from, int ld, int thread) {
        for (int i = 0; i < num_vectors; i++) {
            int first = (i * num_threads + thread) * vector;
            to[i] = *reinterpret_cast<const u32x4 *>(from + first / tile_k * ld + first % tile_k);
        }
    }

    DEVICE void store(u16 *lds, const u32x4 (&from)[num_vectors], int thread) {
        for (int i = 0; i < num_vectors; i++) {
            int first = (i * num_threads + thread) * vector;
            *reinterpret_cast<u32x4 *>(lds + place(first / tile_k, first % tile_k)) = from[i];
        }
    }

    DEVICE void read(s16x4 (&to)[fragments][steps], const u16 *lds, int row, int lane) {
        for (int i = 0; i < fragments; i++)
            for (int k = 0; k < steps; k += 1 + step.wide) {
                int element = row + i * mma + lane % 16;
                int column = k * mma + lane / 16 * (step.wide ? 8 : 4);
                const u16 *from = lds + place(element, column);
                if constexpr (step.wide) {
                    u32x4 both = *reinterpret_cast<const u32x4 *>(from);
                    // (A bit cast of `both.zw` itself would take `both.xy`.)
                    const u32x2 low = both.xy, high = both.zw;
                    to[i][k] = __builtin_bit_cast(s16x4, low);
                    to[i][k + 1] = __builtin_bit_cast(s16x4, high);
                } else {
                    to[i][k] = *reinterpret_cast<const s16x4 *>(from);
                }
            }
    }

    DEVICE void multiply(f32x4 (&acc)[fragments][fragments], const u16 *a, const u16 *b, int wave,
                         int lane) {
        s16x4 fragment_a[fragments][steps], fragment_b[fragments][steps];
        read(fragment_a, a, wave / 2 * warp_tile, lane);
        read(fragment_b, b, wave % 2 * warp_tile, lane);
        for (int i = 0; i < fragments; i++)
            for (int j = 0; j < fragments; j++)
                for (int k = 0; k < steps; k++)
                    acc[i][j] = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(
                        fragment_a[i][k], fragment_b[j][k], acc[i][j], 0, 0, 0);
    }

    DEVICE void run(const u16 *a, const u16 *b, u16 *c, int m, int n, int k, u16 *lds_a,
                    u16 *lds_b) {
        const int thread = __builtin_amdgcn_workitem_id_x(), wave = thread / 64, lane = thread % 64;
        const int group = __builtin_amdgcn_workgroup_id_x();
        const int row = group / (n / tile) * tile, column = group % (n / tile) * tile;
        a += row * k;
        b += column * k;
        f32x4 acc[fragments][fragments] = {};
        u32x4 next_a[num_vectors], next_b[num_vectors];
        if constexpr (step.buffered) {
            int at = 0; // the stage that is being multiplied
            load(next_a, a, k, thread);
            load(next_b, b, k, thread);
            store(lds_a, next_a, thread);
            store(lds_b, next_b, thread);
            for (int done = tile_k; done < k; done += tile_k) {
                barrier();
                load(next_a, a + done, k, thread);
                load(next_b, b + done, k, thread);
                multiply(acc, lds_a + at, lds_b + at, wave, lane);
                if constexpr (step.stages == 1)
                    barrier();
                else
                    at = stage - at;
                store(lds_a + at, next_a, thread);
                store(lds_b + at, next_b, thread);
            }
            barrier();
            multiply(acc, lds_a + at, lds_b + at, wave, lane);
        } else {
            for (int done = 0; done < k; done += tile_k) {
                barrier();
                load(next_a, a + done, k, thread);
                store(lds_a, next_a, thread);
                load(next_b, b + done, k, thread);
                store(lds_b, next_b, thread);
                barrier();
                multiply(acc, lds_a, lds_b, wave, lane);
            }
        }
        c += (row + wave / 2 * warp_tile) * n + column + wave % 2 * warp_tile;
        for (int i = 0; i < fragments; i++)
            for (int j = 0; j < fragments; j++)
                for (int g = 0; g < 4; g++)
                    c[(i * mma + lane / 16 * 4 + g) * n + j * mma + lane % 16] =
                        to_bf16(acc[i][j][g]);
    }
};

#define KERNEL(name, number)                                                                       \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, 256))) void name(             \
        const u16 *a, const u16 *b, u16 *c, int m, int n, int k) {                                 \
        static __attribute__((                                                                     \
            shared)) u16 lds_a[steps_of_ladder[number].stages * Ladder<number>::stage];            \
        static __attribute__((                                                                     \
            shared)) u16 lds_b[steps_of_ladder[number].stages * Ladder<number>::stage];            \
        Ladder<number>::run(a, b, c, m, n, k, lds_a, lds_b);                                       \
    }

KERNEL(ladder_tile, 0)
KERNEL(ladder_padded, 1)
KERNEL(ladder_swizzled, 2)
KERNEL(ladder_buffered, 3)
KERNEL(ladder_wide, 4)
KERNEL(ladder_shallow, 5)
