// The threads of a workgroup that factors small matrices, each of them in registers.
//
// A group of 32 threads has 8 columns of a matrix; a lane has the rows lane, lane + 32, and so on.
// Where matrices have at most 16 rows, a group has 16 threads, and 32 threads have two matrices.
// So a column belongs to one group, which finds its pivot and its multipliers without the others.
// The group factors its 8 columns, one after the other, and publishes their multipliers in shared
// memory; the groups to the right update their columns with all 8. A workgroup takes several
// matrices if they are small. All matrices have the same size, so the barriers serve all of them:
//
//   group 0   factor 0 | -
//   group 1   wait     | update, factor 1 | -
//   group 2   wait     | update           | update, factor 2 | ...
//                      ^ barrier          ^ barrier
#pragma once

#include "common/solvers/divisor.hpp"
#include "common/solvers/report.hpp"
#include "common/solvers/row_vectors.hpp"
#include "config.hpp"

namespace cupygemm {

using S = Config::Scalar;
using R = Real<S>;
using W = Word<S>;
constexpr u32 rows = Config::rows; // of a lane
constexpr u32 groups = Config::groups, threads = Config::threads;
constexpr u32 width = 8, lanes = groups * width <= 16 ? 16 : 32, height = rows * lanes;
constexpr u32 matrices = threads / (groups * lanes);
static_assert(threads % (groups * 32) == 0, "a workgroup must have whole matrices");

// Each column waits for latency, so an SM should hold many workgroups: as many as leave a thread
// registers for its elements, and `registers_beside` for nearly everything else. Of complex types
// some numbers are in memory then, where lanes have several rows, but more workgroups are resident.
constexpr u32 registers_of_sm = 65536;
constexpr u32 registers_beside = sizeof(S) == sizeof(R) ? 32 : sizeof(S) * (rows == 1 ? 6 : 4);
[[maybe_unused]] constexpr u32 resident = // read for NVIDIA GPUs only
    registers_of_sm / (threads * (rows * width * (sizeof(S) / 4) + registers_beside));

// 8 columns of multipliers: (column, row). Two panels alternate: a group writes to one while other
// groups read the other, with a barrier in between.
using Panel = S[width][height];

// 16 bytes of a row, in one access.
using Vector = RowVector<S>;

// Store a row where another branch stores single elements. NVIDIA's compiler would otherwise merge
// the two branches' first stores into single-element stores.
CUPYGEMM_INLINE void store_whole_vectors(const S (&from)[width], S *to) {
#if CUPYGEMM_NVIDIA
#pragma unroll
    for (u32 k = 0; k < width; k += Vector::count) {
        W words[16 / sizeof(W)];
#pragma unroll
        for (u32 c = 0; c < Vector::count; ++c)
            to_words(from[k + c], words + c * Parts<S>::words);
        store_16_bytes(to + k, words);
    }
#else
    store_vectors(from, to);
#endif
}

// The matrix and the part of it that a thread has.
struct Place {
    u32 lane, slot, group, first; // first: the first column of the group
    i32 matrix;
    bool inside; // whether the launch has this matrix

    CUPYGEMM_INLINE explicit Place(i32 batches) {
        const u32 thread = local_thread();
        lane = thread % lanes;
        slot = thread / (groups * 32) * (32 / lanes) + thread % 32 / lanes;
        group = thread / 32 % groups;
        first = group * width;
        matrix = static_cast<i32>(group_index_x() * matrices + slot);
        inside = matrix < batches;
    }

    CUPYGEMM_INLINE u32 row(u32 i) const { return lane + lanes * i; }
    CUPYGEMM_INLINE bool is_first() const { return lane == 0 && group == 0; } // of the matrix

    // Load `count` columns from column `from` on of rows `top` to n; zeros elsewhere.
    template <u32 count> CUPYGEMM_INLINE void load(const S *a, i64 row_stride, u32 n, u32 from,
                                                   u32 columns, S (&to)[rows][width],
                                                   u32 top = 0) const {
        const bool whole = count == width && from + width <= columns && aligned(a, row_stride);
#pragma unroll
        for (u32 i = 0; i < rows; ++i) {
            const S *const first = a + row(i) * static_cast<u32>(row_stride) + from;
            const bool has = inside && row(i) >= top && row(i) < n;
#pragma unroll
            for (u32 k = 0; k < count; ++k)
                to[i][k] = S{};
            if (has && whole)
                load_vectors(first, to[i]);
            else if (has)
#pragma unroll
                for (u32 k = 0; k < count; ++k)
                    if (from + k < columns)
                        to[i][k] = first[k];
        }
    }

    // Store the columns of the group in a row of n.
    CUPYGEMM_INLINE void store(S *a, i64 row_stride, u32 n, u32 row, const S (&from)[width]) const {
        S *const to = a + row * static_cast<u32>(row_stride) + first;
        if (!inside || row >= n)
            return;
        if (first + width <= n && aligned(a, row_stride)) {
            store_whole_vectors(from, to);
            return;
        }
#pragma unroll
        for (u32 k = 0; k < width; ++k)
            if (first + k < n)
                to[k] = from[k];
    }

private:
    CUPYGEMM_INLINE static bool aligned(const S *a, i64 row_stride) {
        return (reinterpret_cast<u64>(a) | static_cast<u64>(row_stride) * sizeof(S)) % 16 == 0;
    }
};

// Column k of a row of the matrix, from the lane that holds it.
CUPYGEMM_INLINE S of_row(const S (&elements)[rows][width], u32 k, u32 row) {
    S element = elements[0][k];
#pragma unroll
    for (u32 i = 1; i < rows; ++i) {
        const S other = elements[i][k]; // without a run-time index
        element = row / lanes == i ? other : element;
    }
    return from_lane_of<lanes>(element, row % lanes);
}

} // namespace cupygemm
