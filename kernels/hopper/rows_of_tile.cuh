// A warp's 16 rows of a tile, in registers, by blocks of 8 columns.
//
// Lane 4 g + t has the elements in rows g and g + 8 at columns 2 t and 2 t + 1 of each block.
// Sums of fp32 are computed by fused multiplications and additions.
#pragma once

#include "common/solvers/row_vectors.hpp"
#include "hopper/diagonal_block.cuh"
#include "hopper/tile_operand.cuh"

namespace cupygemm {

constexpr u32 tile_rows = Config::threads / 32 * 16, tile_blocks = tile_rows / block;
// Rows of blocks of 8 columns in shared memory: reads of 16 bytes of each have no bank conflicts.
constexpr u32 row_pitch = sizeof(S) == 8 ? block : block + 4;

// d = c + a b, as mma_m16n8k8.
CUPYGEMM_INLINE void mma_m16n8k8(double (&d)[4], const double (&c)[4], const Fragment &a,
                                 const Fragment &a_below, const Fragment &b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=d"(d[0]), "=d"(d[1]), "=d"(d[2]), "=d"(d[3])
                 : "d"(a.k[0]), "d"(a_below.k[0]), "d"(a.k[1]), "d"(a_below.k[1]), "d"(b.k[0]),
                   "d"(b.k[1]), "d"(c[0]), "d"(c[1]), "d"(c[2]), "d"(c[3]));
}

// The warp's rows of a block, as the left factors of products.
template <class Real> struct RowsOfBlock;

template <> struct RowsOfBlock<double> {
    static constexpr bool reads_shared = false;
    Fragment above, below;

    // Take the lane's elements or, for types that are read from there, the rows in shared memory.
    CUPYGEMM_INLINE void set(const double (&x)[4], const double *, u32) {
        above = {{x[0], x[1]}};
        below = {{x[2], x[3]}};
    }
    // A lane's part of the right factor, 8 rows in shared memory.
    struct Right {
        double value[2];

        CUPYGEMM_INLINE void load(const double *rows, u32 pitch, u32 lane) {
            load_vectors(rows + lane / 4 * pitch + lane % 4 * 2, value);
        }
    };
    // d = c minus these rows times the transpose of the right factor, or plus it.
    template <bool subtracts>
    CUPYGEMM_INLINE void multiply(double (&d)[4], const double (&c)[4], const Right &right) const {
        mma_m16n8k8(d, c, subtracts ? negated(above) : above, subtracts ? negated(below) : below,
                    {{right.value[0], right.value[1]}});
    }
};

template <> struct RowsOfBlock<float> {
    static constexpr bool reads_shared = true;
    float row[2][block];

    CUPYGEMM_INLINE void set(const float (&)[4], const float *rows, u32 lane) {
        load_vectors(rows + lane / 4 * row_pitch, row[0]);
        load_vectors(rows + (lane / 4 + 8) * row_pitch, row[1]);
    }
    struct Right {
        float row[2][block];

        CUPYGEMM_INLINE void load(const float *rows, u32 pitch, u32 lane) {
            load_vectors(rows + lane % 4 * 2 * pitch, row[0]);
            load_vectors(rows + (lane % 4 * 2 + 1) * pitch, row[1]);
        }
    };
    template <bool subtracts>
    CUPYGEMM_INLINE void multiply(float (&d)[4], const float (&c)[4], const Right &right) const {
        float sum[4] = {c[0], c[1], c[2], c[3]};
#pragma unroll
        for (u32 k = 0; k < block; ++k)
#pragma unroll
            for (u32 e = 0; e < 4; ++e)
                sum[e] =
                    fma_of(subtracts ? -row[e / 2][k] : row[e / 2][k], right.row[e % 2][k], sum[e]);
#pragma unroll
        for (u32 e = 0; e < 4; ++e)
            d[e] = sum[e];
    }
};

// The warp's rows of the next block, and of the blocks after it. There may be fewer places than
// blocks.
template <u32 places> struct RowsOfTile {
    S value[places][4];    // value[0] belongs to the next block
    u32 lane, first, last; // the warp's first row, and the last block that has elements

    CUPYGEMM_INLINE RowsOfTile(u32 thread, bool is_lower)
        : lane(thread % 32), first(thread / 32 * 16),
          last(is_lower ? thread / 32 * 2 + 1 : tile_blocks - 1) {}

    // The positions of the lane's elements in the tile, and in a block of 8 columns by row.
    CUPYGEMM_INLINE u32 row(u32 e) const { return first + lane / 4 + e / 2 * 8; }
    CUPYGEMM_INLINE u32 column(u32 b, u32 e) const { return b * block + lane % 4 * 2 + e % 2; }
    CUPYGEMM_INLINE u32 place(u32 e) const { return row(e) * row_pitch + column(0, e); }

    CUPYGEMM_INLINE void show(S *rows, const S (&x)[4]) const {
#pragma unroll
        for (u32 e = 0; e < 4; ++e)
            rows[place(e)] = x[e];
    }

    // Subtract the products of rows of block b and of the triangle, whose block b is in shared
    // memory by row, from the next block, which becomes value[0].
    CUPYGEMM_INLINE void subtract_next(const RowsOfBlock<S> &rows, const S *triangle, u32 pitch,
                                       u32 b) {
        typename RowsOfBlock<S>::Right right;
        right.load(triangle + (b + 1) * block * pitch, pitch, lane);
        rows.template multiply<true>(value[0], value[1], right);
    }
    // Subtract them from all later blocks, which move forward by one place.
    CUPYGEMM_INLINE void subtract_others(const RowsOfBlock<S> &rows, const S *triangle, u32 pitch,
                                         u32 b) {
        constexpr bool loads_ahead = sizeof(S) == 8; // registers suffice
        typename RowsOfBlock<S>::Right right, ahead;
        const auto load = [&](u32 j) { ahead.load(triangle + j * block * pitch, pitch, lane); };
        if (loads_ahead && b + 2 <= last)
            load(b + 2);
#pragma unroll
        for (u32 j = 2; j < places; ++j) {
            if (b + j > last)
                break;
            if (!loads_ahead)
                load(b + j);
            right = ahead;
            if (loads_ahead && b + j < last)
                load(b + j + 1);
            rows.template multiply<true>(value[j - 1], value[j], right);
        }
    }
};

// Solve for a row of a block by substitution, with 8 rows of the triangle.
CUPYGEMM_INLINE void substitute_row(const S *shown, const S *triangle, u32 pitch, S *solution) {
    S x[block];
#pragma unroll
    for (u32 j = 0; j < block; ++j)
        x[j] = shown[j];
#pragma unroll
    for (u32 j = 0; j < block; ++j) {
        x[j] = x[j] / triangle[j * pitch + j];
#pragma unroll
        for (u32 k = j + 1; k < block; ++k)
            x[k] = fma_of(-x[j], triangle[k * pitch + j], x[k]);
    }
#pragma unroll
    for (u32 j = 0; j < block; ++j)
        solution[j] = x[j];
}

} // namespace cupygemm
