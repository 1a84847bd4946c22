// The sums of a tile of 128 x 128 in the registers of 256 threads, from operands in shared memory.
//
// In fp64, mma.sync multiplies. In fp32, each thread multiplies 8 rows by 8 columns, which are
// spread over the tile, so that all threads have work until its last columns.
#pragma once

#include "hopper/tile_operand.cuh"

namespace cupygemm {

// `rows_adjacent` and `columns_adjacent` say how the operands lie in shared memory.
template <class S, bool rows_adjacent, bool columns_adjacent> struct TileSums;

// Eight warps with 16 rows each. A lane's sums of a row and a block of 8 columns are also elements
// of A as mma.sync takes them, with k = 2 t and 2 t + 1.
template <bool rows_adjacent, bool columns_adjacent>
struct TileSums<double, rows_adjacent, columns_adjacent> {
    static constexpr bool multiplies_inverses = true;
    static constexpr u32 blocks = 16; // of 8 columns
    double value[blocks][4];          // (block of columns, element of mma.sync)
    u32 lane, row;                    // the warp's first row

    CUPYGEMM_INLINE explicit TileSums(u32 thread) : lane(thread % 32), row(thread / 32 * 16) {}

    // The end of the blocks that meet the diagonal of the tile, or are to its left.
    CUPYGEMM_INLINE u32 end_at_diagonal() const { return row / 8 + 2; }

    // Call visit(sum, row, column) for all sums of the thread in the blocks of 8 columns from
    // `first` on, up to `end`.
    template <class Visit> CUPYGEMM_INLINE void for_each(u32 first, u32 end, const Visit &visit) {
#pragma unroll
        for (u32 j = 0; j < blocks; ++j)
            if (j >= first && j < end)
#pragma unroll
                for (u32 e = 0; e < 4; ++e)
                    visit(value[j][e], row + lane / 4 + e / 2 * 8, j * 8 + lane % 4 * 2 + e % 2);
    }

    // Subtract left right^T for 8 k, in the blocks of columns from `first` on, up to `end`.
    template <class Left, class Right> CUPYGEMM_INLINE void
    subtract(const double *left, const double *right, u32 right_k, u32 first, u32 end) {
        const Rows a = load<Left>(left, 0);
#pragma unroll
        for (u32 j = 0; j < blocks; ++j)
            if (j >= first && j < end)
                multiply(j, a, fragment_of<Right>(right, j * 8, right_k, lane));
    }

    // Subtract left right^T for `depth` k. B's fragments are loaded two blocks ahead and A's one
    // step ahead, so that no load waits for registers that an instruction reads.
    template <u32 depth, class Left, class Right, class Between> CUPYGEMM_INLINE void
    subtract_all(const double *left, const double *right, const Between &between) {
        constexpr u32 steps = depth / 8;
        Rows a[2];
        Fragment b[4];
        a[0] = load<Left>(left, 0);
        b[0] = fragment_of<Right>(right, 0, 0, lane);
        b[1] = fragment_of<Right>(right, 8, 0, lane);
#pragma unroll
        for (u32 step = 0; step < steps; ++step) {
            if (step == 1)
                between();
#pragma unroll
            for (u32 j = 0; j < blocks; j += 2) {
                multiply(j, a[step % 2], b[j % 4]);
                const bool last = j + 2 == blocks;
                const u32 next = (j + 2) % blocks, k = (step + last) * 8;
                if (step + last < steps) {
                    b[next % 4] = fragment_of<Right>(right, next * 8, k, lane);
                    b[next % 4 + 1] = fragment_of<Right>(right, next * 8 + 8, k, lane);
                    if (last)
                        a[1 - step % 2] = load<Left>(left, k);
                }
                multiply(j + 1, a[step % 2], b[j % 4 + 1]);
            }
        }
    }

    // Solve X T^T = sums in the blocks of columns from `first` on, up to `end`, given the inverses
    // of T's 8 x 8 blocks on the diagonal, (row, column). A warp needs no other warp's X.
    template <class Triangle> CUPYGEMM_INLINE void
    solve(const double *triangle, const double *inverses, u32 pitch, u32 first, u32 end) {
        const u32 g = lane / 4, t = lane % 4;
#pragma unroll
        for (u32 b = 0; b < blocks; ++b) {
            if (b < first || b >= end)
                continue;
            const double *const inverse = inverses + (b * 8 + g) * pitch + 2 * t;
            double (&x)[4] = value[b];
            const Rows sums = {{x[0], x[1]}, {x[2], x[3]}};
            x[0] = x[1] = x[2] = x[3] = 0;
            mma_m16n8k8(x, sums.above, sums.below, {inverse[0], inverse[1]});
            const Rows negative = {negated({x[0], x[1]}), negated({x[2], x[3]})};
#pragma unroll
            for (u32 j = b + 1; j < blocks; ++j) {
                const double *const at = triangle + Triangle::place(j * 8 + g, b * 8 + 2 * t);
                mma_m16n8k8(value[j], negative.above, negative.below,
                            {at[0], at[Triangle::place(0, 1)]});
            }
        }
    }

private:
    struct Rows {
        Fragment above, below; // negative in products
    };

