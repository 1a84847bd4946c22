// Stores matrices and right-hand sides side by side, [A 0 B], in matrices that a solver overwrites.
//
//   first workgroups   a few rows of A: a thread loads its columns of all rows before it stores one
//   last workgroups    one element to the right of A by each thread
//
// With `vectors`, the rows of A and of the result begin at multiples of 16 bytes, and so does the
// first column that is stored. The last columns of A are stored with all to their right.
#include "common/solvers/row_vectors.hpp"
#include "config.hpp"

namespace cupygemm {

struct AugmentArgs {
    u64 to; // element (0, 0) of the first matrix
    i64 to_row, to_matrix;
    u64 a;
    i64 a_row, a_matrix; // elements between rows, whose elements are adjacent, and matrices
    u64 b;
    i64 b_row, b_column, b_matrix;
    i32 rows, unused;
    i32 first, end;       // the columns of A that are stored
    i32 start, right_end; // the columns of B in the result; those from `end` on are zeros
};
static_assert(sizeof(AugmentArgs) == 104,
              "AugmentArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
constexpr u32 threads = Config::threads, lines = 8;
constexpr u32 together = Config::vectors ? RowVector<S>::count : 1;
struct alignas(Config::vectors ? 16 : alignof(S)) Columns {
    S elements[together];
};

CUPYGEMM_INLINE void store_left(const AugmentArgs &args, u32 matrix, u32 row0, i32 column) {
    const S *const a = reinterpret_cast<const S *>(args.a) + matrix * args.a_matrix + column;
    S *const to = reinterpret_cast<S *>(args.to) + matrix * args.to_matrix + column;
    const u32 rows = args.rows;
    if (column + static_cast<i32>(together) <= args.end) {
        Columns held[lines];
#pragma unroll
        for (u32 i = 0; i < lines; ++i)
            if (row0 + i < rows)
                held[i] = *reinterpret_cast<const Columns *>(a + (row0 + i) * args.a_row);
#pragma unroll
        for (u32 i = 0; i < lines; ++i)
            if (row0 + i < rows)
                *reinterpret_cast<Columns *>(to + (row0 + i) * args.to_row) = held[i];
    } else { // the last vector of the row is not full
        for (u32 row = row0; row < row0 + lines && row < rows; ++row)
            for (i32 c = 0; column + c < args.end; ++c)
                to[row * args.to_row + c] = a[row * args.a_row + c];
    }
}

CUPYGEMM_INLINE void store_right(const AugmentArgs &args, u32 matrix, u32 at) {
    const u32 across = args.right_end - args.end, row = at / across;
    const i32 column = args.end + static_cast<i32>(at % across), of_b = column - args.start;
    if (row >= static_cast<u32>(args.rows))
        return;
    const S *const b = reinterpret_cast<const S *>(args.b) + matrix * args.b_matrix;
    S *const to = reinterpret_cast<S *>(args.to) + matrix * args.to_matrix + row * args.to_row;
    to[column] = of_b < 0 ? S{} : b[row * args.b_row + of_b * args.b_column];
}

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads) cupygemm_augment(const cupygemm::AugmentArgs args) {
    using namespace cupygemm;
    const u32 group = group_index_x(), matrix = group_index_y(), thread = local_thread();
    const u32 columns = args.end - args.first, rows = args.rows;
    const u32 across = ceil_div(columns, threads * together),
              of_left = across * ceil_div(rows, lines);
    if (group < of_left) {
        const u32 column = args.first + (group % across * threads + thread) * together;
        store_left(args, matrix, group / across * lines, static_cast<i32>(column));
    } else
        store_right(args, matrix, (group - of_left) * threads + thread);
}
