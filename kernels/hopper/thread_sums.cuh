// The sums of a tile of 128 x 128 by fused multiplications and additions, for factors of fp32.
//
// Sums of tf32 terms by mma.sync are less accurate here, and took longer
// (docs/explanation/factorisations_measured.rst).
#pragma once

#include "hopper/tile_operand.cuh"

namespace cupygemm {

struct alignas(16) FourFloats {
    float value[4];
};

// 16 x 16 threads. A thread multiplies every 16th row by every 16th column, so that all threads
// have work until the last columns of the tile. It reads 16 bytes at a time, without bank
// conflicts, so elements of a row are adjacent.
struct ThreadSums {
    static constexpr bool multiplies_inverses = false;
    float value[8][8]; // (row, column)
    u32 row, column;   // of the thread, among 16

    CUPYGEMM_INLINE explicit ThreadSums(u32 thread) : row(thread / 16), column(thread % 16) {}

    CUPYGEMM_INLINE static u32 place(u32 thread, u32 i) { return thread + 16 * i; }

    template <class Visit> CUPYGEMM_INLINE void for_each(u32 first, u32 end, const Visit &visit) {
#pragma unroll
        for (u32 j = 0; j < 8; ++j) {
            const u32 c = place(column, j);
            if (c / 8 >= first && c / 8 < end)
#pragma unroll
                for (u32 i = 0; i < 8; ++i)
                    visit(value[i][j], place(row, i), c);
        }
    }

    template <class Left, class Right> CUPYGEMM_INLINE void
    subtract(const float *left, const float *right, u32 right_k, u32 first, u32 end) {
        subtract_steps<8, Left, Right>(left, right, right_k, first, end, [] {});
    }

    template <u32 depth, class Left, class Right, class Between> CUPYGEMM_INLINE void
    subtract_all(const float *left, const float *right, const Between &between) {
        subtract_steps<depth, Left, Right>(left, right, 0, 0, 16, between);
    }

private:
    // A column and a row of the next 4 k are loaded while a column is multiplied.
    template <u32 depth, class Left, class Right, class Between>
    CUPYGEMM_INLINE void subtract_steps(const float *left, const float *right, u32 right_k,
                                        u32 first, u32 end, const Between &between) {
        constexpr u32 steps = depth / 4;
        FourFloats a[2][8], b[2];
#pragma unroll
        for (u32 i = 0; i < 8; ++i)
            a[0][i] = load<Left>(left, row, i, 0);
        b[0] = load<Right>(right, column, 0, right_k);
#pragma unroll
        for (u32 step = 0; step < steps; ++step) {
            if (step == 1)
                between();
#pragma unroll
            for (u32 j = 0; j < 8; ++j) {
                const u32 next = (j + 1) % 8, k = right_k + 4 * (step + (j + 1) / 8);
                if (next > 0 || step + 1 < steps)
                    b[next % 2] = load<Right>(right, column, next, k);
                if (step + 1 < steps)
                    a[(step + 1) % 2][j] = load<Left>(left, row, j, 4 * (step + 1));
                const u32 block = place(column, j) / 8;
                if (block >= first && block < end)
                    multiply(j, a[step % 2], b[j % 2]);
            }
        }
    }

    // Subtract the products of 4 k from the sums of a column.
    CUPYGEMM_INLINE void multiply(u32 j, const FourFloats (&a)[8], const FourFloats &b) {
#pragma unroll
        for (u32 l = 0; l < 4; ++l)
#pragma unroll
            for (u32 i = 0; i < 8; ++i)
                value[i][j] = fma_of(-a[i].value[l], b.value[l], value[i][j]);
    }

    template <class Operand>
    CUPYGEMM_INLINE static FourFloats load(const float *tile, u32 thread, u32 i, u32 k) {
        static_assert(!Operand::of_rows, "elements of a row must be adjacent");
        return *reinterpret_cast<const FourFloats *>(tile + Operand::place(place(thread, i), k));
    }
};

} // namespace cupygemm