    template <class Left> CUPYGEMM_INLINE Rows load(const double *left, u32 k) const {
        return {negated(fragment_of<Left>(left, row, k, lane)),
                negated(fragment_of<Left>(left, row + 8, k, lane))};
    }

    CUPYGEMM_INLINE void multiply(u32 j, const Rows &a, const Fragment &b) {
        mma_m16n8k8(value[j], a.above, a.below, b);
    }
};

struct alignas(16) FourFloats {
    float value[4];
};

// 16 x 16 threads. If the elements of an operand are adjacent along k, a thread has every 16th row;
// otherwise it has two groups of 4 rows. It reads 16 bytes at a time in both cases, without bank
// conflicts.
template <bool rows_adjacent, bool columns_adjacent>
struct TileSums<float, rows_adjacent, columns_adjacent> {
    static constexpr bool multiplies_inverses = false;
    float value[8][8]; // (row, column)
    u32 row, column;   // of the thread, among 16

    CUPYGEMM_INLINE explicit TileSums(u32 thread) : row(thread / 16), column(thread % 16) {}

    template <bool adjacent> CUPYGEMM_INLINE static u32 place(u32 thread, u32 i) {
        return adjacent ? 4 * thread + i % 4 + i / 4 * 64 : thread + 16 * i;
    }

    template <class Visit> CUPYGEMM_INLINE void for_each(u32 first, u32 end, const Visit &visit) {
#pragma unroll
        for (u32 j = 0; j < 8; ++j) {
            const u32 c = place<columns_adjacent>(column, j);
            if (c / 8 >= first && c / 8 < end)
#pragma unroll
                for (u32 i = 0; i < 8; ++i)
                    visit(value[i][j], place<rows_adjacent>(row, i), c);
        }
    }

    CUPYGEMM_INLINE u32 end_at_diagonal() const { return 16; }

    template <class Left, class Right> CUPYGEMM_INLINE void
    subtract(const float *left, const float *right, u32 right_k, u32 first, u32 end) {
        subtract_steps<8, Left, Right>(left, right, right_k, first, end, [] {});
    }

    template <u32 depth, class Left, class Right, class Between> CUPYGEMM_INLINE void
    subtract_all(const float *left, const float *right, const Between &between) {
        subtract_steps<depth, Left, Right>(left, right, 0, 0, 16, between);
    }

private:
    template <u32 depth, class Left, class Right, class Between>
    CUPYGEMM_INLINE void subtract_steps(const float *left, const float *right, u32 right_k,
                                        u32 first, u32 end, const Between &between) {
#pragma unroll
        for (u32 k = 0; k < depth; k += 4) {
            if (k == 4)
                between();
            float a[8][4], b[8][4]; // (row, k), (column, k)
            load<Left, rows_adjacent>(left, row, k, a);
            load<Right, columns_adjacent>(right, column, right_k + k, b);
#pragma unroll
            for (u32 j = 0; j < 8; ++j) {
                const u32 block = place<columns_adjacent>(column, j) / 8;
                if (block >= first && block < end)
#pragma unroll
                    for (u32 l = 0; l < 4; ++l)
#pragma unroll
                        for (u32 i = 0; i < 8; ++i)
                            value[i][j] = fma_of(-a[i][l], b[j][l], value[i][j]);
            }
        }
    }

    template <class Operand, bool adjacent>
    CUPYGEMM_INLINE static void load(const float *tile, u32 thread, u32 k, float (&x)[8][4]) {
        const auto four = [&](u32 at, u32 along) {
            return *reinterpret_cast<const FourFloats *>(tile + Operand::place(at, along));
        };
        if constexpr (Operand::of_rows) {
#pragma unroll
            for (u32 l = 0; l < 4; ++l)
#pragma unroll
                for (u32 i = 0; i < 8; i += 4) {
                    const FourFloats rows = four(place<adjacent>(thread, i), k + l);
#pragma unroll
                    for (u32 r = 0; r < 4; ++r)
                        x[i + r][l] = rows.value[r];
                }
        } else {
#pragma unroll
            for (u32 i = 0; i < 8; ++i) {
                const FourFloats along = four(place<adjacent>(thread, i), k);
#pragma unroll
                for (u32 l = 0; l < 4; ++l)
                    x[i][l] = along.value[l];
            }
        }
    }
};

} // namespace cupygemm
