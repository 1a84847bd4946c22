// Tiles of matrices in shared memory, read as fragments without bank conflicts.
//
// A tile has `size` rows and `depth` elements of each along k. It has the same order in shared
// memory as in global memory, with rows or columns padded to odd multiples of 4 elements:
//
//   elements of a row adjacent   [row][depth + 4]
//   rows adjacent                [k][size + 4]
//
// One instruction copies `together` elements: one, or 16 bytes of them.
//
// In an fp64 fragment, lane 4 g + t reads row g and k = t. The 16 lanes that shared memory serves
// together read four rows, which are 4 elements apart (modulo 16), and four adjacent k. So they
// read from different banks.
#pragma once

#include "hopper/cp_async.cuh"
#include "hopper/mma_sync.cuh"

namespace cupygemm {

// A matrix in global memory, whose strides may be negative. Elements outside it are zeros.
template <class S> struct TileSource {
    const S *start;
    i64 row, column; // elements between rows, and between columns
    u32 rows, columns;
};

template <class S, u32 size, u32 depth, bool rows_adjacent, u32 together, u32 threads>
struct TileOperand {
    static constexpr bool of_rows = rows_adjacent;
    static constexpr u32 pitch = (rows_adjacent ? size : depth) + 4;
    static constexpr u32 elements = (rows_adjacent ? depth : size) * pitch;
    static_assert(pitch % 8 == 4, "16 lanes must find their elements in different banks");

    CUPYGEMM_INLINE static u32 place(u32 row, u32 k) {
        return rows_adjacent ? k * pitch + row : row * pitch + k;
    }

    // Copy a tile, or `count` k of it from `first` on, by all threads of the block. Elements
    // outside the matrix become zeros.
    template <u32 count = depth> CUPYGEMM_INLINE static void
    copy(S *to, const TileSource<S> &from, u32 row0, u32 column0, u32 thread, u32 first = 0) {
        constexpr u32 per_line = (rows_adjacent ? size : count) / together;
        static_assert(size * count % (together * threads) == 0, "threads copy the same number");
#pragma unroll
        for (u32 i = 0; i < size * count / (together * threads); ++i) {
            const u32 at = i * threads + thread;
            const u32 line = at / per_line, along = at % per_line * together;
            const u32 row = rows_adjacent ? along : line;
            const u32 k = first + (rows_adjacent ? line : along);
            const u32 r = row0 + row, c = column0 + k;
            const bool inside = r < from.rows && c < from.columns;
            const u32 left = rows_adjacent ? from.rows - r : from.columns - c;
            const u32 present = !inside ? 0 : left < together ? left : together;
            const S *const source =
                inside ? from.start + r * from.row + c * from.column : from.start;
            copy_async<together * sizeof(S)>(shared_address(to + place(row, k)),
                                             reinterpret_cast<u64>(source), present * sizeof(S));
        }
    }

    // Copies a row of tiles one after the other; a thread keeps its first address. All columns must
    // be inside the matrix.
    class Slabs {
    public:
        CUPYGEMM_INLINE Slabs(const TileSource<S> &from, u32 row0, u32 thread)
            : to_(place(row(thread), k(thread))), row_(from.row), column_(from.column) {
            const u32 r = row0 + row(thread);
            left_ = r < from.rows ? from.rows - r : 0;
            first_ = from.start + (left_ > 0 ? r : 0) * from.row + k(thread) * from.column;
        }

        CUPYGEMM_INLINE void copy(S *to, u32 column0) const {
            const S *const source = first_ + column0 * column_;
#pragma unroll
            for (u32 i = 0; i < (rows_adjacent ? depth : size) / lines; ++i) {
                const u32 line = i * lines;
                const u32 left = rows_adjacent ? left_ : left_ > line ? together : 0;
                const u32 present = left < together ? left : together;
                const i64 step = rows_adjacent ? line * column_ : present > 0 ? line * row_ : 0;
                copy_async<together * sizeof(S)>(shared_address(to + to_ + line * pitch),
                                                 reinterpret_cast<u64>(source + step),
                                                 present * sizeof(S));
            }
        }

        // The same, if all rows are inside the matrix, too.
        CUPYGEMM_INLINE void copy_inside(S *to, u32 column0) const {
            const S *source = first_ + column0 * column_;
            const i64 step = lines * (rows_adjacent ? column_ : row_);
#pragma unroll
            for (u32 i = 0; i < (rows_adjacent ? depth : size) / lines; ++i) {
                copy_async<together * sizeof(S)>(shared_address(to + to_ + i * lines * pitch),
                                                 reinterpret_cast<u64>(source),
                                                 together * sizeof(S));
                source += step;
            }
        }

    private:
        static constexpr u32 per_line = (rows_adjacent ? size : depth) / together;
        static constexpr u32 lines = threads / per_line;
        const S *first_;
        u32 to_, left_; // the rows from the thread's first one on
        i64 row_, column_;

        CUPYGEMM_INLINE static u32 along(u32 thread) { return thread % per_line * together; }
        CUPYGEMM_INLINE static u32 row(u32 thread) {
            return rows_adjacent ? along(thread) : thread / per_line;
        }
        CUPYGEMM_INLINE static u32 k(u32 thread) {
            return rows_adjacent ? thread / per_line : along(thread);
        }
    };
};

// The lane's elements in row `row` + g, at columns k + t and k + t + 4.
template <class Operand>
CUPYGEMM_INLINE Fragment fragment_of(const double *tile, u32 row, u32 k, u32 lane) {
    const double *const at = tile + Operand::place(row + lane / 4, k + lane % 4);
    return {at[0], at[Operand::place(0, 4)]};
}

// -x by integer operations, which leave the fp64 units free.
CUPYGEMM_INLINE double negated_bits(double x) {
    return double_of_bits(f64_bits(x) ^ (static_cast<u64>(1) << 63));
}
CUPYGEMM_INLINE Fragment negated(const Fragment &x) {
    return {negated_bits(x.k[0]), negated_bits(x.k[1])};
}

} // namespace cupygemm
